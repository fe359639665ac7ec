"""Which traces are in which step: similar lengths, about as many tokens, in an order that seed and epoch decide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

POOL = 8192  # traces that are sorted by length together
GRAIN = 32  # lengths are rounded up to multiples of it, so that few shapes occur


def epoch_batches(lengths: NDArray[np.int32], tokens_per_batch: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Indices of traces, each once: batches of at most tokens_per_batch tokens, padding included (or of one trace)."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        cut = _cut(pool[np.argsort(lengths[pool], kind="stable")], lengths, tokens_per_batch)
        batches += [cut[index] for index in rng.permutation(len(cut))]
    return batches


def padded_length(longest: int) -> int:
    return -(-longest // GRAIN) * GRAIN


def _cut(ascending: NDArray[np.int64], lengths: NDArray[np.int32], tokens_per_batch: int) -> list[NDArray[np.int64]]:
    """From the longest down, so that only the batch of the shortest is small."""
    batches = []
    end = len(ascending)
    while end:
        rows = max(1, tokens_per_batch // padded_length(int(lengths[ascending[end - 1]])))
        batches.append(ascending[max(0, end - rows) : end])
        end = max(0, end - rows)
    return batches
