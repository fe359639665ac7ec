"""Rollouts: kept whole, listed, filtered, read lazily; their rewards graded again; their trajectories dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etude.environment.calls import Fault
from etude.environment.scenario import Scenario
from etude.errors import ConfigError, StorageError
from etude.rollout.outcome import Outcome
from etude.rollout.rollout import Rollout
from etude.store import Retention, Store

NewRun = Callable[..., str]
MakeRollout = Callable[..., Rollout]
DAY = 86400


def test_a_rollout_comes_back_whole_with_its_scenario(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario, clock: Any
) -> None:
    run, rollout = new_run(), make_rollout()
    store.add_rollouts(run, 3, "train", [rollout], [scenario], groups=["g-7"])
    (saved,) = store.iter_rollouts(run)
    assert saved.rollout == rollout
    assert saved.scenario == scenario
    summary = saved.summary
    assert store.rollouts(run) == [summary]
    assert (summary.run, summary.step, summary.phase, summary.group) == (run, 3, "train", "g-7")
    assert summary.time == clock.now
    assert (summary.outcome, summary.stop, summary.reward, summary.saved) == (rollout.outcome, rollout.stop, 0.5, True)
    assert (summary.scores, summary.metrics) == (rollout.scores, rollout.metrics)
    same = ("trace_id", "scenario_id", "split", "attempt", "turns", "prompt_tokens", "completion_tokens", "wall_s")
    assert all(getattr(summary, name) == getattr(rollout, name) for name in (*same, "tool_s", "retries"))
    assert store.find_rollout(run, rollout.trace_id) == saved


def test_rollouts_are_filtered_counted_and_limited(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run, other = new_run(), new_run()
    fault = Fault("tool:search", "timeout", "took 30 s")
    broken = make_rollout(outcome=Outcome.ENV_FAULT, reward=None, fault=fault)
    second = replace(scenario, id="q-2", split="test")
    elsewhere = make_rollout(scenario_id="q-2", split="test")
    store.add_rollouts(run, 1, "train", [make_rollout(), broken], [scenario] * 2)
    store.add_rollouts(run, 2, "train", [make_rollout()], [scenario])
    store.add_rollouts(run, 2, "validation", [elsewhere], [second])
    store.add_rollouts(other, 1, "train", [make_rollout()], [scenario])

    assert store.count_rollouts(run) == 4
    assert store.count_rollouts(run, phase="train") == 3
    assert store.count_rollouts(run, phase=None, step=2) == 2
    assert store.count_outcomes(run) == {
        Outcome.OK: 3,
        Outcome.POLICY_FAULT: 0,
        Outcome.ENV_FAULT: 1,
        Outcome.GRADER_FAULT: 0,
        Outcome.CANCELLED: 0,
    }
    (faulted,) = store.rollouts(run, outcome=Outcome.ENV_FAULT)
    assert (faulted.reward, faulted.fault_where, faulted.fault_kind) == (None, "tool:search", "timeout")
    (saved,) = store.iter_rollouts(run, scenario="q-2")
    assert (saved.rollout, saved.scenario) == (elsewhere, second)
    assert [row.trace_id for row in store.rollouts(run, limit=2)] == ["trace_0002", broken.trace_id]
    assert [row.step for row in store.rollouts(run, after=faulted.id, phase="train")] == [2]
    assert len(list(store.iter_rollouts(run, limit=3))) == 3
    assert list(store.iter_rollouts(run, limit=0)) == []
    assert list(store.iter_rollouts(run, step=9)) == []


def test_rollouts_are_read_a_page_at_a_time_while_others_are_written(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run = new_run()
    written = [make_rollout() for _ in range(150)]
    store.add_rollouts(run, 1, "train", written, [scenario] * 150)
    reader = store.iter_rollouts(run)
    first = next(reader)
    store.add_rollouts(run, 2, "train", [make_rollout()], [scenario])  # the reader holds no transaction open
    assert [first.rollout, *(saved.rollout for saved in reader)] == written
    assert len(list(store.iter_rollouts(run, limit=100))) == 100


def test_a_rollout_is_found_by_the_beginning_of_its_trace_id(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run, other = new_run(), new_run()
    rollouts = [make_rollout(trace_id=name) for name in ("trace_ab", "trace_abc", "trace_b%")]
    store.add_rollouts(run, 1, "train", rollouts, [scenario] * 3)
    assert store.find_rollout(run, "trace_ab").rollout == rollouts[0]
    assert store.find_rollout(run, "trace_abc").rollout == rollouts[1]
    assert store.find_rollout(run, "trace_b").rollout == rollouts[2]
    with pytest.raises(ConfigError, match=r"more than one trace id .* begins with 'trace_a'"):
        store.find_rollout(run, "trace_a")
    for where, text in ((run, "trace_%"), (other, "trace_ab")):
        with pytest.raises(ConfigError, match=f"no rollout '{text}' in run {where}"):
            store.find_rollout(where, text)


def test_a_trace_id_is_saved_once_and_a_refused_call_saves_nothing(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run, rollout = new_run(), make_rollout()
    store.add_rollouts(run, 1, "train", [rollout], [scenario])
    with pytest.raises(StorageError, match="trace_0000 is saved already: rewind the run with truncate_run"):
        store.add_rollouts(run, 2, "train", [make_rollout(), rollout], [scenario] * 2)
    assert store.count_rollouts(run) == 1


def test_a_scenario_must_not_change_under_its_id(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run = new_run()
    store.add_rollouts(run, 1, "train", [make_rollout()], [scenario])
    changed = replace(scenario, data={"question": "another"})
    with pytest.raises(StorageError, match=r"scenario 'q-1' \(train\) is not what run .* saved under this id before"):
        store.add_rollouts(run, 2, "train", [make_rollout()], [changed])
    assert store.count_rollouts(run) == 1
    test_split = replace(changed, split="test")
    store.add_rollouts(run, 2, "test", [make_rollout(split="test")], [test_split])
    assert [saved.scenario for saved in store.iter_rollouts(run)] == [scenario, test_split]
    other = new_run()
    store.add_rollouts(other, 1, "train", [make_rollout()], [changed])
    assert [saved.scenario for saved in store.iter_rollouts(other)] == [changed]


def test_rollouts_and_scenarios_must_belong_together(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run = new_run()
    with pytest.raises(ValueError, match="is of scenario q-1, not q-9"):
        store.add_rollouts(run, 1, "train", [make_rollout()], [replace(scenario, id="q-9")])
    with pytest.raises(ValueError, match="zip"):
        store.add_rollouts(run, 1, "train", [make_rollout()], [])
    with pytest.raises(ValueError, match="zip"):
        store.add_rollouts(run, 1, "train", [make_rollout()], [scenario], groups=[])
    with pytest.raises(StorageError, match=r"scenario q-1 cannot be saved: when is a object"):
        store.add_rollouts(run, 1, "train", [make_rollout()], [replace(scenario, data={"when": object()})])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"outcome": Outcome.ENV_FAULT, "reward": 0.0}, "ended as env_fault with the reward 0.0: a fault carries none"),
        ({"outcome": Outcome.CANCELLED, "reward": 1.0}, "ended as cancelled with the reward"),
        ({"reward": float("nan")}, "has the reward nan: it must be finite"),
        ({"reward": float("inf")}, "has the reward inf: it must be finite"),
    ],
)
def test_what_is_no_reward_is_refused(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario, fields: dict[str, Any], message: str
) -> None:
    source = new_run()
    store.add_rollouts(source, 1, "train", [make_rollout()], [scenario])
    with pytest.raises(StorageError, match=message):
        store.add_rollouts(source, 1, "train", [make_rollout(**fields)], [scenario])
    with pytest.raises(StorageError, match=message):
        store.add_regrades(new_run("regrade", parent=source), [make_rollout(trace_id="trace_0000", **fields)])


def test_numpy_numbers_are_saved_as_their_values(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    source = new_run()
    store.add_rollouts(source, 1, "train", [make_rollout(reward=np.float32(0.1), turns=np.int64(3))], [scenario])
    (row,) = store.rollouts(source)
    assert (row.reward, row.turns) == (float(np.float32(0.1)), 3)
    regrade = new_run("regrade", parent=source)
    store.add_regrades(regrade, [make_rollout(trace_id=row.trace_id, reward=np.float32(0.2))])
    assert store.regrades(regrade)[0].reward == float(np.float32(0.2))


def test_a_reward_of_none_is_never_a_number(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run = new_run()
    store.add_rollouts(run, 1, "train", [make_rollout(reward=None), make_rollout(reward=0.0)], [scenario] * 2)
    assert [row.reward for row in store.rollouts(run)] == [None, 0.0]


def test_new_rewards_stand_beside_the_first(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    source = new_run()
    broken = make_rollout(outcome=Outcome.GRADER_FAULT, reward=None, fault=Fault("grader:x", "exception", "boom"))
    store.add_rollouts(source, 1, "train", [make_rollout(), broken], [scenario] * 2)
    first, second = (saved.rollout for saved in store.iter_rollouts(source))
    regrade = new_run("regrade", parent=source)
    slow = Fault("grader:y", "timeout", "slow")
    again = [
        replace(second, outcome=Outcome.OK, fault=None, reward=1.0, scores={"correct": 1.0}),
        replace(first, outcome=Outcome.GRADER_FAULT, fault=slow, reward=None, scores={}),
    ]
    store.add_regrades(regrade, again)
    one, two = store.regrades(regrade)
    assert (one.first.trace_id, one.first.reward, one.reward) == (first.trace_id, 0.5, None)
    assert (one.outcome, one.fault, one.scores) == (Outcome.GRADER_FAULT, slow, {})
    assert (two.first.reward, two.reward, two.outcome, two.fault) == (None, 1.0, Outcome.OK, None)
    assert (two.scores, two.metrics) == ({"correct": 1.0}, second.metrics)
    assert [saved.rollout for saved in store.iter_rollouts(source)] == [first, second]

    with pytest.raises(StorageError, match="has graded rollout trace_0000 already: begin another regrade"):
        store.add_regrades(regrade, again)
    another = new_run("regrade", parent=source)
    store.add_regrades(another, again)
    assert len(store.regrades(another)) == 2


def test_only_a_regrade_run_regrades_and_only_its_parent(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    source, other = new_run(), new_run()
    store.add_rollouts(other, 1, "train", [make_rollout()], [scenario])
    (rollout,) = (saved.rollout for saved in store.iter_rollouts(other))
    with pytest.raises(StorageError, match=f"run {source} regrades no other run"):
        store.add_regrades(source, [rollout])
    with pytest.raises(StorageError, match=f"run {source} has no rollout trace_0000 to grade again"):
        store.add_regrades(new_run("regrade", parent=source), [rollout])


@pytest.mark.parametrize("dropped", ["refuse", "skip"])
def test_trajectories_dropped_under_a_reader_are_refused_or_skipped(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario, dropped: Any
) -> None:
    run = new_run()
    for step in (1, 2):
        store.add_rollouts(run, step, "train", [make_rollout() for _ in range(64)], [scenario] * 64)
    reader = store.iter_rollouts(run, dropped=dropped)
    next(reader)
    store.add_rollouts(run, 9, "train", [make_rollout()], [scenario])
    store.prune(Retention(steps=1))
    if dropped == "skip":
        assert len(list(reader)) == 63  # the page that it had read already
    else:
        with pytest.raises(StorageError, match=f"tokens and messages of trace_0064 .run {run}. are not kept"):
            list(reader)


def test_what_an_interrupted_phase_left_is_deleted(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run = new_run()
    for step, phase in ((1, "train"), (1, "validation"), (2, "validation")):
        store.add_rollouts(run, step, phase, [make_rollout()], [scenario])
    assert store.delete_rollouts(run, phase="validation", step=1) == 1
    assert [(row.step, row.phase) for row in store.rollouts(run)] == [(1, "train"), (2, "validation")]


def fill(store: Store, run: str, make_rollout: MakeRollout, scenario: Scenario, steps: range) -> None:
    for step in steps:
        store.add_rollouts(run, step, "train", [make_rollout(tokens=600) for _ in range(3)], [scenario] * 3)


def test_trajectories_beyond_the_last_steps_are_dropped_and_rewards_stay(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run, other = new_run(), new_run()
    fill(store, run, make_rollout, scenario, range(1, 6))
    fill(store, other, make_rollout, scenario, range(1, 3))
    before = store.rollouts(run)
    pruned = store.prune(Retention(steps=2), run=run)
    assert pruned.rollouts == 9
    assert pruned.bytes > 9 * 600
    after = store.rollouts(run)
    assert [row.saved for row in after] == [False] * 9 + [True] * 6
    assert [replace(row, saved=True) for row in after] == before
    assert store.prune(Retention(steps=2), run=run).rollouts == 0
    assert store.prune(Retention(steps=1)).rollouts == 3 + 3

    reader = store.iter_rollouts(run)
    with pytest.raises(StorageError, match=f"12 of these 15 trajectories of run {run} are not kept"):
        next(reader)
    with pytest.raises(StorageError, match=r"tokens and messages of trace_0000 .* are not kept"):
        store.find_rollout(run, "trace_0000")
    assert [saved.summary.step for saved in store.iter_rollouts(run, dropped="skip")] == [5, 5, 5]
    assert len(list(store.iter_rollouts(run, step=5))) == 3


def test_trajectories_are_dropped_by_age(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario, clock: Any
) -> None:
    run = new_run()
    for step in (1, 2, 3):
        fill(store, run, make_rollout, scenario, range(step, step + 1))
        clock.now += 10 * DAY
    assert store.prune(Retention()).rollouts == 0
    assert store.prune(Retention(days=30)).rollouts == 0
    assert store.prune(Retention(days=15)).rollouts == 6
    assert [row.step for row in store.rollouts(run) if row.saved] == [3, 3, 3]


def test_dropped_space_goes_back_to_the_disk(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run = new_run()
    rollouts = [make_rollout(tokens=2000) for _ in range(200)]
    store.add_rollouts(run, 1, "train", rollouts, [scenario] * 200)
    fill(store, run, make_rollout, scenario, range(2, 3))
    store.close()
    full = store.path.stat().st_size
    with Store.open(store.workspace) as again:
        pruned = again.prune(Retention(steps=1))
    assert pruned.rollouts == 200
    assert full - store.path.stat().st_size > 0.9 * pruned.bytes


def test_trajectories_may_be_left_out_from_the_start(
    store: Store, new_run: NewRun, make_rollout: MakeRollout, scenario: Scenario
) -> None:
    run = new_run()
    store.add_rollouts(run, 1, "train", [make_rollout()], [scenario], payloads=False)
    (row,) = store.rollouts(run)
    assert (row.saved, row.reward) == (False, 0.5)
    with pytest.raises(StorageError, match="1 of these 1 trajectories"):
        list(store.iter_rollouts(run))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"days": 1, "steps": 1}, "days or steps, not both"),
        ({"days": 0}, "0 days must be more than 0"),
        ({"days": float("nan")}, "nan days must be more than 0"),
        ({"steps": 0}, "0 steps must be at least 1"),
    ],
)
def test_a_retention_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Retention(**fields)
