"""The bundled model's tokenizer: single digits, names in pieces that are the same everywhere, no text is lost."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import ConfigError
from etude.recipes.email_demo.names import NAME_KINDS, names_of
from etude.recipes.email_demo.tokenizer import tokenizer_texts, train_tokenizer
from etude.rollout.codec import TextCodec

TEXTS = list(tokenizer_texts(companies=12))
TOKENIZER = train_tokenizer(TEXTS, vocab_size=1024)
CODEC = TextCodec(TOKENIZER)


def pieces(text: str) -> list[str]:
    return [CODEC.decode([token]) for token in CODEC.encode([text])]


def test_the_same_texts_give_the_same_tokenizer() -> None:
    again: Any = train_tokenizer(tokenizer_texts(companies=12), vocab_size=1024)
    assert again.backend_tokenizer.to_str() == TOKENIZER.backend_tokenizer.to_str()
    assert len(TOKENIZER) == 1024


@given(st.text(max_size=20))
def test_every_text_comes_back(text: str) -> None:
    assert CODEC.decode(CODEC.encode([text])) == text


@given(st.integers(0, 10**9))
def test_a_digit_is_a_token_of_its_own(number: int) -> None:
    assert pieces(str(number)) == list(str(number))
    assert pieces(f"m{number}, ")[1 : 1 + len(str(number))] == list(str(number))


def test_a_name_is_the_same_pieces_wherever_it_stands() -> None:
    for kind in NAME_KINDS:
        for name in islice(names_of(kind, "test"), 0, None, 50):
            alone = pieces(name)
            for before, after in (("Ask ", "."), ('{"answer":"', '"}'), ("> ", " and"), ("\n", "\n")):
                around = pieces(f"{before}{name}{after}")
                assert any(around[n : n + len(alone)] == alone for n in range(len(around)))


def test_names_that_no_text_held_are_several_pieces_but_not_letters() -> None:
    names = [name for kind in NAME_KINDS for name in islice(names_of(kind, "test"), 0, None, 20)]
    lengths = [len(pieces(name)) for name in names]
    assert min(lengths) >= 2
    assert sum(lengths) / len(lengths) < 4


def test_the_words_of_calls_are_single_tokens() -> None:
    call = 'search_emails{"keywords":["meeting"]}'
    assert pieces(call) == ["search_emails", '{"', "keywords", '":["', *pieces("meeting"), '"]}']
    assert pieces("return_final_answer") == ["return_final_answer"]


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"vocab_size is 260, but bytes and control tokens are \d+"):
        train_tokenizer(["a"], vocab_size=260)
