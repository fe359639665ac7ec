"""Steps and events, and the rewind to a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from etude.environment.scenario import Scenario
from etude.errors import StorageError
from etude.rollout.rollout import Rollout
from etude.store import Store

NewRun = Callable[..., str]


def test_metrics_of_a_step_may_come_in_parts_but_never_twice(store: Store, new_run: NewRun, clock: Any) -> None:
    run = new_run()
    store.add_step(run, 1, {"loss": 0.5, "kl": None})
    store.add_step(run, 2, {"loss": math.nan, "grad_norm": math.inf})
    store.add_step(run, 1, {"validation/reward": 0.25})
    first, second = store.steps(run)
    assert first.metrics == {"loss": 0.5, "kl": None, "validation/reward": 0.25}
    assert (first.step, first.time) == (1, clock.now)
    assert math.isnan(second.metrics["loss"] or 0)
    assert second.metrics["grad_norm"] == math.inf
    with pytest.raises(StorageError, match=rf"step 1 of run {run} is written down already \(loss\): rewind"):
        store.add_step(run, 1, {"loss": 0.5, "new": 1.0})
    assert "new" not in store.steps(run)[0].metrics
    assert [step.step for step in store.steps(run, after=1)] == [2]


def test_the_last_step(store: Store, new_run: NewRun) -> None:
    run, other = new_run(), new_run()
    assert store.last_step(run) is None
    for step in (3, 12, 5):
        store.add_step(run, step, {"loss": 1.0})
    store.add_step(other, 99, {"loss": 1.0})
    assert store.last_step(run) == 12


def test_events_are_read_from_where_a_reader_was(store: Store, new_run: NewRun, clock: Any) -> None:
    run, other = new_run(), new_run()
    first = store.add_event(run, "started", level="info", type="message")
    store.add_event(other, "not mine", level="info", type="message")
    last = store.add_event(run, "half \ud83d", level="warn", type="fault", step=3, data={"where": "tool:x"})
    assert [event.message for event in store.events(run)] == ["started", r"half \ud83d"]
    (event,) = store.events(run, after=first)
    assert (event.id, event.run, event.step, event.time) == (last, run, 3, clock.now)
    assert (event.level, event.type, event.data) == ("warn", "fault", {"where": "tool:x"})
    assert [event.id for event in store.events(run, limit=1)] == [first]
    assert [event.id for event in store.events(run, limit=1, newest_first=True)] == [last]
    assert store.has_event(run, type="fault", step=3)
    assert not store.has_event(run, type="fault", step=2)
    assert not store.has_event(other, type="fault", step=3)


def test_events_are_refused_with_the_wrong_level_or_data(store: Store, new_run: NewRun) -> None:
    run = new_run()
    with pytest.raises(ValueError, match="level 'warning': it is one of info, warn, error"):
        store.add_event(run, "x", level="warning", type="message")  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="the data of the event 'x' cannot be saved: a is a set"):
        store.add_event(run, "x", level="info", type="message", data={"a": {1}})
    assert store.events(run) == []


def test_a_rewind_deletes_what_is_beyond_the_checkpoint_of_this_run_alone(
    store: Store, new_run: NewRun, make_rollout: Callable[..., Rollout], scenario: Scenario
) -> None:
    run, other = new_run(), new_run()
    for step in (1, 2, 3, 4):
        for each in (run, other):
            store.add_step(each, step, {"loss": 1.0})
            store.add_rollouts(each, step, "train", [make_rollout(), make_rollout()], [scenario] * 2)
            store.add_event(each, "checkpoint", level="info", type="message", step=step)
    last = store.add_event(run, "outlives", level="info", type="message")
    regrade = new_run("regrade", parent=run)
    regraded = [saved.rollout for saved in store.iter_rollouts(run)]
    store.add_regrades(regrade, regraded)

    assert store.truncate_run(run, 2) == {"steps": 2, "rollouts": 4, "events": 2, "regrades": 4}
    assert [step.step for step in store.steps(run)] == [1, 2]
    assert {rollout.step for rollout in store.rollouts(run)} == {1, 2}
    assert [event.message for event in store.events(run)] == ["checkpoint", "checkpoint", "outlives"]
    assert len(store.regrades(regrade)) == 4
    assert (len(store.steps(other)), store.count_rollouts(other), len(store.events(other))) == (4, 8, 4)
    assert store.truncate_run(run, 2) == {"steps": 0, "rollouts": 0, "events": 0, "regrades": 0}
    # The same rollouts are played again, under the trace ids that they had.
    store.add_rollouts(run, 3, "train", regraded[4:6], [scenario] * 2)
    assert store.add_event(run, "again", level="info", type="message") > last


def test_an_event_id_is_never_used_again(store: Store, new_run: NewRun) -> None:
    run = new_run()
    seen = store.add_event(run, "lost", level="info", type="message", step=5)
    store.truncate_run(run, 4)
    new = store.add_event(run, "after the rewind", level="info", type="message", step=5)
    assert [event.id for event in store.events(run, after=seen)] == [new]
