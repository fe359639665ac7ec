"""When the disk is full, read-only or damaged, or the database is locked: an error that says what and where, and
everything saved before is still readable."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from etude.environment.scenario import Scenario
from etude.errors import StorageError
from etude.rollout.rollout import Rollout
from etude.rollout.trajectory import Trajectory
from etude.store import Store

NewRun = Callable[..., str]


def fill_until_refused(store: Store, run: str, make: Callable[..., Rollout], scenario: Scenario) -> tuple[str, int]:
    """Save noise until that fails; gives the message and how many steps were saved."""
    step = 0
    while step < 100:
        rollout = make(tokens=4000)
        noise = np.random.default_rng(step).bytes(16_000)
        row = rollout.trajectory.rows[0]
        rollout.trajectory = Trajectory((type(row)(**{**row.arrays(), "tokens": np.frombuffer(noise, np.int32)}),))
        try:
            store.add_rollouts(run, step, "train", [rollout], [scenario])
        except StorageError as error:
            return str(error), step
        step += 1
    return "", step


def test_a_full_disk_loses_nothing_and_the_store_goes_on_when_there_is_room(
    tiny_disk: Path, make_rollout: Callable[..., Rollout], scenario: Scenario
) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    with Store.open(tiny_disk / "workspace") as store:
        run = store.create_run("train", name="x", environment="e", model="m", config={})
        message, saved = fill_until_refused(store, run, make_rollout, scenario)
        assert 5 < saved < 100
        assert f"could not save 1 rollouts of step {saved} of run {run} in {store.path}" in message
        assert "the disk is full" in message
        assert "what was saved before is intact" in message
        assert [row.step for row in store.rollouts(run)] == list(range(saved))
        with pytest.raises(StorageError, match="the disk is full"):
            store.add_step(run, 1, {f"metric {number}": 1.0 for number in range(5000)})
        with Store.open(store.workspace, read_only=True) as reader:  # as another process would
            assert len(list(reader.iter_rollouts(run))) == saved
        ballast.unlink()
        store.add_rollouts(run, saved, "train", [make_rollout()], [scenario])
        assert store.count_rollouts(run) == saved + 1
    with Store.open(tiny_disk / "workspace") as again:
        assert len(list(again.iter_rollouts(run))) == saved + 1


def test_no_room_for_a_new_store_is_an_error_that_names_it(tiny_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (tiny_disk / "ballast").write_bytes(bytes(2_000_000))
    with pytest.raises(StorageError, match=rf"could not (make the workspace|open the store in) {tiny_disk}"):
        Store.open(tiny_disk / "workspace")


# A limit on file sizes stands in for a full disk where no file system can be mounted.
LIMITED = """
import resource, sys
from etude.errors import StorageError
from etude.store import Store
store = Store.open(sys.argv[1])
run = store.create_run("train", name="x", environment="e", model="m", config={})
store.add_step(run, 1, {"loss": 1.0})
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    for step in range(2, 100):
        store.add_step(run, step, {f"metric {number}": 1.0 for number in range(1000)})
except StorageError as error:
    print(store.last_step(run), error)
"""


def test_a_write_that_the_system_refuses_names_step_and_file(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    last, message = result.stdout.split(maxsplit=1)
    assert 1 <= int(last) < 99
    assert f"could not save step {int(last) + 1} of run train-" in message
    assert f"in {tmp_path / 'etude.db'}: " in message
    assert "what was saved before is intact" in message
    with Store.open(tmp_path) as store:
        (run,) = store.runs()
        assert [step.step for step in store.steps(run.id)] == list(range(1, int(last) + 1))


def test_a_read_only_disk_can_be_read_and_says_that_it_cannot_be_written(
    tiny_disk: Path, make_rollout: Callable[..., Rollout], scenario: Scenario
) -> None:
    with Store.open(tiny_disk) as store:
        run = store.create_run("train", name="x", environment="e", model="m", config={})
        store.add_rollouts(run, 1, "train", [make_rollout()], [scenario])
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    with pytest.raises(StorageError, match=rf"could not open the store in {tiny_disk}/etude.db: the file"):
        Store.open(tiny_disk)
    with Store.open(tiny_disk, read_only=True) as reader:
        assert len(list(reader.iter_rollouts(run))) == 1
        with pytest.raises(StorageError, match=f"could not save step 2 of run {run}: .* was opened for reading only"):
            reader.add_step(run, 2, {"loss": 1.0})
    with pytest.raises(StorageError, match=f"could not make the workspace {tiny_disk}/new: Read-only file system"):
        Store.open(tiny_disk / "new")


def test_a_lock_held_by_another_program_is_waited_for_and_then_named(
    tmp_path: Path, make_rollout: Callable[..., Rollout], scenario: Scenario
) -> None:
    with Store.open(tmp_path, busy_timeout_s=0.05) as store:
        run = store.create_run("train", name="x", environment="e", model="m", config={})
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StorageError, match=rf"save step 1 of run {run} in .* another process has it locked for 0.05 s"
        ):
            store.add_step(run, 1, {"loss": 1.0})
        assert store.steps(run) == []  # a locked database is read all the same
        other.execute("COMMIT")
        other.close()
        store.add_step(run, 1, {"loss": 1.0})


def test_a_thread_that_writes_for_ever_is_named(tmp_path: Path) -> None:
    with Store.open(tmp_path, busy_timeout_s=0.05) as store:
        run = store.create_run("train", name="x", environment="e", model="m", config={})
        holds, release = threading.Event(), threading.Event()

        def hold() -> None:
            with store._db.write("hold on"):
                holds.set()
                release.wait(10)

        thread = threading.Thread(target=hold)
        thread.start()
        assert holds.wait(10)
        with pytest.raises(
            StorageError, match=f"note that run {run} is alive: another thread has been writing for 0.05 s"
        ):
            store.heartbeat(run)
        release.set()
        thread.join()
        store.heartbeat(run)


def test_no_store_where_one_is_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"no store at {tmp_path}/etude.db: train or evaluate something first"):
        Store.open(tmp_path, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "etude.db").write_bytes(b"This is a text file, not a database." * 50)
    for read_only in (False, True):
        with pytest.raises(StorageError, match=r"is damaged, or is no Etude store .* move it away"):
            Store.open(tmp_path, read_only=read_only)


def test_a_workspace_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(StorageError, match=f"could not make the workspace {tmp_path}/taken: File exists"):
        Store.open(tmp_path / "taken")


def test_damaged_pages_are_an_error_and_not_an_answer(
    store: Store, new_run: NewRun, make_rollout: Callable[..., Rollout], scenario: Scenario
) -> None:
    run = new_run()
    store.add_rollouts(run, 1, "train", [make_rollout(tokens=3000) for _ in range(20)], [scenario] * 20)
    store.close()
    size = store.path.stat().st_size
    with store.path.open("r+b") as file:
        file.seek(size // 4)
        file.write(os.urandom(size // 2))
    with pytest.raises(StorageError, match="damaged"), Store.open(store.workspace) as again:
        list(again.iter_rollouts(run))


def test_a_file_that_was_deleted_under_a_run_is_missed_and_not_made_anew(store: Store, new_run: NewRun) -> None:
    run = new_run()
    for path in store.workspace.iterdir():
        path.unlink()
    with pytest.raises(StorageError, match=f"could not read the steps of run {run} in .* cannot be opened"):
        store.steps(run)
    assert list(store.workspace.iterdir()) == []


def test_a_closed_store_says_so(store: Store, new_run: NewRun) -> None:
    run = new_run()
    store.close()
    with pytest.raises(StorageError, match=f"could not note that run {run} is alive: the store .* is closed"):
        store.heartbeat(run)
