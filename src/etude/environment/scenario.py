"""Scenarios: the rows of data that an environment is played over."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from etude.errors import DataError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Scenario(Mapping[str, Any]):
    """One row of data (the API's `item`). Reads like the row itself: `scenario["question"]`.

    id: unique within the environment. split: "train", "validation" or "test".
    """

    id: str
    split: str
    data: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


def load_scenarios(path: str | Path, split: str | None = None) -> list[Scenario]:
    """The scenarios of a JSONL file: a JSON object a line, UTF-8 (a byte order mark is accepted), blank lines skipped.

    A row's `id` is its key "id", by default "<file stem>-<line>"; its split is its key "split", by default `split`. The
    data is the whole row, those keys included.

    Raises DataError, naming file, line and reason: a file that cannot be read or holds no row, bytes that are not
    UTF-8, a line that is not a JSON object (NaN and infinities are not JSON), an id that repeats, a split that is
    missing, unknown, or not the one asked for.
    """
    path = Path(path)
    scenarios: list[Scenario] = []
    line_of: dict[str, int] = {}
    for number, line in _lines(path):
        where = f"{path}:{number}"
        row = _parse(line, where)
        scenario = scenario_from_row(row, where, default_id=f"{path.stem}-{number}", split=split)
        if scenario.id in line_of:
            raise DataError(f"{where}: the id {scenario.id!r} is already that of line {line_of[scenario.id]}")
        line_of[scenario.id] = number
        scenarios.append(scenario)
    if not scenarios:
        raise DataError(f"{path}: no scenario in it; write one JSON object a line")
    return scenarios


def scenario_from_row(row: Mapping[str, Any], where: str, *, default_id: str, split: str | None) -> Scenario:
    """where: for messages, what the row is called. Raises DataError for an id or a split that cannot be."""
    identifier = row.get("id", default_id)
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    if not isinstance(identifier, str) or not identifier:
        raise DataError(f"{where}: the id is {identifier!r}; it must be a text or a whole number")
    own = row.get("split", split)
    if own is None:
        raise DataError(f'{where}: no split; give the row a key "split" ({", ".join(SPLITS)}) or load it as one')
    if own not in SPLITS:
        raise DataError(f"{where}: the split is {own!r}; it must be one of {', '.join(SPLITS)}")
    if split is not None and own != split:
        raise DataError(f"{where}: the row says split {own!r}, but is used as {split!r}")
    return Scenario(identifier, own, row)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank, split at line feeds only: a text may hold other line separators unescaped."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if number == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                try:
                    line = raw.decode()
                except UnicodeDecodeError as error:
                    raise DataError(f"{path}:{number}: not UTF-8 (byte {error.start + 1} of the line)") from error
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _parse(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line, parse_constant=_refuse_constant, parse_float=_finite)
        if "\\u" in line:  # only an escape can hide half of a surrogate pair, which no tokenizer takes
            json.dumps(row, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON: {error.msg} (column {error.colno})") from error
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: not Unicode: half of a surrogate pair ({error.object[error.start]!r})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object but {type(row).__name__}; a row is {{...}}")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text} is too large")
    return number
