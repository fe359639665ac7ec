"""The tiny tokenizer and model of tests and tutorials."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import ConfigError
from etude.model.tiny import CALL_TOKENS, CHATML_TOKENS, tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


@given(st.text(max_size=40))
def test_every_text_comes_back_unchanged(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False), skip_special_tokens=False) == text


def test_chatml_tokens_are_single_ids_and_the_end_of_turn_is_eos() -> None:
    for text in CHATML_TOKENS:
        assert len(TOKENIZER.encode(text, add_special_tokens=False)) == 1
    assert TOKENIZER.eos_token == "<|im_end|>"
    assert len(TOKENIZER) <= 512


def test_call_tokens_are_added_but_not_special() -> None:
    tokenizer = tiny_tokenizer(call_tokens=True)
    for text in CALL_TOKENS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert len(ids) == 1
        assert ids[0] not in tokenizer.all_special_ids


def test_the_same_arguments_give_the_same_tokenizer() -> None:
    assert tiny_tokenizer().get_vocab() == TOKENIZER.get_vocab()


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="vocab_size is 100"):
        tiny_tokenizer(vocab_size=100)


def test_model_is_small_seeded_and_leaves_the_global_random_state() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (tiny_model(TOKENIZER, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.num_parameters() < 200_000
    weights = [model.model.layers[0].self_attn.q_proj.weight for model in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert one(torch.tensor([TOKENIZER.encode("search")])).logits.shape[-1] == len(TOKENIZER)


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match="hidden is 60"):
        tiny_model(TOKENIZER, hidden=60)
