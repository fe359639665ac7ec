"""Ctrl-C and SIGTERM at any moment: the process ends, says how to go on, and what is resumed is completed.

What the process is busy with would take an hour, so it ends because it was told to.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lives import TESTS, Nursery, wait
from support.symbols import save_symbol_model

from etude.store.store import Store

STEPS = 3
MOMENTS = ("loading", "sampling", "learning", "saving", "grader", "tool", "stubborn tool", "tool in a thread",
           "tool that blocks the event loop")  # fmt: skip
FAST = ("learning", "tool that blocks the event loop")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def arguments(folder: Path, moment: str) -> list[str]:
    return [
        "train",
        "environment.entry=support.stopping:world",
        f"environment.args={{moment: '{moment}', marker: '{folder}/marker'}}",
        f"model.name={save_symbol_model(folder / 'model')}",
        "model.chat=symbols",
        f"training.steps={STEPS}",
        "sampling={groups_per_step: 2, rollouts_per_group: 4}",
        "workspace=my work",
    ]


def check_stopped(folder: Path, code: int, output: str) -> str:
    """The run's id."""
    assert code == 130, output
    assert "Traceback" not in output
    with Store.open(folder / "my work") as store:
        (run,) = store.runs()
    assert run.status == "cancelled"
    message = " ".join(output.split())  # it may have been broken into lines
    assert f"stopped; {run.id} is marked cancelled. Go on with: etude train --resume {run.id}" in message
    assert "--workspace 'my work'" in message
    return run.id


def check_completed(folder: Path) -> None:
    with Store.open(folder / "my work") as store:
        (run,) = store.runs()
        assert run.status == "succeeded"
        assert [step.step for step in store.steps(run.id)] == [1, 2, 3]
        assert store.count_rollouts(run.id) == STEPS * 8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "moment", [pytest.param(moment, marks=() if moment in FAST else pytest.mark.acceptance) for moment in MOMENTS]
)
def test_a_stopped_run_is_cancelled_and_completed_later(
    tmp_path: Path, nursery: Nursery, moment: str, number: signal.Signals
) -> None:
    life = nursery.command(tmp_path, *arguments(tmp_path, moment))
    wait(lambda: (tmp_path / "marker").exists() or life.ended())
    life.send(number)
    run = check_stopped(tmp_path, life.wait(), life.output)
    again = nursery.command(tmp_path, "train", "--resume", run, "--workspace", "my work")
    assert again.wait() == 0, again.output
    check_completed(tmp_path)


def test_a_second_signal_ends_it_at_once(tmp_path: Path, nursery: Nursery) -> None:
    life = nursery.command(tmp_path, *arguments(tmp_path, "stubborn tool"))
    wait(lambda: (tmp_path / "marker").exists() or life.ended())
    life.send(signal.SIGINT)
    life.send(signal.SIGINT)
    check_stopped(tmp_path, life.wait(), life.output)


def test_a_signal_while_python_imports_torch(tmp_path: Path) -> None:
    """From the first line of output on, the installed command itself can be stopped."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("etude"), *arguments(tmp_path, "none")],
        cwd=tmp_path, env={"PYTHONPATH": str(TESTS)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    assert re.match(r"train train-\d+", first)
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    run = check_stopped(tmp_path, process.wait(), first + rest)
    assert "step 1/" not in rest, f"{run} was not stopped in time"
