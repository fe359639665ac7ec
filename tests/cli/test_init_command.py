"""What `etude init` makes runs as it is, and its own README's commands lead to a model that has learned."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from etude.cli import app
from etude.store.store import Store


def etude(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "etude", *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_template_trains_as_it_is(tmp_path: Path) -> None:
    output = etude(tmp_path, "init", "mine")
    (command,) = re.findall(r"cd mine && etude (train [^,]*),", " ".join(output.split()))
    assert "step 2/2" in etude(tmp_path / "mine", *shlex.split(command))


@pytest.mark.acceptance
def test_the_templates_commands_lead_to_a_model_that_answers(tmp_path: Path) -> None:
    assert "made" in etude(tmp_path, "init", "mine")
    folder = tmp_path / "mine"
    commands = re.findall(r"^etude (.*?)(?:\s+#.*)?$", (folder / "README.md").read_text(), re.MULTILINE)
    outputs = [etude(folder, *shlex.split(command)) for command in commands]
    assert len(outputs) == 5
    with Store.open(folder / ".etude") as store:
        trained, imitated, expert, random = store.runs()
        right = {
            run.id: [event for event in store.events(run.id) if event.type == "validation"][-1].data["metrics"]
            for run in (random, expert)
        }
        assert imitated.kind == "sft"
        assert right[expert.id]["metric/answer_correct"] == 1.0
        assert right[random.id]["metric/answer_correct"] == 0.0
        # What the toy imitated it can do at least sometimes, which it could not before.
        assert any(step.metrics["metric/answer_correct"] for step in store.steps(trained.id))


@pytest.mark.parametrize("there", ["file", "full folder"])
def test_nothing_is_written_over(tmp_path: Path, there: str) -> None:
    place = tmp_path / "mine"
    if there == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    result = CliRunner().invoke(app, ["init", str(place)])
    assert "not an empty folder" in str(result.exception)
    assert (place if there == "file" else place / "notes.txt").read_text() == "mine"
