"""The golden values of the objectives, one token or one trajectory at a time, and what gradients may flow through."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from etude.learning.losses import LossConfig, LossInputs, LossStats, loss_preset, policy_loss, token_weights

NAN = float("nan")


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def run(
    config: LossConfig, logp: list[float], advantages: list[float], **fields: Any
) -> tuple[Tensor, Tensor, LossStats]:
    """(per-token sum, gradient, statistics) with weights of 1, behaviour log-probabilities of -1 unless given."""
    now = tensor(logp).requires_grad_()
    count = len(logp)
    values = {"logp_rollout": [-1.0] * count, "weights": [1.0] * count} | fields
    ids = {name: torch.tensor(values.pop(name, [0] * count)) for name in ("trajectory", "row")}
    mask = torch.tensor(values.pop("mask", [True] * count))
    floats = {name: tensor(value) for name, value in values.items()}
    loss, stats = policy_loss(now, LossInputs(advantages=tensor(advantages), mask=mask, **ids, **floats), config)
    (gradient,) = torch.autograd.grad(loss, now)
    return loss.detach(), gradient, stats


def at_ratio(config: LossConfig, ratio: float, advantage: float) -> tuple[float, float, LossStats]:
    loss, gradient, stats = run(config, [-1.0 + math.log(ratio)], [advantage])
    return loss.item(), gradient.item(), stats


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "gradient"),
    [
        (1.0, 1.5, -1.28, 0.0),
        (-1.0, 0.5, 0.8, 0.0),
        (-1.0, 5.0, 3.0, 0.0),
        (1.0, 0.5, -0.5, -0.5),
        (-1.0, 2.0, 2.0, 2.0),
        (2.0, 1.0, -2.0, -2.0),
    ],
)
def test_clip(advantage: float, ratio: float, loss: float, gradient: float) -> None:
    assert at_ratio(LossConfig(), ratio, advantage)[:2] == pytest.approx((loss, gradient))


def test_without_the_dual_clip_a_large_ratio_counts_in_full() -> None:
    assert at_ratio(LossConfig(dual_clip=None), 5.0, -1.0)[:2] == pytest.approx((5.0, 5.0))


def test_clip_statistics() -> None:
    logp = [-1 + math.log(ratio) for ratio in (1.5, 0.5, 5.0, 0.5, 1.5, 1.0)]
    _, _, stats = run(LossConfig(), logp, [1.0, -1.0, -1.0, 1.0, 0.0, 1.0])
    assert (stats.tokens, stats.clipped_low, stats.clipped_high) == (6, 1, 2)
    assert stats.ratio.item() == pytest.approx(10.0)
    assert stats.ratio_max.item() == pytest.approx(5.0)


def test_cispo_caps_the_weight_and_keeps_the_gradient() -> None:
    config = loss_preset("cispo")
    logp = -1.0 + math.log(9.0)
    assert at_ratio(config, 9.0, 2.0)[:2] == pytest.approx((-5 * 2 * logp, -5 * 2))
    assert at_ratio(config, 2.0, -1.0)[:2] == pytest.approx((2 * (-1.0 + math.log(2)), 2.0))


def test_reinforce_ignores_the_ratio() -> None:
    assert at_ratio(loss_preset("reinforce"), 3.0, 2.0)[:2] == pytest.approx((-2 * (-1 + math.log(3)), -2.0))


def test_gspo_uses_the_mean_over_the_trajectory_and_all_its_rows() -> None:
    config = loss_preset("gspo", clip_low=0.2, clip_high=0.28)
    logp, ids = [-0.8, -1.3, -0.9, -1.0], [7, 3, 7, 7]  # of trajectory 7: +0.2, +0.1, 0 -> mean 0.1
    loss, gradient, stats = run(config, logp, [1.0, -1.0, 1.0, 1.0], trajectory=ids, row=[0, 1, 2, 2])
    s7, s3 = math.exp(0.1), math.exp(-0.3)
    assert loss.item() == pytest.approx(-3 * s7 + 0.8)
    assert gradient.tolist() == pytest.approx([-s7, 0.0, -s7, -s7])
    assert (stats.clipped_low, stats.clipped_high) == (1, 0)
    assert s3 < 0.8


def test_gspo_clips_at_the_published_width() -> None:
    assert at_ratio(loss_preset("gspo"), math.exp(0.01), 1.0)[:2] == pytest.approx((-1.0004, 0.0))
    assert at_ratio(loss_preset("gspo"), math.exp(-0.01), -1.0)[:2] == pytest.approx((0.9997, 0.0))


@pytest.mark.parametrize(("kind", "value", "slope"), [("k1", 0.5, 1.0), ("k2", 0.125, 0.5), ("k3", 0.106531, 0.393469)])
def test_kl(kind: Any, value: float, slope: float) -> None:
    config = LossConfig(kl=kind, kl_coefficient=0.1)
    loss, gradient, stats = run(config, [-1.0], [0.0], logp_ref=[-1.5])
    assert loss.item() == pytest.approx(0.1 * value, rel=1e-5)
    assert gradient.item() == pytest.approx(0.1 * slope, rel=1e-5)
    assert stats.reference_kl.item() == pytest.approx(value, rel=1e-5)


def test_kl_of_behaviour_against_now() -> None:
    _, _, stats = run(LossConfig(), [-1.5, -1.0], [1.0, 1.0])
    assert stats.behaviour_k1.item() == pytest.approx(0.5)
    assert stats.behaviour_k3.item() == pytest.approx(math.exp(-0.5) + 0.5 - 1)


def test_k3_keeps_its_digits_in_float32() -> None:
    now = torch.tensor([-1.0], requires_grad=True)
    zeros = torch.zeros(1)
    ids = torch.zeros(1, dtype=torch.int64)
    inputs = LossInputs(torch.tensor([-1.0]), zeros, torch.ones(1), ids, ids, logp_ref=torch.tensor([-1.0009765625]))
    loss, _ = policy_loss(now, inputs, LossConfig(kl="k3", kl_coefficient=1.0))
    assert loss.item() == pytest.approx(math.exp(-(2.0**-10)) + 2.0**-10 - 1, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "log_weight", "weight"),
    [
        ("tis", 0.5, math.exp(0.5)),
        ("tis", 3.0, 2.0),
        ("tis", -3.0, math.exp(-3)),
        ("icepop", 1.6, math.exp(1.6)),
        ("icepop", 1.62, 0.0),
        ("icepop", -0.7, 0.0),
        ("seq_mask", 0.0019, 1.0),
        ("seq_mask", 0.0021, 0.0),
        ("seq_mask", -0.0009, 1.0),
        ("seq_mask", -0.0011, 0.0),
    ],
)
def test_behaviour_weights(kind: Any, log_weight: float, weight: float) -> None:
    config = LossConfig(anchor="old", behaviour=kind)
    loss, gradient, stats = run(config, [-1.0], [1.0], logp_old=[-1.0], logp_rollout=[-1.0 - log_weight])
    assert loss.item() == pytest.approx(-weight)
    assert gradient.item() == pytest.approx(-weight)
    assert stats.rejected.item() == (weight == 0.0)


def test_the_sequence_mask_is_decided_for_each_row() -> None:
    config = LossConfig(anchor="old", behaviour="seq_mask")
    rollout = [-1.3, -0.7, -1.0, -1.01]  # row 4 is off by +0.3 and -0.3: its mean is kept; row 2's is 0.005
    loss, _, stats = run(config, [-1.0] * 4, [1.0] * 4, logp_old=[-1.0] * 4, logp_rollout=rollout, row=[4, 4, 2, 2])
    assert loss.item() == pytest.approx(-2.0)
    assert stats.rejected.item() == 2


def test_rejected_tokens_are_still_held_to_the_reference() -> None:
    config = LossConfig(anchor="old", behaviour="icepop", kl="k2", kl_coefficient=1.0)
    loss, gradient, _ = run(config, [-1.0], [1.0], logp_old=[-1.0], logp_rollout=[-9.0], logp_ref=[-1.5])
    assert (loss.item(), gradient.item()) == pytest.approx((0.125, 0.5))


def test_an_infinite_ratio_leaves_a_clipped_gradient_of_zero() -> None:
    assert at_ratio(LossConfig(), 1e300, -1.0)[:2] == pytest.approx((3.0, 0.0))
    assert run(LossConfig(), [-1.0], [1.0], logp_rollout=[-2000.0])[:2] == (tensor(-1.28), tensor([0.0]))


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token", [0.1, 0.1, 0.1]), ("row", [1 / 18, 1 / 9, 1 / 3]), ("constant", [1 / 60] * 3)],
)
def test_weights(aggregation: Any, expected: list[float]) -> None:
    config = LossConfig(aggregation=aggregation, max_completion_tokens=20)
    np.testing.assert_allclose(token_weights([6, 3, 1], config), expected)


def test_weights_need_action_tokens() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        token_weights([], LossConfig())
    with pytest.raises(ValueError, match="at least one action token"):
        token_weights([3, 0], LossConfig())


PRESETS = [
    LossConfig(),
    loss_preset("grpo", kl="k3", kl_coefficient=0.1),
    loss_preset("gspo", anchor="old", behaviour="seq_mask", seq_mask_low=0.1, seq_mask_high=9.0),
    loss_preset("cispo", anchor="old", behaviour="icepop", kl="k1", kl_coefficient=0.1),
    loss_preset("reinforce", anchor="old", behaviour="tis"),
    loss_preset("gspo", surrogate="cispo", kl="k2", kl_coefficient=0.1),
]


@pytest.mark.parametrize("config", PRESETS, ids=lambda config: f"{config.ratio}-{config.surrogate}-{config.behaviour}")
def test_nan_in_a_masked_place_does_not_leak(config: LossConfig) -> None:
    clean = {"logp_rollout": [-1.1, -0.9], "logp_old": [-1.0, -1.0], "logp_ref": [-1.2, -1.1], "weights": [0.5, 0.5]}
    loss, gradient, stats = run(config, [-0.95, -1.05], [1.0, -1.0], **clean)
    dirty = {name: [values[0], NAN, values[1]] for name, values in clean.items()}
    loss_dirty, gradient_dirty, stats_dirty = run(
        config, [-0.95, NAN, -1.05], [1.0, NAN, -1.0], mask=[True, False, True], **dirty
    )
    assert loss_dirty == loss
    assert gradient_dirty.tolist() == [gradient[0], 0.0, gradient[1]]
    for name in LossStats.__dataclass_fields__:
        assert getattr(stats_dirty, name) == getattr(stats, name), name


def test_a_loss_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="needs logp_ref"):
        run(LossConfig(kl="k3", kl_coefficient=0.1), [-1.0], [1.0])
    with pytest.raises(ValueError, match="needs logp_old"):
        run(LossConfig(anchor="old"), [-1.0], [1.0])
