"""What goes wrong while a run goes on, through the command line: said, counted, never a reward, and nothing lost."""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.lives import Life, Nursery, wait
from support.symbols import save_symbol_model

from etude.store.records import Run
from etude.store.store import Store
from etude.training.checkpoints import Checkpoints

WORLD = """
from support.symbols import VALUES, drawers, reward

def missing(rollout, scenario):
    return float(rollout.answer == scenario["gold"])

async def some_missing(rollout, scenario):
    if scenario["asked"] == 1:
        scenario["gold"]
    return await reward(rollout, scenario)

def all_broken():
    return drawers(missing)

def some_broken():
    return drawers(some_missing)

def endless():
    async def forever(rollout, scenario):
        import asyncio
        from pathlib import Path
        Path("playing").touch()
        await asyncio.sleep(3600)
    return drawers(forever)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "world.py").write_text(WORLD)
    save_symbol_model(tmp_path / "model")
    (tmp_path / "run.yaml").write_text(
        "environment: {entry: 'support.symbols:drawers'}\n"
        f"model: {{name: '{tmp_path}/model', chat: symbols}}\n"
        "sampling: {groups_per_step: 4, rollouts_per_group: 4, max_retries: 1}\n"
        "training: {steps: 4}\n"
    )
    return tmp_path


def train(nursery: Nursery, here: Path, *changes: str) -> Life:
    return nursery.command(here, "train", "run.yaml", *changes)


def message(life: Life) -> str:
    """In one line; without a traceback."""
    assert "Traceback" not in life.output
    return " ".join(life.output.split())


def only_run(workspace: Path) -> Run:
    with Store.open(workspace) as store:
        (run,) = store.runs()
    return run


def test_a_grader_that_always_raises_stops_the_run_and_is_never_a_reward(here: Path, nursery: Nursery) -> None:
    life = train(nursery, here, "environment.entry=world.py:all_broken")
    assert life.wait() == 6, life.output
    text = message(life)
    assert "error: 100% of the last 50 rollouts faulted" in text
    assert "grader:missing exception: KeyError: 'gold'" in text
    assert re.search(r"world\.py, line 5\b", text)
    assert life.output.count("warn: grader:missing") == 1, "the same over and over"
    run = only_run(here / ".etude")
    assert run.status == "failed"
    assert run.error is not None
    assert "grader:missing" in run.error
    with Store.open(here / ".etude") as store:
        rollouts = store.rollouts(run.id)
        assert store.steps(run.id) == []
    assert {(row.reward, row.fault_where) for row in rollouts if row.outcome == "grader_fault"} == {
        (None, "grader:missing")
    }
    assert all(row.outcome in ("grader_fault", "policy_fault") for row in rollouts)
    assert sum(row.outcome == "grader_fault" for row in rollouts) >= 50


def test_a_scenario_without_an_answer_is_counted_and_left_out(here: Path, nursery: Nursery) -> None:
    life = train(nursery, here, "environment.entry=world.py:some_broken", "training.max_fault_rate=1")
    assert life.wait() == 0, life.output
    run = only_run(here / ".etude")
    with Store.open(here / ".etude") as store:
        outcomes = store.count_outcomes(run.id)
        steps = store.steps(run.id)
        rewarded = Counter(saved.scenario["asked"] for saved in store.iter_rollouts(run.id)
                           if saved.rollout.reward is not None)  # fmt: skip
        faults = [event for event in store.events(run.id) if event.type == "fault"]
        dropped = [event.data["reason"] for event in store.events(run.id) if event.type == "dropped"]
    assert len(steps) == 4
    assert all(step.metrics["rollouts/scored"] == 16 for step in steps)
    assert rewarded == {0: 64}
    assert outcomes["grader_fault"] == len(faults) > 0
    assert all("KeyError: 'gold'" in event.message for event in faults)
    assert dropped
    assert set(dropped) == {"too_few_scored"}
    assert sum(step.metrics.get("dropped/too_few_scored", 0) for step in steps) == len(dropped)


def test_a_full_disk_loses_nothing_and_the_run_goes_on_where_there_is_room(
    here: Path, nursery: Nursery, tiny_disk: Path
) -> None:
    life = train(nursery, here, f"workspace={tiny_disk}")
    assert life.wait() == 5, life.output
    text = message(life)
    assert "error: could not" in text
    assert "the disk is full" in text
    assert "intact" in text
    before = only_run(tiny_disk)
    assert before.status in ("failed", "interrupted")  # the store itself may have had no room for "failed"
    checkpoints = Checkpoints(tiny_disk / "runs" / before.id / "checkpoints")
    saved = checkpoints.latest()
    assert saved is not None
    assert not list(checkpoints.folder.glob(".tmp-*"))
    subprocess.run(["mount", "-o", "remount,size=16m", tiny_disk], check=True)
    again = nursery.command(here, "train", "--resume", "last", "--workspace", str(tiny_disk))
    assert again.wait() == 0, again.output
    assert f"resumed at step {saved.step}" in message(again)
    with Store.open(tiny_disk) as store:
        assert [step.step for step in store.steps(before.id)] == [1, 2, 3, 4]
        assert store.count_rollouts(before.id) == 64


def test_a_workspace_that_cannot_be_written(here: Path, nursery: Nursery, tiny_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    for workspace in (tiny_disk, tiny_disk / "below"):
        life = train(nursery, here, f"workspace={workspace}")
        assert life.wait() == 5, life.output
        assert message(life).startswith("error: ")
        assert str(tiny_disk) in life.output


def test_a_finished_run_is_not_resumed(here: Path, nursery: Nursery) -> None:
    assert train(nursery, here, "training.steps=1").wait() == 0
    run = only_run(here / ".etude")
    for arguments, words in (
        (("train", "--resume", run.id), "has ended (succeeded); start a new run with model.name=run:"),
        (("sft", "--resume", run.id), "is a run of kind train"),
        (("sft", "--resume", "last"), "no sft run 'last'"),
        (("train", "--resume", "train-2020"), f"no run 'train-2020' in .etude/etude.db; there are: {run.id}"),
    ):
        life = nursery.command(here, *arguments)
        assert life.wait() == 2, life.output
        assert words in message(life)
    assert only_run(here / ".etude") == run


def test_two_processes_do_not_have_one_run(here: Path, nursery: Nursery) -> None:
    first = train(nursery, here, "environment.entry=world.py:endless")
    wait(lambda: (here / "playing").exists() or first.ended())
    run = only_run(here / ".etude")
    assert run.status == "running"
    second = nursery.command(here, "train", "--resume", run.id)
    assert second.wait() == 5, second.output
    assert f"run {run.id} is still running (process {first.pid} on " in message(second)
    assert not first.ended()
    first.send(signal.SIGINT)
    assert first.wait() == 130
    assert only_run(here / ".etude").status == "cancelled"


def test_of_two_that_resume_at_once_one_has_it(here: Path, nursery: Nursery) -> None:
    """A killed run, and two people who see it at the same time."""
    first = train(nursery, here, "training.steps=12")
    wait(lambda: bool(list(here.glob(".etude/runs/*/checkpoints/step-*"))) or first.ended())
    assert first.kill()
    lives = [nursery.command(here, "train", "--resume", "last") for _ in range(2)]
    codes = sorted(life.wait() for life in lives)
    assert codes == [0, 5], [life.output for life in lives]
    run = only_run(here / ".etude")
    assert run.status == "succeeded"
    with Store.open(here / ".etude") as store:
        assert [step.step for step in store.steps(run.id)] == list(range(1, 13))
        assert store.count_rollouts(run.id) == 12 * 16


def test_a_damaged_checkpoint_is_told_of_and_the_one_before_is_used(here: Path, nursery: Nursery) -> None:
    first = train(nursery, here, "training={steps: 10, eval_every: 1, eval_scenarios: 2}")
    folder = ".etude/runs/*/checkpoints/step-*"
    wait(lambda: len(list(here.glob(folder))) >= 3 or first.ended())
    assert first.kill()
    last = sorted(here.glob(folder))[-1]
    weights = last / "model" / "model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    again = nursery.command(here, "train", "--resume", "last")
    assert again.wait() == 0, again.output
    assert f"{last.name} is damaged" in message(again)
    assert re.search(r"resumed at step \d+", message(again))
    with Store.open(here / ".etude") as store:
        assert [step.step for step in store.steps(only_run(here / ".etude").id)] == list(range(1, 11))
