"""Regrading: today's rubric over yesterday's rollouts gives what it would have given yesterday."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.symbols import correct, drawers, reward, save_symbol_model

import etude
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.errors import RunCancelled, TrainingError
from etude.evaluation.regrade import regrade
from etude.rollout.outcome import Outcome
from etude.rollout.rollout import Rollout
from etude.store.records import Regrade
from etude.store.store import Store
from etude.training.events import Event


def broken(rollout: Rollout, scenario: Scenario) -> float:
    raise KeyError("gold")


def play(folder: Path, environment: Environment) -> str:
    """The id of an evaluation of a random model, in the store of `folder`."""
    return etude.evaluate(
        environment,
        model={"name": str(save_symbol_model(folder / "model")), "chat": "symbols"},
        split="train",
        deterministic=True,
        workspace=str(folder),
        sampling={"max_retries": 0},
        eval={"scenarios": 10, "attempts": 4, "temperature": 1.0},
    ).run_id


def graded(grading: list[Regrade]) -> list[tuple[str, int, Outcome, float | None]]:
    return [(each.first.scenario_id, each.first.attempt, each.outcome, each.reward) for each in grading]


def test_a_mended_grader_gives_what_it_would_have_given(tmp_path: Path) -> None:
    whole = play(tmp_path, drawers(reward))
    with pytest.raises(TrainingError, match=r"all 40 rollouts faulted, so nothing was measured.*grader:broken"):
        play(tmp_path, drawers(broken))
    with Store.open(tmp_path) as store:
        (failed,) = store.runs(statuses=["failed"])
        faulted = failed.id
        assert store.count_outcomes(faulted)[Outcome.GRADER_FAULT] == 40
        result = regrade(store, faulted, environment=drawers(reward))
        assert (result.graded, result.changed, result.faults) == (40, 40, 0)
        expected = sorted((row.scenario_id, row.attempt, row.outcome, row.reward) for row in store.rollouts(whole))
        assert sorted(graded(store.regrades(result.run_id))) == expected
        assert {outcome for _, _, outcome, _ in expected} == {Outcome.OK, Outcome.POLICY_FAULT}
        assert all(row.reward is None for row in store.rollouts(faulted)), "what was graded first is kept"
        (run,) = store.runs(parent=faulted)
    assert (run.id, run.kind, run.status) == (result.run_id, "regrade", "succeeded")


def test_means_are_over_what_has_a_reward_in_both(tmp_path: Path) -> None:
    run = play(tmp_path, drawers(reward))
    with Store.open(tmp_path) as store:
        old = [saved.rollout.reward for saved in store.iter_rollouts(run)]
        new = [correct(saved.rollout, saved.scenario) for saved in store.iter_rollouts(run)]
        result = regrade(store, run, environment=drawers(correct))
    assert result.old_mean == pytest.approx(sum(value or 0.0 for value in old) / 40)
    assert result.new_mean == pytest.approx(sum(new) / 40)
    assert result.changed == sum(before != after for before, after in zip(old, new, strict=True)) > 0


@pytest.mark.parametrize(
    ("raised", "seen", "status"),
    [(KeyboardInterrupt, RunCancelled, "cancelled"), (ZeroDivisionError,) * 2 + ("failed",)],
)
def test_a_regrading_that_is_stopped_says_so(
    tmp_path: Path, raised: type[BaseException], seen: type[BaseException], status: str
) -> None:
    run = play(tmp_path, drawers(reward))

    def stop(event: Event) -> None:
        raise raised

    with Store.open(tmp_path) as store:
        with pytest.raises(seen):
            regrade(store, run, environment=drawers(reward), observer=stop)
        assert [each.status for each in store.runs(parent=run)] == [status]
