"""What an evaluation says: intervals over scenarios, pass@k over attempts, faults missing rather than 0."""

from __future__ import annotations

import pytest
from support.rollouts import group, rollout

from etude.evaluation.run_eval import intervals, pass_figures, success
from etude.evaluation.statistics import wilson_interval


def attempt(correct: float | None) -> object:
    return rollout(correct, metrics={} if correct is None else {"answer_correct": correct})


def test_success_is_the_metric_then_the_score_then_unknown() -> None:
    assert success(rollout(0.3, metrics={"answer_correct": 1.0}, scores={"correct": 0.0})) is True
    assert success(rollout(0.3, scores={"correct": 0.5})) is False
    assert success(rollout(0.3)) is None


def test_one_attempt_of_zeros_and_ones_has_wilsons_interval() -> None:
    groups = [group(attempt(float(n < 3)), number=n) for n in range(10)]  # type: ignore[arg-type]
    assert intervals(groups, seed=0)["metric/answer_correct"] == wilson_interval(3, 10)


def test_attempts_at_one_scenario_are_one_observation() -> None:
    groups = [group(*[attempt(float(n % 2)) for _ in range(50)], number=n) for n in range(4)]  # type: ignore[misc]
    interval = intervals(groups, seed=0)["metric/answer_correct"]
    assert interval.high - interval.low > 0.4  # four scenarios, not two hundred


def test_pass_at_k_goes_up_to_the_fewest_scored_attempts() -> None:
    groups = [
        group(attempt(1.0), attempt(0.0), attempt(0.0), attempt(None)),  # type: ignore[arg-type]
        group(attempt(0.0), attempt(0.0), attempt(0.0), attempt(0.0), number=1),  # type: ignore[arg-type]
    ]
    figures = pass_figures(groups)
    assert figures == pytest.approx({"pass@1": (1 / 3 + 0) / 2, "pass@2": (2 / 3 + 0) / 2})


def test_without_a_measure_of_success_there_is_no_pass_at_k() -> None:
    assert pass_figures([group(rollout(1.0))]) == {}
