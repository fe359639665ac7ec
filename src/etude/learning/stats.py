"""What a step of the learner reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from etude.learning.losses import LossStats


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What an optimizer step did.

    version: after it. loss, grad_norm (before clipping): means over the batch's updates. rows: given; trained_rows:
    those that could change the weights (the others have advantage 0, and no KL to answer for). tokens, action_tokens,
    micro_batches: of the trained rows.
    """

    version: int
    loss: float
    grad_norm: float
    learning_rate: float
    rows: int
    trained_rows: int
    tokens: int
    action_tokens: int
    micro_batches: int

    def metrics(self) -> dict[str, float]:
        """Every field that was measured, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class StepStats(UpdateStats):
    """And how the policy moved: means over the trained rows' action tokens and the batch's updates, and two maxima.

    clip_low, clip_high, rejected: shares of tokens, see `LossStats`. behaviour_k1, behaviour_k3: KL(behaviour || now).
    gap_mean, gap_max: |learner's log-probability - engine's| before the first update, over the tokens that the current
    version sampled: what the two forward passes differ by, and nothing else. Each is None where it was not measured.
    """

    ratio_mean: float | None = None
    ratio_max: float | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    behaviour_k1: float | None = None
    behaviour_k3: float | None = None
    reference_kl: float | None = None
    rejected: float | None = None
    entropy: float | None = None
    gap_mean: float | None = None
    gap_max: float | None = None


def policy_stats(parts: Sequence[LossStats], gaps: Sequence[Tensor], *, entropy: bool, kl: bool) -> dict[str, Any]:
    """What `StepStats` adds, from the sums of all micro-batches and updates. entropy, kl: whether measured."""
    fields: dict[str, Any] = {}
    if parts:
        total = reduce(add, parts)
        tokens = total.tokens.item()
        sums = {"ratio_mean": total.ratio, "clip_low": total.clipped_low, "clip_high": total.clipped_high,
                "behaviour_k1": total.behaviour_k1, "behaviour_k3": total.behaviour_k3, "rejected": total.rejected,
                "reference_kl": total.reference_kl if kl else None,
                "entropy": total.entropy if entropy else None}  # fmt: skip
        fields = {name: value.item() / tokens for name, value in sums.items() if value is not None}
        fields["ratio_max"] = total.ratio_max.item()
    if gaps and (gap := torch.cat(list(gaps))).numel():
        fields |= {"gap_mean": gap.mean().item(), "gap_max": gap.max().item()}
    return fields
