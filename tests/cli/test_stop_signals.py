"""Ctrl-C and SIGTERM at any moment: the process ends, says how to go on, and what is resumed is completed.

What the process is busy with would take an hour, so it ends because it was told to.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.lives import Nursery, wait
from support.symbols import save_symbol_model

from etude.environment.calls import ToolCall
from etude.rollout.messages import Message
from etude.rollout.traces import Trace, save_traces
from etude.store.store import Store

STEPS = 3
MOMENTS = ("loading", "sampling", "learning", "saving", "grader", "tool", "stubborn tool", "tool in a thread",
           "tool that blocks the event loop")  # fmt: skip
ALL = [(moment, number) for moment in MOMENTS for number in (signal.SIGINT, signal.SIGTERM)]
FAST = {("learning", signal.SIGINT), ("tool that blocks the event loop", signal.SIGTERM)}


def arguments(folder: Path, moment: str, command: str = "train") -> list[str]:
    return [
        command,
        "environment.entry=support.stopping:world",
        f"environment.args={{moment: '{moment}', marker: '{folder}/marker'}}",
        f"model.name={save_symbol_model(folder / 'model')}",
        "model.chat=symbols",
        f"training.steps={STEPS}",
        "sampling={groups_per_step: 2, rollouts_per_group: 4}",
        "workspace=my work",
    ]


def check_stopped(folder: Path, code: int, output: str, command: str = "train") -> str:
    """The run's id."""
    assert code == 130, output
    assert "Traceback" not in output
    with Store.open(folder / "my work") as store:
        (run,) = store.runs()
    assert run.status == "cancelled"
    message = " ".join(output.split())  # it may have been broken into lines
    told = f"stopped; {run.id} is marked cancelled."
    if command != "eval":
        told += f" Go on with: etude {command} --resume {run.id} --workspace 'my work'"
    assert told in message
    return run.id


def check_completed(folder: Path) -> None:
    with Store.open(folder / "my work") as store:
        (run,) = store.runs()
        assert run.status == "succeeded"
        assert [step.step for step in store.steps(run.id)] == [1, 2, 3]
        assert store.count_rollouts(run.id) == STEPS * 8


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param(*each, marks=() if each in FAST else pytest.mark.acceptance, id=f"{each[0]}, {each[1].name}")
        for each in ALL
    ],
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
    life.send(signal.SIGTERM)
    check_stopped(tmp_path, life.wait(), life.output)


def test_a_stopped_evaluation_is_cancelled(tmp_path: Path, nursery: Nursery) -> None:
    life = nursery.command(tmp_path, *arguments(tmp_path, "sampling", "eval"))
    wait(lambda: (tmp_path / "marker").exists() or life.ended())
    life.send(signal.SIGINT)
    check_stopped(tmp_path, life.wait(), life.output, "eval")


def test_a_stopped_warm_start_is_completed_later(tmp_path: Path, nursery: Nursery) -> None:
    turns = [Message("user", "drawer0"), Message("assistant", "", (ToolCall("open_drawer", {"number": 0}),))]
    save_traces(tmp_path / "traces.jsonl", [Trace(tuple(turns), ())] * 4)
    sft = f"sft={{traces: {tmp_path}/traces.jsonl, epochs: {STEPS}, rows_per_step: 4}}"
    life = nursery.command(tmp_path, *arguments(tmp_path, "imitating", "sft"), sft)
    wait(lambda: (tmp_path / "marker").exists() or life.ended())
    life.send(signal.SIGTERM)
    run = check_stopped(tmp_path, life.wait(), life.output, "sft")
    again = nursery.command(tmp_path, "sft", "--resume", run, "--workspace", "my work")
    assert again.wait() == 0, again.output
    assert "resumed at step 2" in again.output
    with Store.open(tmp_path / "my work") as store:
        assert [step.step for step in store.steps(run)] == [1, 2, 3]


PLAIN_WORLD = """
import etude
def world():
    return etude.Environment("plain", "", [], lambda rollout, scenario: 0.0, {"train": [{"question": "Well?"}]})
"""


def test_the_installed_command_stops_while_it_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(PLAIN_WORLD)
    process = subprocess.Popen(
        [
            Path(sys.executable).with_name("etude"),
            "train", "environment.entry=world.py:world", "model.name=tiny-random", "workspace=my work",
        ],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    assert re.match(r"train train-\d+", first)
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    check_stopped(tmp_path, process.wait(), first + rest)
    assert "step 1/" not in rest
