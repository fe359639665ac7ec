"""From logits to tokens: each token is a function of its logits, its request's seed and its position, and of nothing
else, so that what runs beside a request does not change it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from etude.errors import ModelError

BLOCK = 64  # tokens
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position): the position-th output of a SplitMix64 generator whose state is
    the mixed seed (https://doi.org/10.1145/2714064.2660195). 53 random bits each."""
    state = _mix(np.array([seed & _MASK for seed in seeds], dtype=np.uint64))
    counter = np.array(positions, dtype=np.uint64) + np.uint64(1)
    bits = _mix(state + counter * _GOLDEN) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def sample_tokens(
    logits: Float[Tensor, "turns vocab"], temperatures: Sequence[float], uniform: NDArray[np.float64]
) -> tuple[Int[Tensor, "turns"], Float[Tensor, "turns"]]:
    """Draw one token a row and give its natural log-probability under its temperature.

    temperatures: 0 takes the best token, and its log-probability under temperature 1. uniform: in [0, 1); the token is
    where the cumulated distribution, in float64, passes it. Raises ModelError where logits are not finite.
    """
    divisor = torch.tensor([temperature or 1.0 for temperature in temperatures], device=logits.device)
    logprobs = torch.log_softmax(logits.float() / divisor[:, None], dim=-1)
    tokens = _invert(logprobs, torch.from_numpy(uniform).to(logits.device))
    if 0 in temperatures:
        greedy = torch.tensor([temperature == 0 for temperature in temperatures], device=logits.device)
        tokens = torch.where(greedy, logprobs.argmax(dim=-1), tokens)
    return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)


def _invert(logprobs: Float[Tensor, "turns vocab"], uniform: Float[Tensor, "turns"]) -> Int[Tensor, "turns"]:
    """The first token whose cumulated probability is above `uniform`, found by blocks of tokens: cumulating blocks, and
    then one block's tokens, takes a tenth of the time of cumulating the vocabulary."""
    padding = -logprobs.shape[-1] % BLOCK
    probabilities = F.pad(logprobs.exp(), (0, padding)).double()
    blocks = probabilities.view(len(probabilities), -1, BLOCK)
    cumulated = blocks.sum(-1).cumsum_(-1)
    total = cumulated[:, -1:]
    if not torch.isfinite(total).all():
        raise ModelError("the model's logits are not finite: its weights have diverged (lower the learning rate)")
    target = uniform[:, None] * total
    block = torch.searchsorted(cumulated, target, right=True)
    before = F.pad(cumulated, (1, 0)).gather(-1, block)
    inside = blocks[torch.arange(len(block), device=block.device), block[:, 0]].cumsum_(-1)
    # the block's tokens were added up in another order: stay below their sum, so that the last one possible is the last
    rest = torch.minimum(target - before, torch.nextafter(inside[:, -1:], torch.zeros_like(total)))
    return (block * BLOCK + torch.searchsorted(inside, rest, right=True)).squeeze(-1)


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
