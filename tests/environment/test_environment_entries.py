"""Entry points: module, file or recipe, each refused with what is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.environment.environment import Environment, load_environment
from etude.errors import ConfigError, DataError, EtudeError

SOURCE = '''
from __future__ import annotations

from dataclasses import dataclass

from etude.environment.environment import Environment
from etude.errors import DataError
from helper_beside_the_entry import QUESTION


@dataclass
class Point:
    x: int


def move(point: Point) -> int:
    """Move to it."""
    return point.x


def make(name: str = "toy", count: int = 1) -> Environment:
    rows = [{"question": QUESTION} for _ in range(count)]
    return Environment(name, "Go.", [move], lambda rollout, scenario: 1.0, {"train": rows})


def needs(path: str) -> Environment:
    return make()


def gives_dict() -> dict:
    return {}


def raises() -> Environment:
    raise ValueError("no such inbox")


def raises_ours() -> Environment:
    raise DataError("mail.jsonl:3: broken")


not_a_function = 3
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with an environment in it; what it imports is forgotten afterwards."""
    (tmp_path / "toy_environment.py").write_text(SOURCE)
    (tmp_path / "helper_beside_the_entry.py").write_text('QUESTION = "Where?"\n')
    (tmp_path / "toy_package").mkdir()
    (tmp_path / "toy_package" / "__init__.py").touch()
    (tmp_path / "toy_package" / "inner.py").write_text(SOURCE)
    (tmp_path / "syntax_error.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "import_error.py").write_text("import a_package_that_is_not_there\n")
    (tmp_path / "name_error.py").write_text("x = 1\nprint(y)\n")
    (tmp_path / "bad_tool.py").write_text("from etude.environment.tools import tool\n@tool\ndef f(a): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("entry", ["toy_environment.py:make", "toy_environment:make", "toy_package.inner:make"])
def test_an_entry_is_found_and_called_with_the_arguments(folder: Path, entry: str) -> None:
    made = load_environment(entry, {"name": "other", "count": 2})
    assert isinstance(made, Environment)
    assert (made.name, len(made.scenarios_of("train"))) == ("other", 2)
    assert made.prompt_for(made.scenarios_of("train")[0]) == "Where?"
    assert made.tools_by_name["move"].read_arguments({"point": {"x": 4}})["point"].x == 4


def test_a_file_may_lie_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert load_environment(f"{folder}/toy_environment.py:make", {}).name == "toy"


def test_two_files_of_one_name_are_two_modules(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "toy_environment.py").write_text(SOURCE.replace('"toy"', '"second toy"'))
    names = [load_environment(entry, {}).name for entry in ("toy_environment.py:make", "other/toy_environment.py:make")]
    assert names == ["toy", "second toy"]


def test_the_name_of_a_recipe_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import etude.recipes

    (tmp_path / "toy_recipe.py").write_text(SOURCE.replace("def make", "def environment"))
    (tmp_path / "helper_beside_the_entry.py").write_text('QUESTION = "Where?"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(etude.recipes, "__path__", [*etude.recipes.__path__, str(tmp_path)])
    assert load_environment("toy_recipe", {"count": 3}).name == "toy"
    with pytest.raises(ConfigError, match=r"no recipe 'toy_recip' \(recipes: .*toy_recipe.*\); use 'package"):
        load_environment("toy_recip", {})


@pytest.mark.parametrize(
    ("entry", "args", "words"),
    [
        ("missing.py:make", {}, ["there is no file missing.py", "working directory"]),
        ("toy_environment.py:mak", {}, ["toy_environment.py has no function 'mak'"]),
        ("toy_environment:mak", {}, ["toy_environment has no function 'mak'"]),
        ("toy_environment.py:not_a_function", {}, ["'not_a_function' is a int, not a function"]),
        ("no_such_module:make", {}, ["there is no module 'no_such_module'", "use 'package.module:function'"]),
        ("toy_package.no_such:make", {}, ["there is no module 'toy_package.no_such'"]),
        ("no_such.inner:make", {}, ["there is no module 'no_such'"]),
        (":make", {}, ["importing it raised ValueError"]),
        ("toy_environment.py", {}, ["there is no recipe", "'path/to/file.py:function'"]),
        ("toy_environment.py:make", {"colour": 1}, ["unexpected keyword argument 'colour'", "takes: name, count"]),
        ("toy_environment.py:needs", {}, ["missing a required argument: 'path'", "takes: path"]),
        ("toy_environment.py:gives_dict", {}, ["returned dict", "Environment"]),
        ("toy_environment.py:raises", {}, ["raised ValueError: no such inbox", "toy_environment.py, line"]),
        ("syntax_error.py:make", {}, ["SyntaxError", "syntax_error.py, line 2"]),
        ("import_error.py:make", {}, ["No module named 'a_package_that_is_not_there'", "import_error.py, line 1"]),
        ("import_error:make", {}, ["No module named 'a_package_that_is_not_there'", "import_error.py, line 1"]),
        ("name_error.py:make", {}, ["NameError", "name_error.py, line 2"]),
        ("bad_tool.py:make", {}, ["tool f: parameter 'a' has no type"]),
    ],
)
def test_what_cannot_be_loaded_is_refused(folder: Path, entry: str, args: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        load_environment(entry, args)
    assert [word for word in words if word not in str(refused.value)] == []


def test_our_own_errors_keep_their_kind(folder: Path) -> None:
    with pytest.raises(DataError, match=r"^mail\.jsonl:3: broken$") as raised:
        load_environment("toy_environment.py:raises_ours", {})
    assert isinstance(raised.value, EtudeError)
