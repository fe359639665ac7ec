"""The same losses as plain Python loops over floats, for every combination of axes, with derivatives by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learning.config import Anchor, BehaviourWeight, KLEstimator, RatioLevel, Surrogate
from etude.learning.losses import LossConfig, LossInputs, LossStats, policy_loss


def segment_mean(values: Sequence[float], ids: Sequence[int], index: int) -> float:
    members = [value for value, name in zip(values, ids, strict=True) if name == ids[index]]
    return sum(members) / len(members)


def twin(data: dict[str, list[Any]], config: LossConfig) -> tuple[float, list[float]]:
    """The loss, and its derivative by each token's logp."""
    count = len(data["logp"])
    anchor = data["logp_rollout"] if config.anchor == "rollout" else data["logp_old"]
    moved = [now - then for now, then in zip(data["logp"], anchor, strict=True)]
    corrections = [old - rollout for old, rollout in zip(data["logp_old"], data["logp_rollout"], strict=True)]
    loss, slopes = 0.0, [0.0] * count
    for i in range(count):
        advantage, weight = data["advantages"][i], data["weights"][i]
        by_sequence = config.ratio == "sequence"
        ratio = math.exp(segment_mean(moved, data["trajectory"], i) if by_sequence else moved[i])
        through_ratio, through_logp = 0.0, 0.0  # d value / d ratio, d value / d logp_i
        if config.surrogate == "reinforce":
            value, through_logp = -advantage * data["logp"][i], -advantage
        elif config.surrogate == "cispo":
            capped = min(ratio, 1 + config.cispo_high)
            value, through_logp = -capped * advantage * data["logp"][i], -capped * advantage
        else:
            plain = -advantage * ratio
            clipped = -advantage * min(max(ratio, 1 - config.clip_low), 1 + config.clip_high)
            value = max(plain, clipped)
            through_ratio = -advantage if value == plain else 0.0
            if advantage < 0 and config.dual_clip is not None and value > -advantage * config.dual_clip:
                value, through_ratio = -advantage * config.dual_clip, 0.0

        behaviour = {
            "none": lambda i: 1.0,
            "tis": lambda i: min(math.exp(corrections[i]), config.tis_cap),
            "icepop": lambda i: (
                math.exp(corrections[i]) if config.icepop_low <= math.exp(corrections[i]) <= config.icepop_high else 0.0
            ),
            "seq_mask": lambda i: float(
                config.seq_mask_low <= math.exp(segment_mean(corrections, data["row"], i)) <= config.seq_mask_high
            ),
        }[config.behaviour](i)
        loss += weight * behaviour * value
        slopes[i] += weight * behaviour * through_logp
        same = [j for j in range(count) if data["trajectory"][j] == data["trajectory"][i]] if by_sequence else [i]
        for j in same:
            slopes[j] += weight * behaviour * through_ratio * ratio / len(same)

        difference = data["logp"][i] - data["logp_ref"][i]
        kl, slope = {
            "none": (0.0, 0.0),
            "k1": (difference, 1.0),
            "k2": (difference**2 / 2, difference),
            "k3": (math.exp(-difference) + difference - 1, 1 - math.exp(-difference)),
        }[config.kl]
        loss += weight * config.kl_coefficient * kl
        slopes[i] += weight * config.kl_coefficient * slope
    return loss, slopes


@st.composite
def configs(draw: st.DrawFn) -> LossConfig:
    kl = draw(st.sampled_from(get_args(KLEstimator)))
    anchor = draw(st.sampled_from(get_args(Anchor)))
    surrogate = draw(st.sampled_from(get_args(Surrogate)))
    return LossConfig(
        ratio=draw(st.sampled_from(["token"] if surrogate == "reinforce" else get_args(RatioLevel))),
        surrogate=surrogate,
        dual_clip=draw(st.sampled_from([None, 1.5])),
        cispo_high=draw(st.sampled_from([0.2, 4.0])),
        anchor=anchor,
        behaviour=draw(st.sampled_from(get_args(BehaviourWeight))) if anchor == "old" else "none",
        tis_cap=1.2,
        seq_mask_low=0.8,
        seq_mask_high=1.2,
        kl=kl,
        kl_coefficient=0.0 if kl == "none" else 0.3,
    )


def draw_data(seed: int) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 12))
    names = ("logp", "logp_rollout", "logp_old", "logp_ref")
    base = -random.exponential(1.0, count)
    data = {name: (base + 0.4 * random.standard_normal(count)).tolist() for name in names}
    data["advantages"] = random.choice([-1.5, -0.5, 0.0, 0.7, 2.0], count).tolist()
    data["weights"] = random.uniform(0.1, 1.0, count).tolist()
    data["row"] = sorted(random.integers(0, 4, count).tolist())
    data["trajectory"] = [10 + row // 2 for row in data["row"]]
    return data


def inputs_of(data: dict[str, list[Any]], keep: slice = slice(None)) -> tuple[torch.Tensor, LossInputs]:
    floats = {name: torch.tensor(values[keep], dtype=torch.float64) for name, values in data.items()}
    ids = {name: torch.tensor(data[name][keep]) for name in ("row", "trajectory")}
    fields = {name: value for name, value in {**floats, **ids}.items() if name != "logp"}
    return floats["logp"].requires_grad_(), LossInputs(**fields)


@settings(max_examples=200, deadline=None)
@given(configs(), st.integers(0, 2**32))
def test_every_combination_of_axes_equals_its_twin(config: LossConfig, seed: int) -> None:
    data = draw_data(seed)
    logp, inputs = inputs_of(data)
    loss, _ = policy_loss(logp, inputs, config)
    (gradient,) = torch.autograd.grad(loss, logp)
    expected, slopes = twin(data, config)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert gradient.tolist() == pytest.approx(slopes, rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(configs(), st.integers(0, 2**32))
def test_losses_and_statistics_of_parts_add_up(config: LossConfig, seed: int) -> None:
    """Cut between two trajectories: what any packing may do."""
    data = draw_data(seed)
    cut = next((i for i, name in enumerate(data["trajectory"]) if name != data["trajectory"][0]), None)
    if cut is None:
        return
    whole, whole_stats = policy_loss(*inputs_of(data), config)
    first, first_stats = policy_loss(*inputs_of(data, slice(0, cut)), config)
    second, second_stats = policy_loss(*inputs_of(data, slice(cut, None)), config)
    assert (first + second).item() == pytest.approx(whole.item(), rel=1e-9, abs=1e-9)
    total = first_stats + second_stats
    for name in LossStats.__dataclass_fields__:
        assert getattr(total, name).item() == pytest.approx(getattr(whole_stats, name).item(), rel=1e-9, abs=1e-9), name
