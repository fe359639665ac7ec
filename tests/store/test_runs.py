"""Runs: made, found by what a person types, marked, taken over; and shown as interrupted when their process is gone."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.errors import ConfigError, StorageError
from etude.store import Store
from etude.store.process import HEARTBEAT_LIMIT_S, ProcessId, git_commit, is_alive

NewRun = Callable[..., str]


def rewrite(store: Store, run: str, **columns: Any) -> None:
    """Change a run's row as another machine would have written it."""
    connection = sqlite3.connect(store.path)
    with connection:
        assignments = ", ".join(f"{column} = :{column}" for column in columns)
        connection.execute(f"UPDATE runs SET {assignments} WHERE id = :run", {**columns, "run": run})
    connection.close()


def test_a_run_keeps_what_it_was_made_with(store: Store, clock: Any) -> None:
    run_id = store.create_run("eval", name="first", environment="shop", model="tiny", config={"seed": 1, "lr": [0.5]})
    assert re.fullmatch(r"eval-20261129-225640-[0-9a-f]{4}", run_id)
    run = store.find_run(run_id)
    assert (run.id, run.kind, run.name, run.environment, run.model) == (run_id, "eval", "first", "shop", "tiny")
    assert run.config == {"seed": 1, "lr": [0.5]}
    assert (run.status, run.created, run.finished, run.heartbeat) == ("running", clock.now, None, clock.now)
    assert (run.pid, run.error, run.parent) == (os.getpid(), None, None)
    assert run.versions["python"].startswith("3.")
    assert run.versions["numpy"]


def test_many_runs_of_one_second_have_their_own_ids(store: Store, new_run: NewRun, monkeypatch: Any) -> None:
    drawn = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("etude.store.runs.secrets.token_hex", lambda length: next(drawn))
    assert [new_run()[-4:], new_run()[-4:]] == ["aaaa", "bbbb"]


def test_a_run_is_found_by_id_by_beginning_and_as_the_last(store: Store, new_run: NewRun, clock: Any) -> None:
    first = new_run()
    clock.now += 60
    second = new_run("eval")
    clock.now += 60
    third = new_run()
    assert store.find_run(first).id == first
    assert store.find_run("eval").id == second
    assert store.find_run(third[:21]).id == third
    assert store.find_run("last").id == third
    assert store.find_run("last", kinds=["eval"]).id == second
    assert [run.id for run in store.runs()] == [third, second, first]


def test_an_id_that_begins_another_is_still_found(store: Store, new_run: NewRun, monkeypatch: Any) -> None:
    drawn = iter(["aa", "aabb"])
    monkeypatch.setattr("etude.store.runs.secrets.token_hex", lambda length: next(drawn))
    short, long = new_run(), new_run()
    assert long.startswith(short)
    assert store.find_run(short).id == short


def test_an_ambiguous_or_unknown_name_lists_the_candidates(store: Store, new_run: NewRun) -> None:
    runs = [new_run(name=f"run {number}") for number in range(10)]
    with pytest.raises(ConfigError, match="could be any of 10 runs; write more of the id") as ambiguous:
        store.find_run("train-")
    assert all(run in str(ambiguous.value) for run in runs[2:])
    assert "and 2 more" in str(ambiguous.value)
    with pytest.raises(ConfigError, match="no run 'nope'") as unknown:
        store.find_run("nope")
    assert runs[-1] in str(unknown.value)
    with pytest.raises(ConfigError, match="no run ''"):
        store.find_run("")
    with pytest.raises(ConfigError, match=r"no eval run 'last': .* holds none"):
        store.find_run("last", kinds=["eval"])


def test_wildcards_of_the_database_match_nothing(store: Store, new_run: NewRun) -> None:
    new_run()
    for text in ("%", "train_", "*"):
        with pytest.raises(ConfigError, match="no run"):
            store.find_run(text)


def test_runs_are_filtered(store: Store, new_run: NewRun) -> None:
    parent = new_run()
    child = new_run("regrade", parent=parent)
    store.set_status(parent, "succeeded")
    assert [run.id for run in store.runs(kinds=["regrade"])] == [child]
    assert [run.id for run in store.runs(statuses=["succeeded"])] == [parent]
    assert [run.id for run in store.runs(parent=parent)] == [child]
    assert [run.id for run in store.runs(environment="shop", limit=1)] == [child]
    assert store.runs(environment="other") == []


def test_a_status_is_set_with_its_end_and_error(store: Store, new_run: NewRun, clock: Any) -> None:
    run = new_run()
    clock.now += 5
    store.set_status(run, "failed", error="TrainingError: loss is NaN, last text was \ud83d")
    found = store.find_run(run)
    assert (found.status, found.finished) == ("failed", clock.now)
    assert found.error == r"TrainingError: loss is NaN, last text was \ud83d"
    with pytest.raises(ValueError, match="only create_run and resume_run"):
        store.set_status(run, "running")


def test_an_unknown_run_is_refused_everywhere(store: Store, make_rollout: Any, scenario: Any) -> None:
    uses: list[Callable[[], Any]] = [
        lambda: store.set_status("nope", "failed"),
        lambda: store.heartbeat("nope"),
        lambda: store.resume_run("nope"),
        lambda: store.add_step("nope", 1, {"a": 1}),
        lambda: store.steps("nope"),
        lambda: store.last_step("nope"),
        lambda: store.add_event("nope", "x", level="info", type="message"),
        lambda: store.events("nope"),
        lambda: store.has_event("nope", type="message", step=1),
        lambda: store.truncate_run("nope", 1),
        lambda: store.add_rollouts("nope", 1, "train", [make_rollout()], [scenario]),
        lambda: store.rollouts("nope"),
        lambda: store.count_rollouts("nope"),
        lambda: list(store.iter_rollouts("nope")),
        lambda: list(store.iter_rollouts("nope", dropped="skip")),
        lambda: store.find_rollout("nope", "trace_1"),
        lambda: store.delete_rollouts("nope", phase="train", step=1),
        lambda: store.add_regrades("nope", [make_rollout()]),
        lambda: store.regrades("nope"),
        lambda: store.create_run("regrade", name="x", environment="e", model="m", config={}, parent="nope"),
    ]
    for use in uses:
        with pytest.raises(StorageError, match="no run 'nope' in the store"):
            use()


def test_a_config_that_is_not_json_is_refused_by_place(store: Store) -> None:
    with pytest.raises(StorageError, match=r"the configuration of x cannot be saved: a\.b is a tuple"):
        store.create_run("train", name="x", environment="e", model="m", config={"a": {"b": (1,)}})
    assert store.runs() == []


def test_an_unknown_kind_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="kind 'traim': it is one of train, sft, eval"):
        store.create_run("traim", name="x", environment="e", model="m", config={})  # type: ignore[arg-type]


def test_a_run_whose_process_was_killed_is_interrupted_and_can_be_taken_over(store: Store, clock: Any) -> None:
    code = (
        "import sys; from etude.store import Store\n"
        "store = Store.open(sys.argv[1])\n"
        "print(store.create_run('train', name='x', environment='e', model='m', config={}), flush=True)\n"
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, store.workspace], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    run = child.stdout.readline().strip()
    clock.now += 10 * HEARTBEAT_LIMIT_S  # its heartbeat is old, but the process is there to be seen
    assert store.find_run(run).status == "running"
    with pytest.raises(StorageError, match=rf"run {run} is still running \(process {child.pid} on "):
        store.resume_run(run)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet reaped: a zombie keeps its pid
    assert store.find_run(run).status == "interrupted"
    child.communicate()
    assert store.find_run(run).status == "interrupted"
    assert [found.id for found in store.runs(statuses=["interrupted"])] == [run]

    store.resume_run(run)
    found = store.find_run(run)
    assert (found.status, found.pid, found.heartbeat) == ("running", os.getpid(), clock.now)


def test_a_run_that_ended_is_resumed_without_its_old_end(store: Store, new_run: NewRun) -> None:
    run = new_run()
    store.set_status(run, "cancelled", error="by hand")
    store.resume_run(run)
    found = store.find_run(run)
    assert (found.status, found.error, found.finished) == ("running", None, None)


def test_a_pid_that_was_used_again_is_not_the_run(store: Store, new_run: NewRun) -> None:
    run = new_run()
    rewrite(store, run, process_start="1")
    assert store.find_run(run).status == "interrupted"


def test_elsewhere_the_heartbeat_decides(store: Store, new_run: NewRun, clock: Any) -> None:
    run = new_run()
    rewrite(store, run, host="elsewhere", place="another boot", pid=1, process_start="1")
    clock.now += HEARTBEAT_LIMIT_S
    assert store.find_run(run).status == "running"
    clock.now += 1
    assert store.find_run(run).status == "interrupted"
    store.heartbeat(run)
    assert store.find_run(run).status == "running"


def test_without_proc_a_missing_pid_is_dead_and_a_present_one_lives_by_its_heartbeat(monkeypatch: Any) -> None:
    monkeypatch.setattr("etude.store.process._place", lambda: None)
    mine = ProcessId.current()
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert is_alive(mine, heartbeat_age_s=1)
    assert not is_alive(mine, heartbeat_age_s=HEARTBEAT_LIMIT_S + 1)
    assert not is_alive(ProcessId(mine.host, ended.pid, None, None), heartbeat_age_s=1)


def test_the_commit_is_that_of_the_folder_with_its_changes(tmp_path: Path) -> None:
    assert git_commit(tmp_path / "missing") is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert git_commit(tmp_path) == head
    (tmp_path / "new").write_text("x")
    subprocess.run([*git, "add", "new"], check=True)
    assert git_commit(tmp_path) == f"{head}-dirty"
