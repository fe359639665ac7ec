"""What holds for the repository as a whole: light imports, short files, help that teaches, a README that runs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from etude.cli import app
from etude.training.config import describe_fields

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "etude"
HEAVY = ("torch", "transformers")
MOST_LINES = 400


def heavy_after(statements: str) -> list[str]:
    """Which heavy packages a fresh Python holds after these statements."""
    code = f"{statements}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


def modules_of(*folders: str) -> list[str]:
    files = [file for folder in folders for file in (SOURCE / folder).rglob("*.py")]
    return sorted({".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
                   for file in files})  # fmt: skip


def test_importing_etude_imports_no_torch() -> None:
    assert heavy_after("import etude\netude.Environment, etude.tool, etude.Rubric, etude.train") == []


def test_the_parts_that_need_no_model_import_no_torch() -> None:
    modules = modules_of("environment", "rollout", "grading", "store", "cli")
    assert len(modules) > 50
    assert heavy_after("\n".join(f"import {name}" for name in [*modules, "etude.evaluation.statistics"])) == []


def test_help_imports_no_torch() -> None:
    assert heavy_after(
        "import sys\nfrom etude.cli import main\nsys.argv = ['etude', 'train', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0"
    ) == []  # fmt: skip


def imports_of(file: Path) -> Iterator[str]:
    """Packages of ours that a file imports, anywhere in it but for its type annotations."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (name.split(".")[1] for name in names if name.startswith("etude."))


@pytest.mark.parametrize(
    ("folder", "unknown"),
    [
        ("environment", {"rollout", "grading", "engine", "model", "learning", "training", "evaluation", "store"}),
        ("grading", {"engine", "model", "learning", "training", "evaluation", "store"}),
        ("rollout", {"model", "learning", "training", "evaluation", "store"}),
        ("engine", {"rollout", "grading", "environment", "learning", "training", "evaluation", "store"}),
        ("model", {"rollout", "grading", "environment", "engine", "learning", "training", "evaluation", "store"}),
        ("learning", {"rollout", "grading", "environment", "engine", "training", "evaluation", "store"}),
        ("store", {"grading", "engine", "model", "learning", "training", "evaluation"}),
    ],
)
def test_dependencies_point_one_way(folder: str, unknown: set[str]) -> None:
    found = {(file.name, name) for file in (SOURCE / folder).rglob("*.py") for name in imports_of(file)}
    assert {pair for pair in found if pair[1] in {*unknown, "cli"}} == set()


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_no_file_is_long(folder: str) -> None:
    lengths = {file: len(file.read_text().splitlines()) for file in (ROOT / folder).rglob("*.py")}
    assert lengths
    assert {str(file): length for file, length in lengths.items() if length > MOST_LINES} == {}


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*words, name))


def help_of(words: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "160", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return result.output


COMMANDS = list(commands(typer.main.get_command(app)))


def test_all_commands_are_there() -> None:
    assert {words[0] for words in COMMANDS if words} >= {
        "sft", "train", "eval", "regrade", "runs", "show", "models", "mail"
    }  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "etude")
def test_help_teaches_with_an_example(words: tuple[str, ...]) -> None:
    text = help_of(words)
    command = " ".join(["etude", *words])
    lines = [line.strip(" │") for line in text.splitlines()]
    examples = [line for line in lines if line == command or line.startswith(f"{command} ")]
    assert examples, text


def test_every_field_of_the_configuration_is_listed_and_explained() -> None:
    result = CliRunner().invoke(app, ["train", "--fields"], env={"COLUMNS": "400", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.output.splitlines() if line.strip()}
    fields = describe_fields()
    assert len(fields) > 40
    for name, default, description in fields:
        assert default in lines[name], name
        assert " ".join(description.split())[:60] in " ".join(lines[name].split()), name


def readme_example() -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    defining = [block for block in blocks if "Environment(" in block]
    assert defining, "README.md has no example of Python that makes an Environment"
    return str(defining[0])


def test_the_example_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    example = readme_example()
    assert "etude.train(" in example
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run, model = done.stdout.split()
    assert (tmp_path / model / "model.safetensors").is_file()
    assert (tmp_path / ".etude" / "runs" / run / "config.yaml").is_file()
