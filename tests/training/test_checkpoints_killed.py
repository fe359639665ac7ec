"""kill -9 while checkpoints are written: there is always a whole latest one, and what is left over does not grow."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from etude.training.checkpoints import Checkpoints

# Saves for ever, telling of every piece written and every checkpoint finished, so that the parent can kill it in the
# middle of either without looking at a clock.
SAVE_FOR_EVER = """
import os, sys
from pathlib import Path
from etude.training.checkpoints import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), warn=sys.exit)
latest = checkpoints.latest()
step = latest.step if latest else 0
def write(folder):
    for name in range(6):
        (folder / f"shard-{name}").write_bytes(os.urandom(50_000))
        print("piece", flush=True)
while True:
    step += 1
    checkpoints.save(step, write, {"step": step})
    print("saved", step, flush=True)
    checkpoints.set_validation(step, (step * 7 % 11) / 11)
    print("validated", step, flush=True)
"""

# Repeats one save and validation, each time in a fresh folder and in a fork of its own that is killed one operation
# later than the one before: at every open, rename, mkdir, listing and removal that Python announces.
KILL_AT_EVERY_OPERATION = """
import os, shutil, signal, sys
from pathlib import Path
from etude.training.checkpoints import Checkpoints
os.fsync = lambda descriptor: None  # kill -9 does not take the system down; this is for speed alone
def write(folder):
    (folder / "model").mkdir()
    (folder / "model" / "weights.bin").write_bytes(bytes(10_000))
    (folder / "state.json").write_text("{}")
def work(checkpoints):
    checkpoints.save(3, write, {"step": 3})
    checkpoints.set_validation(3, 0.5)
def run_and_die(checkpoints, at):
    left = at
    def count(event, arguments):
        nonlocal left
        if event != "os.kill" and event.split(".")[0] in ("open", "os", "shutil"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    work(checkpoints)
    os._exit(0)
at = 0
while True:
    folder = Path(sys.argv[1]) / str(at)
    checkpoints = Checkpoints(folder, keep_best=1, warn=sys.exit)
    checkpoints.save(1, write, {"step": 1}, validation_reward=0.4)
    checkpoints.save(2, write, {"step": 2}, validation_reward=0.3)
    child = os.fork()
    if child == 0:
        run_and_die(checkpoints, at)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) == 0:
        break
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
    at += 1
shutil.rmtree(folder)
print(at)
"""


def kill_many_times(folder: Path, times: int, seed: int) -> None:
    draw = random.Random(seed)
    saved = 0
    for _ in range(times):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOR_EVER, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(draw.randint(1, 40))]
        process.kill()
        rest, errors = process.communicate()
        assert errors == ""
        told += rest.splitlines()
        saved = max([saved, *(int(line.split()[1]) for line in told if line.startswith("saved"))])

        warnings: list[str] = []
        latest = Checkpoints(folder, warn=warnings.append).latest()
        assert warnings == []
        if saved or latest is not None:
            assert latest is not None
            assert latest.step in (saved, saved + 1)  # the next one may have been finished and not told of
            assert latest.meta == {"step": latest.step}
            assert len(list(latest.path.glob("shard-*"))) == 6
            saved = latest.step
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        assert len([name for name in names if name.startswith(".tmp-")]) <= 1
        assert len(names) <= 6  # three best, the last, one that was to be pruned, one that was being written


def test_five_kills(tmp_path: Path) -> None:
    kill_many_times(tmp_path / "checkpoints", times=5, seed=0)


@pytest.mark.acceptance
@pytest.mark.parametrize("seed", range(1, 5))
def test_twenty_kills(tmp_path: Path, seed: int) -> None:
    kill_many_times(tmp_path / "checkpoints", times=20, seed=seed)


def test_a_kill_at_any_operation_of_a_save(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", KILL_AT_EVERY_OPERATION, tmp_path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    kills = int(result.stdout)
    assert kills > 30
    outcomes = set()
    for at in range(kills):
        warnings: list[str] = []
        checkpoints = Checkpoints(tmp_path / str(at), keep_best=1, warn=warnings.append)
        latest, best = checkpoints.latest(), checkpoints.best()
        assert warnings == []
        assert latest is not None
        assert best is not None
        outcomes.add((latest.step, best.step))
        checkpoints.save(4, lambda folder: folder.joinpath("weights.bin").write_bytes(b"x"), {})
        names = sorted(path.name for path in checkpoints.folder.iterdir())
        assert names == [f"step-{best.step:06d}", "step-000004"]
    # Before the rename, after it, and after the better reward was noted.
    assert outcomes == {(2, 1), (3, 1), (3, 3)}
