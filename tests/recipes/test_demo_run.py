"""`etude demo` from start to end at a small size: what it leaves, how it goes on, when it starts anew."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from support.lives import Nursery, wait
from typer.testing import CliRunner

from etude.cli import app
from etude.recipes.email_demo.demo import PROGRESS_FILE, RESULT_FILE
from etude.recipes.email_demo.progress import Progress, load_progress
from etude.store.store import Store
from etude.training.config import load_config

SIZE = (
    "{inboxes: 1, mails_per_inbox: 200, train_questions: 40, validation_questions: 12, test_questions: 16, "
    "reward: binary, folder: FOLDER}"
)


def small(workspace: Path, folder: Path, *more: str) -> list[str]:
    return [
        f"workspace={workspace}",
        f"environment.args={SIZE.replace('FOLDER', str(folder))}",
        "sampling={groups_per_step: 2, rollouts_per_group: 4, max_concurrent: 16}",
        "training={steps: 3, eval_every: 1, checkpoint_every: 1, eval_scenarios: 6}",
        "learning.warmup_steps=0",
        "threads=1",
        *more,
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("companies")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> tuple[Path, str]:
    workspace = tmp_path_factory.mktemp("finished")
    return workspace, demo(*small(workspace, folder))


def demo(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["demo", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_figures_are_those_of_its_own_runs_on_questions_that_training_never_saw(
    finished: tuple[Path, str],
) -> None:
    workspace, _ = finished
    made = json.loads((workspace / RESULT_FILE).read_text())
    assert made["before"].keys() == made["after"].keys() == made["difference"].keys()
    assert (made["steps"], made["scenarios"], made["rollouts"]) == (3, 16, 24)
    assert 0 < made["wall_s"] < 600
    with Store.open(workspace) as store:
        rows = {stage: store.rollouts(run) for stage, run in made["runs"].items()}
        for stage in ("before", "after"):
            right = [row.metrics["answer_correct"] for row in rows[stage]]
            assert made[stage]["answer_correct"] == pytest.approx(sum(right) / len(right))
            assert {row.split for row in rows[stage]} == {"test"}
            assert store.find_run(made["runs"][stage]).config["eval"]["temperature"] == 0.0
        assert {row.split for row in rows["train"]} == {"train", "validation"}
        assert store.find_run(made["runs"]["after"]).model == f"run:{made['runs']['train']}"
    for name, change in made["difference"].items():
        low, high = change["ci95"]
        assert low <= change["value"] <= high
        assert change["value"] == pytest.approx(made["after"][name] - made["before"][name])


def test_it_shows_a_table_a_curve_and_the_way_on(finished: tuple[Path, str]) -> None:
    workspace, output = finished
    assert "A new demo." in output
    for words in ("before", "after", "95 % interval", "right", "turns", "tokens written", "sources named: recall"):
        assert words in output
    assert "█" in output
    commands = re.findall(r"^  etude (\w+) (\S+)", output, re.MULTILINE)
    assert [command for command, _ in commands] == ["show", "show", "show", "demo", "init"]
    for command in re.findall(r"^  etude (show .*)$", output, re.MULTILINE):
        shown = CliRunner().invoke(app, command.split())
        assert shown.exit_code == 0, shown.output
    assert (workspace / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_demo_starts_anew_and_says_so(finished: tuple[Path, str], folder: Path) -> None:
    workspace, _ = finished
    before = json.loads((workspace / RESULT_FILE).read_text())
    output = demo(*small(workspace, folder, "training.steps=1"))
    assert "the last one here was finished" in output
    after = json.loads((workspace / RESULT_FILE).read_text())
    assert not set(before["runs"].values()) & set(after["runs"].values())


def test_stopped_in_training_it_goes_on(tmp_path: Path, folder: Path, nursery: Nursery) -> None:
    workspace = tmp_path / "work"
    arguments = small(workspace, folder, "training.steps=4")
    life = nursery.command(tmp_path, "demo", *arguments)
    wait(lambda: life.ended() or (life.log.exists() and "step 2/4" in life.output))
    life.send(signal.SIGINT)
    assert life.wait() == 130, life.output
    assert not (workspace / RESULT_FILE).exists()
    again = nursery.command(tmp_path, "demo", *arguments)
    assert again.wait() == 0, again.output
    assert "Going on with the demo that was stopped here" in again.output
    assert "resumed at step" in again.output
    made = json.loads((workspace / RESULT_FILE).read_text())
    with Store.open(workspace) as store:
        assert len(store.runs(kinds=["train"])) == 1
        assert len(store.runs(kinds=["eval"])) == 2
        assert [step.step for step in store.steps(made["runs"]["train"])] == [1, 2, 3, 4]


@pytest.mark.acceptance
def test_other_settings_do_not_go_on_with_what_was_stopped(tmp_path: Path, folder: Path) -> None:
    arguments = small(tmp_path, folder, "training.steps=1")
    settings = load_config("email_demo", [*arguments, "seed=1"]).model_dump(mode="json", exclude={"workspace"})
    Progress(settings, runs={"before": "eval-gone"}, done=["before"]).save(tmp_path / PROGRESS_FILE)
    assert "had other settings" in demo(*arguments)
    Progress(settings, runs={"before": "eval-gone"}, done=["before"]).save(tmp_path / PROGRESS_FILE)
    output = demo(*arguments, "seed=1")  # its runs are gone, as where etude.db was deleted
    assert "Going on" in output
    held = load_progress(tmp_path / PROGRESS_FILE)
    assert held is not None
    assert held.finished


def test_a_damaged_progress_file_is_named(tmp_path: Path, folder: Path) -> None:
    (tmp_path / PROGRESS_FILE).write_text("{")
    result = CliRunner().invoke(app, ["demo", *small(tmp_path, folder)])
    assert PROGRESS_FILE in str(result.exception)
    assert "delete it" in str(result.exception)


@pytest.mark.acceptance
def test_a_full_disk_ends_it_with_its_code_and_it_goes_on_where_there_is_room(
    tmp_path: Path, folder: Path, nursery: Nursery, tiny_disk: Path
) -> None:
    arguments = small(tiny_disk, folder, "training.steps=2")
    life = nursery.command(tmp_path, "demo", *arguments)
    assert life.wait() == 5, life.output
    assert "Traceback" not in life.output
    subprocess.run(["mount", "-o", "remount,size=256m", tiny_disk], check=True)
    again = nursery.command(tmp_path, "demo", *arguments)
    assert again.wait() == 0, again.output
    assert "Going on with the demo that was stopped here" in again.output
    assert json.loads((tiny_disk / RESULT_FILE).read_text())["steps"] == 2
