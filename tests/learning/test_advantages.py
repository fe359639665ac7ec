"""Group advantages: the golden values of the design, and what a group cannot teach."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import ConfigError
from etude.learning.advantages import AdvantageKind, group_advantages, has_variance

KINDS: tuple[AdvantageKind, ...] = ("mean", "grpo", "rloo")
rewards_lists = st.lists(st.floats(-10, 10).map(lambda value: round(value, 3)), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("mean", (0.25, -0.75)), ("grpo", (0.5, -1.5)), ("rloo", (1 / 3, -1.0))],
)
def test_golden_values(kind: AdvantageKind, expected: tuple[float, float]) -> None:
    good, bad = expected
    np.testing.assert_allclose(group_advantages([1, 1, 1, 0], kind), [good, good, good, bad], rtol=3e-6)


def test_mean_centred_is_the_default() -> None:
    np.testing.assert_array_equal(group_advantages([1.0, 0.0]), [0.5, -0.5])


def test_the_population_deviation_is_not_used() -> None:
    population = 0.25 / np.std([1, 1, 1, 0])  # 0.577
    assert group_advantages([1, 1, 1, 0], "grpo")[0] == pytest.approx(0.5, abs=1e-5) != pytest.approx(population)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rewards", [[0.7], [0.1, 0.1, 0.1], [-3.3] * 7, []])
def test_one_or_equal_rewards_give_exact_zeros(kind: AdvantageKind, rewards: list[float]) -> None:
    assert group_advantages(rewards, kind).tolist() == [0.0] * len(rewards)
    assert not has_variance(rewards)


@given(rewards_lists)
def test_twin(rewards: list[float]) -> None:
    """The textbook formulas, one rollout at a time."""
    mean = sum(rewards) / len(rewards)
    for index, reward in enumerate(rewards):
        others = rewards[:index] + rewards[index + 1 :]
        assert group_advantages(rewards, "mean")[index] == pytest.approx(reward - mean, abs=1e-9)
        if others:
            assert group_advantages(rewards, "rloo")[index] == pytest.approx(reward - statistics.mean(others), abs=1e-9)
            scaled = (reward - mean) / (statistics.stdev(rewards) + 1e-6)
            assert group_advantages(rewards, "grpo")[index] == pytest.approx(scaled, rel=1e-6, abs=1e-6)


@given(rewards_lists, st.sampled_from(KINDS), st.floats(-100, 100))
def test_a_constant_added_to_every_reward_changes_nothing(rewards: list[float], kind: AdvantageKind, by: float) -> None:
    moved = group_advantages([reward + by for reward in rewards], kind)
    assert moved.dtype == np.float64
    np.testing.assert_allclose(moved, group_advantages(rewards, kind), atol=1e-6)
    assert abs(moved.sum()) < 1e-9


@given(rewards_lists, st.floats(0, 5))
def test_variance_is_a_spread_above_the_tolerance(rewards: list[float], tolerance: float) -> None:
    assert has_variance(rewards, tolerance) == (max(rewards) - min(rewards) > tolerance)


@pytest.mark.parametrize("bad", [None, "1", True])
def test_what_is_not_a_number_is_refused(bad: object) -> None:
    with pytest.raises(TypeError, match=r"reward 1 is .* not a number"):
        group_advantages([1.0, bad])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="reward 1"):
        has_variance([1.0, bad])  # type: ignore[list-item]


def test_nan_and_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="reward 0 is nan"):
        group_advantages([float("nan"), 1.0])
    with pytest.raises(ConfigError, match="mean, grpo, rloo"):
        group_advantages([1.0, 0.0], "median")  # type: ignore[arg-type]
