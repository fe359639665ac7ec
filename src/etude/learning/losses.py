"""Policy-gradient losses: pure functions of one-dimensional tensors over the action tokens of a micro-batch.

Every loss is a sum of w_i * l_i, with weights w that `token_weights` fixes once over the global batch. So the sum over
micro-batches (and over ranks) is the loss of the batch, however it was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from etude.learning.config import LossConfig, loss_preset

__all__ = ["LossConfig", "LossInputs", "LossStats", "loss_preset", "policy_loss", "token_weights"]

# e^20 is far outside every clip; beyond it an infinite ratio would turn a clipped gradient of 0 into 0 * inf = NaN.
_LOG_LIMIT = 20.0


def token_weights(action_counts: Sequence[int], config: LossConfig) -> NDArray[np.float64]:
    """The weight of each row's action tokens in the loss, shape [rows]; all action tokens of a row weigh the same.

    action_counts: action tokens of *every* row of the global batch: groups without variance included, before tokens
    are rejected and before rows are cut into micro-batches.

    "token": 1 / all action tokens (DAPO). "row": 1 / (rows * the row's action tokens) (GRPO).
    "constant": 1 / (rows * config.max_completion_tokens) (Dr.GRPO).
    """
    counts = np.asarray(action_counts, dtype=np.int64)
    if len(counts) == 0 or counts.min() < 1:
        raise ValueError("token weights need at least one row, and in each row at least one action token")
    if config.aggregation == "token":
        return np.full(len(counts), 1.0 / counts.sum())
    if config.aggregation == "row":
        return 1.0 / (len(counts) * counts)
    if config.max_completion_tokens is None:
        raise ValueError("aggregation 'constant' without max_completion_tokens; LossConfig refuses that")
    return np.full(len(counts), 1.0 / (len(counts) * config.max_completion_tokens))


@dataclass(frozen=True, slots=True, eq=False)
class LossInputs:
    """What the loss knows besides the current log-probabilities: constants, one for each action token.

    logp_rollout, logp_old, logp_ref: natural logs by the engine when it sampled, by the learner before the first
    update (needed with anchor "old") and by the reference policy (needed with a KL). advantages. weights: from
    `token_weights`. trajectory, row: equal ids where tokens belong together; any integers. mask: false where the
    token is to be ignored, whatever its other values are (None: none is).
    """

    logp_rollout: Float[Tensor, "actions"]
    advantages: Float[Tensor, "actions"]
    weights: Float[Tensor, "actions"]
    trajectory: Int[Tensor, "actions"]
    row: Int[Tensor, "actions"]
    logp_old: Float[Tensor, "actions"] | None = None
    logp_ref: Float[Tensor, "actions"] | None = None
    mask: Bool[Tensor, "actions"] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LossStats:
    """Sums over tokens, detached, float64 and on the loss's device; add them up over micro-batches.

    clipped_low, clipped_high: tokens whose gradient the clip (or CISPO's cap) cut, by the side of the ratio.
    behaviour_k1, behaviour_k3: estimators of KL(behaviour || now), from the engine's log-probabilities.
    reference_kl: the penalty's estimator, before its coefficient. rejected: tokens that the behaviour weight took out
    of the policy term. entropy: 0 where it was not measured. ratio_max is a maximum, not a sum.
    """

    tokens: Float[Tensor, ""]
    ratio: Float[Tensor, ""]
    ratio_max: Float[Tensor, ""]
    clipped_low: Float[Tensor, ""]
    clipped_high: Float[Tensor, ""]
    behaviour_k1: Float[Tensor, ""]
    behaviour_k3: Float[Tensor, ""]
    reference_kl: Float[Tensor, ""]
    rejected: Float[Tensor, ""]
    entropy: Float[Tensor, ""]

    def __add__(self, other: LossStats) -> LossStats:
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__}
        return LossStats(**{**sums, "ratio_max": torch.maximum(self.ratio_max, other.ratio_max)})


def policy_loss(
    logp: Float[Tensor, "actions"],
    inputs: LossInputs,
    config: LossConfig,
    entropy: Float[Tensor, "actions"] | None = None,
) -> tuple[Float[Tensor, ""], LossStats]:
    """The loss of a micro-batch (a weighted sum, to be added over micro-batches) and its statistics.

    logp: natural log-probabilities now, the only thing that gradients flow through. With ratio "sequence" the
    micro-batch must hold all rows of each of its trajectories. entropy: only counted.

    Raises ValueError where the settings need logp_old or logp_ref and it was not given.
    """
    mask = torch.ones_like(logp, dtype=torch.bool) if inputs.mask is None else inputs.mask

    def kept(values: Tensor | None, name: str) -> Tensor:
        if values is None:
            raise ValueError(f"this loss needs {name}: {config}")
        return torch.where(mask, values, 0.0)  # not a product: 0 * NaN is NaN

    logp = kept(logp, "logp")
    rollout = kept(inputs.logp_rollout, "logp_rollout")
    anchor = rollout if config.anchor == "rollout" else kept(inputs.logp_old, "logp_old")
    advantages = kept(inputs.advantages, "advantages")

    log_ratio = logp - anchor
    if config.ratio == "sequence":
        log_ratio = _segment_means(log_ratio, inputs.trajectory, mask)
    ratio = log_ratio.clamp(-_LOG_LIMIT, _LOG_LIMIT).exp()

    per_token, low, high = _surrogate(logp, ratio, advantages, config)
    rejected = torch.zeros_like(mask)
    if config.behaviour != "none":
        weight, rejected = _behaviour_weight(anchor - rollout, inputs.row, mask, config)
        per_token = torch.where(rejected, 0.0, weight * per_token)
    reference_kl = torch.zeros_like(logp)
    if config.kl != "none":
        reference_kl = _kl_penalty(logp - kept(inputs.logp_ref, "logp_ref"), config)
        per_token = per_token + config.kl_coefficient * reference_kl
    loss = (kept(inputs.weights, "weights") * per_token).sum()

    def total(values: Tensor) -> Tensor:
        return torch.where(mask, values.detach(), 0).sum(dtype=torch.float64)

    moved = (logp - rollout).detach()
    stats = LossStats(
        tokens=total(mask),
        ratio=total(ratio),
        ratio_max=torch.where(mask, ratio.detach(), 0.0).max().double(),
        clipped_low=total(low),
        clipped_high=total(high),
        behaviour_k1=total(-moved),
        behaviour_k3=total(_k3(moved)),
        reference_kl=total(reference_kl),
        rejected=total(rejected),
        entropy=total(torch.zeros_like(logp) if entropy is None else entropy),
    )
    return loss, stats


def _surrogate(
    logp: Float[Tensor, "actions"],
    ratio: Float[Tensor, "actions"],
    advantages: Float[Tensor, "actions"],
    config: LossConfig,
) -> tuple[Float[Tensor, "actions"], Bool[Tensor, "actions"], Bool[Tensor, "actions"]]:
    """Loss of each token, and where the ratio was cut from below and from above."""
    never = torch.zeros_like(ratio, dtype=torch.bool)
    if config.surrogate == "reinforce":
        return -advantages * logp, never, never
    if config.surrogate == "cispo":
        cap = 1 + config.cispo_high
        cut = (ratio > cap) & (advantages != 0)
        return -ratio.detach().clamp(max=cap) * advantages * logp, never, cut

    lower, upper = 1 - config.clip_low, 1 + config.clip_high
    per_token = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(lower, upper))
    low = (advantages < 0) & (ratio < lower)
    high = (advantages > 0) & (ratio > upper)
    if config.dual_clip is not None:
        negative = advantages < 0
        bounded = torch.minimum(per_token, -advantages * config.dual_clip)
        per_token = torch.where(negative, bounded, per_token)
        high = high | (negative & (ratio > config.dual_clip))
    return per_token, low, high


def _behaviour_weight(
    log_weight: Float[Tensor, "actions"], row: Int[Tensor, "actions"], mask: Bool[Tensor, "actions"], config: LossConfig
) -> tuple[Float[Tensor, "actions"], Bool[Tensor, "actions"]]:
    """The weight of each token's policy term, from logp_old - logp_rollout, and which tokens it rejects."""
    log_weight = log_weight.detach().clamp(-_LOG_LIMIT, _LOG_LIMIT)
    weight = log_weight.exp()
    if config.behaviour == "tis":
        return weight.clamp(max=config.tis_cap), torch.zeros_like(mask)
    if config.behaviour == "icepop":
        return weight, mask & ((weight < config.icepop_low) | (weight > config.icepop_high))
    row_weight = _segment_means(log_weight, row, mask).exp()
    rejected = mask & ((row_weight < config.seq_mask_low) | (row_weight > config.seq_mask_high))
    return torch.ones_like(weight), rejected


def _kl_penalty(difference: Float[Tensor, "actions"], config: LossConfig) -> Float[Tensor, "actions"]:
    """The estimator of KL(now || reference) from logp - logp_ref."""
    if config.kl == "k1":
        return difference
    if config.kl == "k2":
        return difference.square() / 2
    return _k3(-difference)


def _k3(difference: Float[Tensor, "actions"]) -> Float[Tensor, "actions"]:
    """exp(d) - d - 1, through expm1: near 0 the plain form loses all its digits in float32."""
    difference = difference.clamp(-_LOG_LIMIT, _LOG_LIMIT)
    return torch.expm1(difference) - difference


def _segment_means(
    values: Float[Tensor, "actions"], segments: Int[Tensor, "actions"], mask: Bool[Tensor, "actions"]
) -> Float[Tensor, "actions"]:
    """At each token the mean over the unmasked tokens of its segment; differentiable. Masked values must be finite."""
    ids, index = torch.unique(segments, return_inverse=True)
    sums = values.new_zeros(len(ids)).index_add(0, index, torch.where(mask, values, 0.0))
    counts = values.new_zeros(len(ids)).index_add(0, index, mask.to(values.dtype))
    return (sums / counts.clamp(min=1.0))[index]
