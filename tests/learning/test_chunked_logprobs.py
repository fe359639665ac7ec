"""Chunked log-probabilities equal a log-softmax over full logits, in values and gradients, without holding them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from etude.learning.logprobs import action_logprobs, chunked_logprobs
from etude.learning.packing import pack
from etude.learning.rows import TrainingRow

VOCABULARY, HIDDEN, ACTIONS = 37, 4, 41


def problem(dtype: torch.dtype = torch.float64) -> tuple[Tensor, nn.Linear, Tensor]:
    random = torch.Generator().manual_seed(0)
    head = nn.Linear(HIDDEN, VOCABULARY, dtype=dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random, dtype=dtype))
    hidden = torch.randn(ACTIONS, HIDDEN, generator=random, dtype=dtype, requires_grad=True)
    return hidden, head, torch.randint(VOCABULARY, (ACTIONS,), generator=random)


def full_logprobs(hidden: Tensor, head: nn.Module, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The obvious way: all logits at once. Returns (log-probability of the target, entropy)."""
    logp = (head(hidden).float() if hidden.dtype == torch.bfloat16 else head(hidden)).div(temperature).log_softmax(-1)
    return logp[torch.arange(len(targets)), targets], -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize("chunk", [1, 4, 41, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_twin(chunk: int, temperature: float) -> None:
    hidden, head, targets = problem()
    upstream = torch.linspace(-1, 2, ACTIONS, dtype=torch.float64)
    inputs = [hidden, *head.parameters()]
    logp, entropy = chunked_logprobs(hidden, head, targets, temperature=temperature, chunk=chunk, entropy=True)
    expected, expected_entropy = full_logprobs(hidden, head, targets, temperature)
    torch.testing.assert_close(logp, expected)
    torch.testing.assert_close(entropy, expected_entropy.detach())
    gradients = torch.autograd.grad((logp * upstream).sum(), inputs)
    expected_gradients = torch.autograd.grad((expected * upstream).sum(), inputs)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, wanted)


def test_finite_differences() -> None:
    hidden, head, targets = problem()

    def logp(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        class Head(nn.Module):
            def forward(self, states: Tensor) -> Tensor:
                return nn.functional.linear(states, weight, bias)

        return chunked_logprobs(states, Head(), targets[:5], temperature=1.3, chunk=2)[0]

    weight, bias = head.weight.detach().clone().requires_grad_(), head.bias.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(logp, (hidden[:5].detach().clone().requires_grad_(), weight, bias))


def test_bfloat16_weights_still_give_float32() -> None:
    hidden, head, targets = problem(torch.bfloat16)
    logp, entropy = chunked_logprobs(hidden, head, targets, temperature=0.9, chunk=7, entropy=True)
    assert logp.dtype == torch.float32
    assert entropy is not None
    assert entropy.dtype == torch.float32
    torch.testing.assert_close(logp, full_logprobs(hidden, head, targets, 0.9)[0])
    logp.sum().backward()
    assert head.weight.grad is not None
    assert head.weight.grad.dtype == torch.bfloat16


class LargestTensor(TorchDispatchMode):
    """Watches every operation, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.largest = max([self.largest, *sizes])
        return result


def test_no_tensor_is_larger_than_a_chunk_of_logits() -> None:
    hidden, head, targets = problem()
    held: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        held.append(tensor.numel())
        return tensor

    with LargestTensor() as chunked, torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        chunked_logprobs(hidden, head, targets, chunk=5, entropy=True)[0].sum().backward()
    with LargestTensor() as full:
        full_logprobs(hidden, head, targets, 1.0)[0].sum().backward()
    assert full.largest == ACTIONS * VOCABULARY
    assert chunked.largest == 5 * VOCABULARY
    assert max(held) <= hidden.numel()


def test_gradients_reach_a_frozen_head_no_further_than_the_hidden_states() -> None:
    hidden, head, targets = problem()
    head.requires_grad_(False)
    logp, _ = chunked_logprobs(hidden, head, targets, chunk=8)
    logp.sum().backward()
    assert hidden.grad is not None
    assert head.weight.grad is None


def test_packed_rows_equal_each_row_alone_in_a_plain_model(
    make_model: Callable[..., nn.Module], make_rows: Callable[..., list[TrainingRow]]
) -> None:
    """Hugging Face's own model with its own attention, full logits, one row at a time."""
    rows = make_rows(5)
    packed = pack(rows, np.ones(len(rows)))
    model, plain = make_model(), make_model(plain=True)
    logp, _ = action_logprobs(model, packed, temperature=1.2, chunk=6)
    parts = []
    for row in rows:
        tokens = torch.from_numpy(row.tokens.astype(np.int64))
        logits = plain(input_ids=tokens[None]).logits[0] / 1.2
        places = torch.from_numpy(np.flatnonzero(row.action_mask))
        parts.append(logits.log_softmax(-1)[places - 1, tokens[places]])
    expected = torch.cat(parts)
    torch.testing.assert_close(logp, expected)
    upstream = torch.linspace(-1, 1, len(expected), dtype=torch.float64)
    (logp * upstream).sum().backward()
    (expected * upstream).sum().backward()
    for (name, value), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(value.grad, other.grad, msg=lambda text, name=name: f"{name}: {text}")
