"""The sampler is a pure function of the ticket's number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.environment.scenario import Scenario
from etude.rollout.sampler import EpochSampler


def scenarios(count: int) -> list[Scenario]:
    return [Scenario(f"s{index}", "train", {}) for index in range(count)]


@given(st.integers(1, 20), st.integers(0, 5), st.integers(0, 1000))
def test_every_epoch_draws_every_scenario_once(count: int, epoch: int, seed: int) -> None:
    sampler = EpochSampler(scenarios(count), seed)
    drawn = [sampler(epoch * count + index).id for index in range(count)]
    assert sorted(drawn) == sorted(scenario.id for scenario in scenarios(count))


@given(st.lists(st.integers(0, 60), min_size=1))
def test_the_order_of_asking_does_not_matter(numbers: list[int]) -> None:
    one, other = EpochSampler(scenarios(7), 3), EpochSampler(scenarios(7), 3)
    expected = {number: one(number).id for number in sorted(numbers)}
    assert {number: other(number).id for number in numbers} == expected


def test_epochs_differ_and_seeds_differ() -> None:
    sampler = EpochSampler(scenarios(30), 0)
    first, second = [[sampler(epoch * 30 + i).id for i in range(30)] for epoch in (0, 1)]
    assert first != second
    assert [EpochSampler(scenarios(30), 1)(i).id for i in range(30)] != first


def test_no_scenarios_are_refused() -> None:
    with pytest.raises(ValueError, match="no scenarios"):
        EpochSampler([], 0)
