"""The rules on real runs: recorded ones that go wrong in known ways, and ones that do not; and some that are made anew.

How the recorded ones were made: benchmarks/health_runs.py. Which seeds set the thresholds: support.recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.recorded import FIRST_TEST_SEED, Recorded, alerts_of, is_a_test_of, load
from support.unhealthy import WORLDS, run_world

from etude.store.store import Store
from etude.training.health.history import Figures, Moment
from etude.training.health.rules import RULES

RUNS = load()
GOOD = [run for run in RUNS if run.world not in WORLDS or not WORLDS[run.world].fires]
BAD = [run for run in RUNS if run not in GOOD]
DERIVED = {"engine_gap"}  # too dear to provoke: a real run with other figures


def name_of(run: Recorded) -> str:
    return f"{run.world}-{run.seed}"


def test_every_world_was_recorded_with_seeds_that_set_no_threshold() -> None:
    assert {run.world for run in RUNS if run.seed >= FIRST_TEST_SEED} == WORLDS.keys()
    assert len({run.world for run in GOOD}) >= 3


def test_every_rule_has_a_bad_run_that_set_none_of_its_thresholds_and_three_good_ones() -> None:
    meant = {rule for run in BAD for rule in WORLDS[run.world].fires if is_a_test_of(run, rule)}
    assert meant | DERIVED == RULES.keys()
    assert all(len({run.world for run in GOOD if is_a_test_of(run, rule)}) >= 3 for rule in RULES)


@pytest.mark.parametrize("run", GOOD, ids=name_of)
def test_good_runs_raise_nothing(run: Recorded) -> None:
    assert [(alert.rule, alert.step) for alert in alerts_of(run)] == []


@pytest.mark.parametrize("run", BAD, ids=name_of)
def test_bad_runs_raise_what_they_are_meant_for(run: Recorded) -> None:
    alerts = alerts_of(run)
    assert {alert.rule for alert in alerts} >= set(WORLDS[run.world].fires)
    assert all(alert.evidence and alert.message for alert in alerts)


def changed(run: Recorded, change: Callable[[Figures], Figures]) -> Recorded:
    return replace(run, moments=[Moment(m.step, change(m.figures), m.validation) for m in run.moments])


@pytest.mark.parametrize("run", [run for run in GOOD if run.seed >= FIRST_TEST_SEED], ids=name_of)
def test_derived_an_engine_that_disagrees_with_the_learner(run: Recorded) -> None:
    def apart(figures: Figures) -> Figures:
        return {**figures, "learner/gap_mean": 0.08} if "learner/gap_mean" in figures else figures

    wrong = changed(run, apart)
    gaps = [moment for moment in wrong.moments if "learner/gap_mean" in moment.figures]
    if len(gaps) < RULES["engine_gap"].thresholds["steps"].default:
        pytest.skip("one step behind, no token is sampled by the weights that it trains: there is no gap to measure")
    assert [alert.rule for alert in alerts_of(wrong)] == ["engine_gap"]


@pytest.mark.parametrize("run", [r for r in GOOD if r.world == "good" and r.seed >= FIRST_TEST_SEED], ids=name_of)
def test_derived_a_validation_that_falls_while_the_train_reward_rises(run: Recorded) -> None:
    """The validations of a run that learns, in the opposite order: as if it had unlearnt what it is not trained on."""
    measured = [moment.validation for moment in run.moments if moment.validation is not None]
    steps = [moment.step for moment in run.moments if moment.validation is not None]
    backwards = dict(zip(steps, reversed(measured), strict=True))
    wrong = replace(run, moments=[Moment(m.step, m.figures, backwards.get(m.step)) for m in run.moments])
    alerts = alerts_of(wrong)
    assert [alert.rule for alert in alerts] == ["held_out"]
    assert "of the validation fell" in alerts[0].message


def alerts_told(folder: Path) -> set[str]:
    with Store.open(folder / "work") as store:
        (run,) = store.runs()
        return {event.data["rule"] for event in store.events(run.id) if event.type == "alert"}


def test_a_turn_bonus_is_told_while_it_is_learnt(tmp_path: Path) -> None:
    run_world("turn bonus", tmp_path, seed=3, steps=12)
    assert {"turns_rising", "held_out", "one_tool", "calls_at_cap"} <= alerts_told(tmp_path)


@pytest.mark.acceptance
@pytest.mark.parametrize("world", WORLDS)
def test_worlds_made_anew(tmp_path: Path, world: str) -> None:
    run_world(world, tmp_path, seed=40)
    told, meant = alerts_told(tmp_path), set(WORLDS[world].fires)
    assert told >= meant if meant else told == set()
