"""Rubrics: how scores make a reward, and that a grader that breaks is a fault and never a number."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.environment.scenario import Scenario
from etude.errors import ConfigError
from etude.grading.graders import f1_sets
from etude.grading.rubric import COUNTS, Grade, Grader, Rubric, grade
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import CallRecord, Rollout
from etude.rollout.trajectory import Trajectory

SCENARIO = Scenario("s", "train", {"question": "?"})


def rollout(outcome: Outcome = Outcome.OK, calls: int = 3, tokens: int = 100) -> Rollout:
    record = CallRecord(turn=0, call_id="c", name="search", arguments={}, output="", kind="ok")
    return Rollout(
        trace_id="t",
        scenario_id="s",
        split="train",
        attempt=0,
        outcome=outcome,
        stop=Stop.ANSWERED,
        messages=(),
        calls=(record,) * calls,
        trajectory=Trajectory(rows=()),
        answer="March 4",
        turns=2,
        completion_tokens=tokens,
        parse_failures={"json": 2, "unclosed": 1},
    )


def giving(value: Any) -> Grader:
    return lambda rollout, scenario: value


def graded(rubric: Rubric | Grader, attempt: Rollout | None = None, timeout_s: float = 30.0) -> Grade:
    return asyncio.run(grade(rubric, attempt or rollout(), SCENARIO, timeout_s))


def test_weighted_sum() -> None:
    rubric = Rubric({"right": giving(1.0), "style": giving(0.5)}, weights={"right": 2.0})
    assert graded(rubric) == Grade(2.5, {"right": 1.0, "style": 0.5})


def test_gates_multiply_and_do_not_add() -> None:
    scores = {"right": giving(0.75), "format": giving(1), "safe": giving(0.5)}
    assert graded(Rubric(scores, gates=("format", "safe"))).reward == 0.375
    assert graded(Rubric({**scores, "format": giving(0)}, gates=("format",))).reward == 0.0


def test_penalties_count_however_the_attempt_ends() -> None:
    rubric = Rubric(
        {"right": giving(1.0), "format": giving(0.0)},
        gates=("format",),
        penalties={"length": ("completion_tokens", 0.01), "calls": ("tool_calls", 0.1), "rude": (giving(2.0), 0.5)},
    )
    result = graded(rubric)
    assert result.reward == pytest.approx(-(100 * 0.01 + 3 * 0.1 + 2.0 * 0.5))
    assert result.scores == {"right": 1.0, "format": 0.0, "rude": 2.0}


def test_counts() -> None:
    counted = {name: count(rollout()) for name, count in COUNTS.items()}
    assert counted["completion_tokens"] == 100
    assert counted["tool_calls"] == 3
    assert counted["turns"] == 2
    assert counted["parse_failures"] == 3


def test_overrunning_the_tool_budget_leaves_penalties_only() -> None:
    rubric = Rubric({"right": giving(1.0)}, penalties={"calls": ("tool_calls", 0.1)}, tool_budget=3)
    assert graded(rubric, rollout(calls=3)).reward == pytest.approx(0.7)
    assert graded(rubric, rollout(calls=4)).reward == pytest.approx(-0.4)


@pytest.mark.parametrize(("value", "reward"), [(5.0, 1.0), (-5.0, -1.0), (0.25, 0.25)])
def test_clip(value: float, reward: float) -> None:
    assert graded(Rubric({"right": giving(value)}, clip=(-1.0, 1.0))).reward == reward


def test_a_single_grader_is_a_rubric_of_one() -> None:
    def closeness(attempt: Rollout, scenario: Scenario) -> float:
        return 0.5 if attempt.answer == "March 4" and scenario["question"] == "?" else 0.0

    assert graded(closeness) == Grade(0.5, {"closeness": 0.5})
    assert graded(functools.partial(closeness)).reward == 0.5


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(2), np.float64(-1.5)])
def test_real_numbers_are_scores(value: Any) -> None:
    result = graded(giving(value))
    assert result.reward == value
    assert type(result.reward) is float


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "not_a_number"),
        (True, "not_a_number"),
        (np.bool_(True), "not_a_number"),
        ("1.0", "not_a_number"),
        (1 + 0j, "not_a_number"),
        (Decimal(1), "not_a_number"),
        ([1.0], "not_a_number"),
        (math.nan, "not_finite"),
        (math.inf, "not_finite"),
        (-math.inf, "not_finite"),
        (np.float32("nan"), "not_finite"),
        (10**400, "not_finite"),
    ],
)
def test_anything_else_is_a_fault(value: Any, kind: str) -> None:
    result = graded(Rubric({"fine": giving(1.0), "odd": giving(value)}))
    assert result.reward is None
    assert result.scores == {"fine": 1.0}
    assert result.fault is not None
    assert (result.fault.where, result.fault.kind) == ("grader:odd", kind)


def raising(error: BaseException) -> Grader:
    def broken(attempt: Rollout, scenario: Scenario) -> float:
        raise error

    return broken


def raising_late(error: BaseException) -> Grader:
    async def broken(attempt: Rollout, scenario: Scenario) -> float:
        await asyncio.sleep(0)
        raise error

    return broken


@pytest.mark.parametrize("how", [raising, raising_late])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad row"),
        KeyError("answer"),
        StopIteration(),
        TimeoutError("mine"),
        SystemExit(3),
        asyncio.CancelledError(),
    ],
)
def test_an_exception_is_a_fault(how: Callable[[BaseException], Grader], error: BaseException) -> None:
    result = graded(Rubric({"broken": how(error)}))
    assert result.reward is None
    assert result.fault is not None
    assert (result.fault.where, result.fault.kind) == ("grader:broken", "exception")


def test_the_message_of_a_fault_says_what_and_where() -> None:
    result = graded(raising(ValueError("no field 'gold'")))
    assert result.fault is not None
    assert "ValueError: no field 'gold'" in result.fault.message
    assert "test_rubric_grade.py, line" in result.fault.message


def test_a_grader_that_hangs_is_a_fault() -> None:
    never = threading.Event()

    async def waits(attempt: Rollout, scenario: Scenario) -> float:
        await asyncio.Event().wait()
        return 1.0

    def blocks(attempt: Rollout, scenario: Scenario) -> float:
        never.wait()
        return 1.0

    try:
        for grader in (waits, blocks):
            result = graded(grader, timeout_s=0.05)
            assert result.reward is None
            assert result.fault is not None
            assert (result.fault.kind, result.fault.message) == ("timeout", "no score within 0.05 s")
    finally:
        never.set()


def test_cancelling_from_outside_is_not_a_fault() -> None:
    started = asyncio.Event()

    async def waits(attempt: Rollout, scenario: Scenario) -> float:
        started.set()
        await asyncio.Event().wait()
        return 1.0

    async def main() -> None:
        task = asyncio.create_task(grade(waits, rollout(), SCENARIO, 30.0))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_async_graders_run_side_by_side() -> None:
    met = asyncio.Barrier(2)

    async def meets(attempt: Rollout, scenario: Scenario) -> float:
        await met.wait()
        return 1.0

    assert graded(Rubric({"one": meets, "two": meets})).reward == 2.0


def test_sync_graders_do_not_run_on_the_event_loop() -> None:
    threads: list[int] = []

    def where(attempt: Rollout, scenario: Scenario) -> float:
        threads.append(threading.get_ident())
        return 1.0

    graded(where)
    assert threads != [threading.get_ident()]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.POLICY_FAULT])
def test_the_models_own_failure_is_graded(outcome: Outcome) -> None:
    assert graded(giving(-1.0), rollout(outcome)).reward == -1.0


@pytest.mark.parametrize("outcome", [Outcome.ENV_FAULT, Outcome.GRADER_FAULT, Outcome.CANCELLED])
def test_a_fault_is_not_graded(outcome: Outcome) -> None:
    assert graded(raising(AssertionError("must not run")), rollout(outcome)) == Grade(None)


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_a_gate_outside_0_to_1_is_a_fault(value: float) -> None:
    result = graded(Rubric({"right": giving(1.0), "gate": giving(value)}, gates=("gate",)))
    assert result.reward is None
    assert result.fault is not None
    assert (result.fault.where, result.fault.kind) == ("grader:gate", "not_a_gate")


def test_a_sum_that_overflows_is_a_fault() -> None:
    result = graded(Rubric({"one": giving(1e308), "two": giving(1e308)}))
    assert result.reward is None
    assert result.fault is not None
    assert result.fault.kind == "not_finite"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"scores": {}}, "no scores"),
        ({"scores": {"right": 1.0}}, "give a function"),
        ({"gates": ("other",)}, "gates name other; its scores are right, format"),
        ({"gates": "format"}, "list of names"),
        ({"weights": {"wrong": 1.0}}, "weights name wrong"),
        ({"weights": {"format": 1.0}, "gates": ("format",)}, "has no weight"),
        ({"weights": {"right": math.nan}}, "finite"),
        ({"gates": ("right", "format")}, "all its scores are gates"),
        ({"penalties": {"length": ("tokens", 0.1)}}, "completion_tokens"),
        ({"penalties": {"length": ("turns", -0.1)}}, "from 0"),
        ({"penalties": {"right": ("turns", 0.1)}}, "a score and a penalty"),
        ({"tool_budget": -1}, "tool_budget"),
        ({"clip": (1.0, -1.0)}, "clip"),
    ],
)
def test_a_rubric_that_cannot_work_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Rubric(**{"scores": {"right": giving(1.0), "format": giving(1.0)}, **wrong})


SETS = st.frozensets(st.integers(0, 9))


def test_f1_golden() -> None:
    assert f1_sets(["a", "b"], ["a", "b"]) == 1.0
    assert f1_sets(["a"], ["a", "b"]) == pytest.approx(2 / 3)
    assert f1_sets(["a", "x", "y"], ["a"]) == 0.5
    assert f1_sets(["x"], ["a"]) == 0.0
    assert f1_sets([], ["a"]) == 0.0
    assert f1_sets([], []) == 1.0
    assert f1_sets(["a", "a"], ["a"]) == 1.0


@given(SETS, SETS)
def test_f1_is_the_harmonic_mean(predicted: frozenset[int], expected: frozenset[int]) -> None:
    score = f1_sets(predicted, expected)
    assert score == f1_sets(expected, predicted)
    both = len(predicted & expected)
    if both:
        precision, recall = both / len(predicted), both / len(expected)
        assert score == pytest.approx(2 * precision * recall / (precision + recall))
    else:
        assert score == (1.0 if predicted == expected else 0.0)
