"""One store, many threads and processes at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etude.environment.scenario import Scenario
from etude.rollout.rollout import Rollout
from etude.store import Store

NewRun = Callable[..., str]

WRITER = """
import sys
from etude.store import Store
with Store.open(sys.argv[1]) as store:
    run = store.create_run("train", name=sys.argv[2], environment="e", model="m", config={})
    print(run, flush=True)
    for step in range(int(sys.argv[3])):
        store.add_step(run, step, {"loss": float(step)})
        store.add_event(run, f"step {step}", level="info", type="message", step=step)
"""

KILLED = """
import sys
from etude.store import Store
store = Store.open(sys.argv[1])
run = store.create_run("train", name="x", environment="e", model="m", config={})
step = 0
while True:
    store.add_step(run, step, {f"metric {number}": float(number) for number in range(300)})
    print(step, flush=True)
    step += 1
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_many_threads_write_and_read_at_once(
    store: Store, new_run: NewRun, make_rollout: Callable[..., Rollout], scenario: Scenario
) -> None:
    run = new_run()
    rollouts = [make_rollout() for _ in range(60)]

    def work(step: int) -> int:
        store.add_rollouts(run, step, "train", [rollouts[step]], [scenario])
        store.add_step(run, step, {"loss": 1.0})
        store.heartbeat(run)
        return len(list(store.iter_rollouts(run, step=step))) + len(store.steps(run, after=step - 1))

    with ThreadPoolExecutor(12) as pool:
        assert min(pool.map(work, range(60))) >= 2
    assert store.count_rollouts(run) == 60
    assert [step.step for step in store.steps(run)] == list(range(60))


def test_one_event_loop_uses_worker_threads(store: Store, new_run: NewRun) -> None:
    run = new_run()

    async def main() -> None:
        await asyncio.gather(*(asyncio.to_thread(store.add_step, run, step, {"loss": 1.0}) for step in range(20)))

    asyncio.run(main())
    assert store.last_step(run) == 19


def test_processes_open_one_new_store_and_write_at_once(tmp_path: Path) -> None:
    processes = [start(WRITER, tmp_path, name, 20) for name in "abc"]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    with Store.open(tmp_path, read_only=True) as store:
        assert sorted(run.name for run in store.runs()) == ["a", "b", "c"]
        for run in store.runs():
            assert [step.step for step in store.steps(run.id)] == list(range(20))
            assert [event.message for event in store.events(run.id)] == [f"step {step}" for step in range(20)]


def test_a_reader_follows_a_run_while_it_is_written(tmp_path: Path) -> None:
    process = start(WRITER, tmp_path, "followed", 50)
    assert process.stdout is not None
    run = process.stdout.readline().strip()
    seen: list[str] = []
    cursor = 0
    with Store.open(tmp_path, read_only=True) as reader:
        while len(seen) < 50:
            assert process.poll() in (None, 0), process.communicate()
            for event in reader.events(run, after=cursor):
                seen.append(event.message)
                cursor = event.id
                assert event.step is not None
                assert reader.steps(run, after=event.step - 1)  # what was written before an event is there with it
    process.communicate()
    assert seen == [f"step {step}" for step in range(50)]


def kill_at(tmp_path: Path, progress: int) -> None:
    """Kill a writer after so many acknowledged steps: all of those are there, and the file is sound."""
    process = start(KILLED, tmp_path)
    assert process.stdout is not None
    for _ in range(progress):
        acknowledged = int(process.stdout.readline())
    process.kill()
    acknowledged = max([acknowledged, *map(int, process.communicate()[0].split())])
    with Store.open(tmp_path) as store:
        run = store.find_run("last")
        steps = store.steps(run.id)
        assert [step.step for step in steps] == list(range(len(steps)))
        assert len(steps) in (acknowledged + 1, acknowledged + 2)
        assert all(len(step.metrics) == 300 for step in steps)
        assert run.status == "interrupted"
        with store._db.read("check") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


@pytest.mark.parametrize("progress", [1, 7, 40])
def test_a_killed_writer_loses_nothing_that_it_had_saved(tmp_path: Path, progress: int) -> None:
    kill_at(tmp_path, progress)


@pytest.mark.acceptance
@pytest.mark.parametrize("progress", range(2, 200, 9))
def test_a_killed_writer_loses_nothing_at_any_moment(tmp_path: Path, progress: int) -> None:
    kill_at(tmp_path, progress)
