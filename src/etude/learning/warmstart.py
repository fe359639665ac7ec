"""Supervised warm start: traces of a good policy, as rows, and the loss that imitates them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from etude.learning.rows import TrainingRow

Tokens = Sequence[int] | NDArray[np.int32]
Mask = Sequence[bool] | NDArray[np.bool_]


def trace_rows(traces: Iterable[tuple[Tokens, Mask]]) -> list[TrainingRow]:
    """A row for each trace: its tokens, and true for those to be imitated (assistant turns, stop tokens included).

    No engine sampled them, so their logp_rollout is NaN and reinforcement refuses them. Raises ValueError as
    `TrainingRow` does, the trace's index being the row's trajectory.
    """
    return [
        TrainingRow(
            tokens=np.asarray(tokens, dtype=np.int32),
            action_mask=np.asarray(mask, dtype=np.bool_),
            logp_rollout=np.full(len(tokens), np.nan, dtype=np.float32),
            advantage=0.0,
            trajectory=index,
        )
        for index, (tokens, mask) in enumerate(traces)
    ]


def sft_loss(logp: Float[Tensor, "actions"], weights: Float[Tensor, "actions"]) -> Float[Tensor, ""]:
    """Cross-entropy: the weighted sum of -logp. With weights of 1 / (action tokens of the batch) it is their mean."""
    return -(weights * logp).sum()
