"""Two evaluations side by side: paired by scenario, faults missing, shares among those that attempted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.rollouts import rollout

from etude.environment.scenario import Scenario
from etude.errors import DataError
from etude.evaluation.compare import compare_runs
from etude.evaluation.statistics import paired_difference
from etude.store.store import Store

# By scenario: (right, attempted) of its attempts; None is a fault.
Attempts = Mapping[str, list[tuple[float, float] | None]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path)


def evaluation(store: Store, attempts: Attempts) -> str:
    run = store.create_run("eval", name="", environment="mail", model="m", config={})
    for scenario, results in attempts.items():
        for number, result in enumerate(results):
            metrics = {}
            if result is not None:
                right, attempted = result
                metrics = {"answer_correct": right, "attempted_answer": attempted, "hallucinated": attempted - right}
            made = rollout(
                None if result is None else result[0],
                trace_id=f"trace_{run}_{scenario}_{number}",
                scenario_id=scenario,
                metrics=metrics,
                turns=number + 1,
                completion_tokens=10,
            )
            store.add_rollouts(run, 0, "test", [made], [Scenario(scenario, "train", {})])
    return run


RIGHT, WRONG, DECLINED = (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)


def test_only_scenarios_that_both_graded_are_compared(store: Store) -> None:
    before = evaluation(store, {"a": [WRONG], "b": [RIGHT], "c": [WRONG], "only before": [RIGHT], "faulted": [None]})
    after = evaluation(store, {"c": [RIGHT], "a": [DECLINED], "b": [RIGHT], "faulted": [RIGHT]})
    compared = compare_runs(store, before, after, seed=4)
    assert compared.scenarios == 3
    assert compared.left_out == ("faulted", "only before")
    assert compared.before["answer_correct"] == pytest.approx(1 / 3)
    assert compared.after["answer_correct"] == pytest.approx(2 / 3)
    assert compared.difference["answer_correct"] == paired_difference([0, 1, 0], [0, 1, 1], seed=4)
    assert (compared.before["turns"], compared.difference["turns"].estimate) == (1.0, 0.0)
    assert compared.before["tokens"] == 10.0
    # Wrong among attempted: 2 of 3 before, none of 2 after.
    assert compared.difference["hallucination_rate"].estimate == pytest.approx(-2 / 3)


def test_attempts_at_one_scenario_are_averaged_first(store: Store) -> None:
    before = evaluation(store, {"a": [RIGHT, WRONG, None], "b": [WRONG]})
    after = evaluation(store, {"a": [RIGHT], "b": [WRONG, RIGHT, RIGHT, RIGHT]})
    compared = compare_runs(store, before, after)
    assert compared.before["answer_correct"] == pytest.approx((0.5 + 0) / 2)
    assert compared.after["answer_correct"] == pytest.approx((1 + 0.75) / 2)


def test_a_figure_that_some_scenarios_lack_is_compared_where_it_is(store: Store) -> None:
    runs = []
    for right in (0.0, 1.0):
        run = store.create_run("eval", name="", environment="mail", model="m", config={})
        for scenario in "abc":
            metrics = {"answer_correct": right} | ({"seen": right} if scenario != "c" else {})
            made = rollout(right, trace_id=f"{run}{scenario}", scenario_id=scenario, metrics=metrics)
            store.add_rollouts(run, 0, "test", [made], [Scenario(scenario, "train", {})])
        runs.append(run)
    compared = compare_runs(store, *runs)
    assert (compared.difference["seen"].n, compared.difference["answer_correct"].n) == (2, 3)
    assert "hallucination_rate" not in compared.difference  # nothing says what was attempted


def test_nothing_in_common_is_an_error(store: Store) -> None:
    first, second = evaluation(store, {"a": [RIGHT]}), evaluation(store, {"b": [RIGHT]})
    with pytest.raises(DataError, match="share 0 scenarios"):
        compare_runs(store, first, second)
