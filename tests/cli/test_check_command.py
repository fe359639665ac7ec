"""`etude check` on the command line: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from etude.cli.check import register
from etude.errors import ConfigError, DataError

GRADERS = """
import etude

def environment(rule="exact", rows=8):
    def exact(rollout, scenario):
        return float(rollout.answer == scenario["answer"])

    def within(rollout, scenario):
        return float((rollout.answer or "") in scenario["answer"])

    made = [{"question": f"What is {n} in hex?", "answer": hex(n * 7919)} for n in range(11, 11 + rows)]
    return etude.Environment("hex", "Answer.", (), {"exact": exact, "within": within}[rule], {"train": made})
"""


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)  # so that the command keeps its name
    register(made)
    return made


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "graders.py").write_text(GRADERS)
    (tmp_path / "config.yaml").write_text("environment: {entry: 'graders.py:environment', args: {rule: within}}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(app: typer.Typer, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *words], env={"COLUMNS": "200", "TERM": "dumb"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_a_sound_grader_ends_with_0(app: typer.Typer) -> None:
    code, output = run(app, "environment.entry=graders.py:environment")
    assert code == 0
    assert "nothing found" in output
    assert "right answers: field 'answer'; they earn 1.000, wrong answers 0.000" in output


def test_a_hackable_one_ends_with_1_and_says_how(app: typer.Typer, folder: Path) -> None:
    code, output = run(app, "config.yaml", "--json", "check.json", "--scenarios", "4")
    assert code == 1
    assert "fail attack.empty: an empty answer is rewarded (4 of 4 scenarios)" in output
    assert "Return 0 first" in output
    report = json.loads((folder / "check.json").read_text())
    assert report["passed"] is False
    assert report["scenarios"] == 4
    assert {"severity", "check", "evidence", "advice", "scenario"} <= report["findings"][0].keys()


def test_the_environment_itself_can_be_named(app: typer.Typer) -> None:
    assert run(app, "graders.py:environment")[0] == 0
    assert run(app, "graders.py:environment", "environment.args.rule=within")[0] == 1


def test_all_that_is_found_can_be_allowed_with_a_reason(app: typer.Typer, folder: Path) -> None:
    run(app, "config.yaml", "--json", "check.json")
    names = {each["check"] for each in json.loads((folder / "check.json").read_text())["findings"]}
    reasons = [word for name in names for word in ("--allow", f"{name}=known, mended in the next version")]
    code, output = run(app, "config.yaml", *reasons)
    assert code == 0
    assert "known, mended in the next version" in output
    with pytest.raises(ConfigError, match="write CHECK=REASON"):
        run(app, "config.yaml", "--allow", "attack.empty")


def test_what_cannot_be_checked_is_an_error_of_its_own(app: typer.Typer) -> None:
    with pytest.raises(ConfigError, match="no scenario of train has a field 'gold'"):
        run(app, "config.yaml", "--reference", "gold")
    with pytest.raises(DataError):
        run(app, "config.yaml", "environment.args.rows=0")
    with pytest.raises(ConfigError):
        run(app)
