"""Text never becomes a control token, comes back unchanged, and is cut to an exact budget."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from etude.errors import ConfigError, ModelError
from etude.model.tiny import CALL_TOKENS, CHATML_TOKENS, tiny_tokenizer
from etude.rollout.codec import Markup, TextCodec

TOKENIZER = tiny_tokenizer(call_tokens=True)
CODEC = TextCodec(TOKENIZER)
CONTROLS = (*CHATML_TOKENS, *CALL_TOKENS)
PARTS = st.sampled_from([*CONTROLS, "<|im_", "end|>", "<", "<tool", "\n", " ", "e\u0301", "🙂", "漢"])
OUTSIDE = st.lists(PARTS | st.text(max_size=6), max_size=8).map("".join)
MARKER = re.compile(r"\n\[\.\.\. ([\d,]+) more tokens cut\]$")


@given(st.lists(OUTSIDE, max_size=4))
def test_text_holds_no_control_token_and_comes_back(pieces: list[str]) -> None:
    tokens = CODEC.encode(pieces)
    assert not set(tokens) & set(CODEC.controls.values())
    assert CODEC.decode(tokens) == "".join(pieces)


@given(OUTSIDE, OUTSIDE)
def test_markup_around_text_is_the_only_control(before: str, after: str) -> None:
    tokens = CODEC.encode([before, Markup("<|im_end|>\n<|im_start|>user\n"), after])
    found = [token for token in tokens if token in CODEC.controls.values()]
    assert found == [CODEC.controls["<|im_end|>"], CODEC.controls["<|im_start|>"]]
    assert CODEC.decode(tokens) == f"{before}<|im_end|>\n<|im_start|>user\n{after}"


@given(st.text(alphabet="ab <|\n123", max_size=30))
def test_where_text_names_no_control_the_tokens_are_the_tokenizer_s_own(text: str) -> None:
    whole = f"<|im_start|>user\n{text}\n\n</result><|im_end|>\n<tool_call>"
    pieces = [Markup("<|im_start|>user\n"), text, Markup("\n\n</result>"), Markup("<|im_end|>\n<tool_call>")]
    assert CODEC.encode(pieces) == TOKENIZER.encode(whole, add_special_tokens=False)


def test_neighbouring_pieces_are_encoded_as_one_text() -> None:
    assert CODEC.encode(["sea", Markup("rch"), ""]) == CODEC.encode([Markup("sea"), "rch"]) == CODEC.encode(["search"])
    assert CODEC.count("search") == 1


def test_markup_that_is_mixed_into_text_is_text() -> None:
    text = f"a{Markup('<|im_end|>')}" + "b"
    assert not set(CODEC.encode([text])) & set(CODEC.controls.values())


def test_every_control_of_smollm2_stays_text(smollm2_tokenizer: PreTrainedTokenizerFast) -> None:
    codec = TextCodec(smollm2_tokenizer)
    text = " é漢🙂\n\n".join(codec.controls)
    tokens = codec.encode([text])
    assert len(codec.controls) == 17
    assert not set(tokens) & set(codec.controls.values())
    assert codec.decode(tokens) == text
    assert all(codec.encode([Markup(name)]) == [token] for name, token in codec.controls.items())


def test_half_surrogate_pairs_become_replacement_characters() -> None:
    assert CODEC.decode(CODEC.encode(["a\ud800b"])) == "a\ufffdb"
    assert CODEC.cut("a\ud800b", 50)[0] == "a\ufffdb"


@given(OUTSIDE.map(lambda text: text * 4), st.integers(30, 60))
def test_cut_text_is_within_budget_with_exact_counts(text: str, budget: int) -> None:
    shown, tokens, truncated = CODEC.cut(text, budget)
    assert tokens == CODEC.count(shown) <= budget
    assert truncated == (CODEC.count(text) > budget)
    if not truncated:
        assert shown == text
        return
    marker = MARKER.search(shown)
    assert marker is not None
    kept = shown[: marker.start()]
    assert text.startswith(kept)
    assert int(marker[1].replace(",", "")) == CODEC.count(text) - CODEC.count(kept)


def test_cut_golden() -> None:
    codec = TextCodec(tiny_tokenizer(corpus=[]))  # one token a byte
    assert codec.cut("0123456789", 10) == ("0123456789", 10, False)
    assert codec.cut("0" * 5000, 40) == (f"{'0' * 12}\n[... 4,988 more tokens cut]", 40, True)
    # 🙂 is four tokens: one that does not fit whole is left out whole.
    assert codec.cut("a🙂🙂" + "0" * 991, 34) == ("a🙂\n[... 995 more tokens cut]", 31, True)
    assert codec.cut("", 0) == ("", 0, False)


def test_a_budget_without_room_for_the_marker_is_refused() -> None:
    with pytest.raises(ConfigError, match="a budget of 3 tokens is too small"):
        CODEC.cut("word " * 50, 3)


def build(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def byte_level(vocab: dict[str, int], **settings: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], **settings))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


BYTES = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}


def test_a_tokenizer_that_changes_text_is_refused() -> None:
    tokenizer = byte_level(BYTES)
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_special_tokens([AddedToken("<|END|>", normalized=False)])
    with pytest.raises(ModelError, match="does not give back the text"):
        TextCodec(build(tokenizer))


def test_a_tokenizer_that_makes_special_tokens_of_text_is_refused() -> None:
    tokenizer = byte_level({**BYTES, "</s>": 256}, ignore_merges=True)
    tokenizer.add_special_tokens(["</s>"])
    with pytest.raises(ModelError, match="makes special tokens of plain text"):
        TextCodec(build(tokenizer))


def test_a_tokenizer_without_the_fast_backend_is_refused() -> None:
    with pytest.raises(ModelError, match="is not a fast tokenizer"):
        TextCodec(object())


def test_added_tokens_that_are_ordinary_vocabulary_are_no_controls() -> None:
    tokenizer = byte_level({**BYTES, "<h1>": 256}, ignore_merges=True)
    tokenizer.add_tokens(["<h1>", AddedToken("\n\n")])
    assert TextCodec(build(tokenizer)).controls == {}


def test_chat_does_not_import_torch_or_transformers() -> None:
    code = (
        "import sys, etude.rollout.chat, etude.rollout.drift; "
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
