"""Packed sequences equal each sequence alone, in values and gradients, for every family of models."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.families import FAMILIES, VOCAB, backbone_of, model_pair
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from etude.errors import ModelError
from etude.model.attention import output_head, packed_hidden, use_etude_attention

LENGTHS = [5, 1, 9, 2]


def random_tokens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def llama() -> nn.Module:
    return model_pair("llama")[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_equals_each_sequence_alone_in_transformers(family: str) -> None:
    model, reference = model_pair(family)
    tokens = random_tokens(sum(LENGTHS))
    alone = [backbone_of(reference)(input_ids=part[None]).last_hidden_state[0] for part in tokens.split(LENGTHS)]
    packed = packed_hidden(model, tokens, LENGTHS)
    torch.testing.assert_close(packed, torch.cat(alone), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen3", "llama-lora"])
def test_packed_gradients_equal_those_of_each_sequence_alone(family: str) -> None:
    model, reference = model_pair(family, torch.float64)
    tokens = random_tokens(sum(LENGTHS))
    weights = torch.randn(sum(LENGTHS), VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (output_head(model)(packed_hidden(model, tokens, LENGTHS)).log_softmax(-1) * weights).sum().backward()
    for part, weight in zip(tokens.split(LENGTHS), weights.split(LENGTHS), strict=True):
        (reference(input_ids=part[None]).logits[0].log_softmax(-1) * weight).sum().backward()
    # float64, but transformers' norms and softmax pass through float32
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters() if parameter.requires_grad}
    assert gradients
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert torch.dist(parameter.grad, gradients[name]) < 1e-5 * gradients[name].norm(), name


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_a_segment_does_not_depend_on_its_neighbours(
    llama: nn.Module, lengths: list[int], seed: int, random: object
) -> None:
    tokens = random_tokens(sum(lengths), seed)
    order = list(range(len(lengths)))
    random.shuffle(order)  # type: ignore[attr-defined]
    parts = tokens.split(lengths)
    with torch.no_grad():
        packed = packed_hidden(llama, tokens, lengths).split(lengths)
        shuffled = packed_hidden(llama, torch.cat([parts[i] for i in order]), [lengths[i] for i in order])
    for place, hidden in zip(order, shuffled.split([lengths[i] for i in order]), strict=True):
        torch.testing.assert_close(hidden, packed[place], rtol=0, atol=1e-5)


def test_gradient_checkpointing_changes_nothing() -> None:
    model, _ = model_pair("qwen3", torch.float64)
    tokens = random_tokens(sum(LENGTHS))
    packed_hidden(model, tokens, LENGTHS).square().sum().backward()
    plain = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    model.train()
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    packed_hidden(model, tokens, LENGTHS).square().sum().backward()
    again = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    torch.testing.assert_close(again, plain)


@pytest.mark.parametrize("lengths", [[3, 1], [3, 3], [], [5, 0], [6, -1]])
def test_lengths_that_do_not_make_the_tokens_are_refused(llama: nn.Module, lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="must sum to the 5 tokens"):
        packed_hidden(llama, random_tokens(5), lengths)


def test_a_plain_call_is_refused_because_it_would_have_no_mask(llama: nn.Module) -> None:
    with pytest.raises(ModelError, match="packed_hidden or an engine"):
        llama(input_ids=random_tokens(5)[None])


def test_attention_that_is_not_plainly_causal_is_refused() -> None:
    sizes = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "head_dim": 4}
    sizes |= {"num_hidden_layers": 2, "num_key_value_heads": 2}
    sliding = Qwen2ForCausalLM(Qwen2Config(use_sliding_window=True, sliding_window=4, max_window_layers=1, **sizes))
    with pytest.raises(ModelError, match="qwen2 model has layers of full_attention, sliding_attention"):
        use_etude_attention(sliding)
    with pytest.raises(ModelError, match="attention dropout"):
        use_etude_attention(LlamaForCausalLM(LlamaConfig(attention_dropout=0.1, **sizes)))
    with pytest.raises(ModelError, match="Linear is not a transformers model"):
        use_etude_attention(torch.nn.Linear(2, 2))
