"""What a baseline's attempts say, and what follows from it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from support.rollouts import group, rollout

from etude.evaluation.baseline_figures import Attempts, attempts_of, baseline_figures, findings


def tries(*scenarios: Sequence[int | None]) -> list[Attempts]:
    """Of each scenario, whether its attempts were right; None is one that broke."""
    made = []
    for number, results in enumerate(scenarios):
        scored = [one for one in results if one is not None]
        made.append(
            Attempts(str(number), tuple(map(float, scored)), tuple(map(bool, scored)), len(results) - len(scored))
        )
    return made


def names(attempts: list[Attempts], planned: int) -> list[str]:
    return [finding.name for finding in findings(*baseline_figures(attempts, planned, seed=0), planned)]


def test_a_fault_is_missing_from_every_mean() -> None:
    right, wrong = ({"answer_correct": value} for value in (1.0, 0.0))
    attempts = attempts_of(group(rollout(0.5, metrics=right), rollout(None), rollout(0.1, metrics=wrong)))
    assert attempts == Attempts("s0", (0.5, 0.1), (True, False), 1)
    assert (attempts.mean, attempts.best) == (pytest.approx(0.3), 0.5)
    assert attempts.deviation == pytest.approx(np.std([0.5, 0.1], ddof=1))
    figures, _ = baseline_figures([attempts, *tries([1, 1, 1], [None, None, None])], 3, seed=0)
    assert figures["attempts/planned"] == 9
    assert (figures["attempts/scored"], figures["attempts/missing"]) == (5, 4)
    assert (figures["scenarios/all"], figures["scenarios/graded"]) == (3, 2)
    assert figures["reward/mean_of_scenarios"] == pytest.approx((0.3 + 1.0) / 2)


def test_best_of_k_and_pass_at_k_go_up_to_the_fewest_attempts() -> None:
    attempts = tries([1, 0, 0, 0], [0, 0, None, 1], [0, 0, 0, 0])
    figures, _ = baseline_figures(attempts, 4, seed=0)
    assert [name for name in figures if name.startswith("pass@")] == ["pass@1", "pass@2"]
    twin = np.mean([np.mean([max(pair) for pair in itertools.combinations(each.rewards, 2)]) for each in attempts])
    assert figures["pass@2"] == figures["best@2/reward"] == pytest.approx(twin)


def test_variance_is_counted_on_correctness_and_on_reward() -> None:
    attempts = [
        Attempts("a", (0.50, 0.54), (True, False), 0),  # differs in correctness alone
        Attempts("b", (0.1, 0.9), (True, True), 0),  # in reward alone
        Attempts("c", (0.0, 0.0), (False, False), 0),
        Attempts("d", (1.0,), (True,), 0),  # one attempt cannot differ
    ]
    figures, intervals = baseline_figures(attempts, 2, seed=0)
    assert figures["zero_variance/correctness"] == pytest.approx(2 / 3)
    assert figures["zero_variance/reward"] == pytest.approx(2 / 3)
    assert figures["zero_variance/all_right"] == figures["zero_variance/all_wrong"] == pytest.approx(1 / 3)
    assert {"zero_variance/correctness/x4", "zero_variance/correctness/x8"} <= intervals.keys()


def test_without_a_measure_of_success_rewards_alone_speak() -> None:
    attempts = [Attempts("a", (0.2, 0.8), None, 0), Attempts("b", (0.3, 0.3), None, 0)]
    figures, _ = baseline_figures(attempts, 2, seed=0)
    assert not any(name.startswith("pass@") or "correctness" in name for name in figures)
    assert figures["best@2/reward"] == pytest.approx((0.8 + 0.3) / 2)
    assert names(attempts, 2) == ["worth_training"]


MIXED, WRONG, RIGHT = [1, 0, 1, 0, 0, 0, 1, 0], [0] * 8, [1] * 8


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        (tries(*[MIXED] * 10), ["worth_training"]),
        (tries(*[WRONG] * 10), ["all_zero"]),
        (tries(*[RIGHT] * 10), ["solved"]),
        (tries(*[WRONG] * 9, [1] + [0] * 7), ["few_vary"]),
        (tries(*[WRONG] * 5, *[RIGHT] * 5), ["little_to_gain", "few_vary"]),
        (tries(*[[None] * 4 + MIXED[:4]] * 10), ["faults", "worth_training"]),
        (tries(*[[1]] * 4, *[[0]] * 4), ["one_attempt"]),
    ],
)
def test_what_follows(attempts: list[Attempts], expected: list[str]) -> None:
    assert names(attempts, 8) == expected


def test_hard_scenarios_that_more_attempts_would_crack_are_told_from_hopeless_ones() -> None:
    def advice(*scenarios: Sequence[int]) -> str:
        attempts = tries(*scenarios)
        (told,) = [one for one in findings(*baseline_figures(attempts, 8, seed=0), 8) if one.name == "few_vary"]
        assert "predicted" in told.seen
        return told.advice

    assert "more attempts a group help" in advice(*[WRONG] * 65, *[[1] + [0] * 7] * 35)
    assert "easier scenarios" in advice(*[WRONG] * 95, *[[1, 1, 1, 1, 1, 0, 0, 0]] * 5, RIGHT)
