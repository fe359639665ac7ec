"""Recorded runs: the figures of their steps and validations, small enough to keep in the repository."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.training.health.history import Figures, Moment
from etude.training.health.rule import Alert
from etude.training.health.rules import Monitor

FILE = Path(__file__).resolve().parent.parent / "training" / "recorded" / "health_runs.json.xz"
FIRST_TEST_SEED = 20  # seeds below it set the thresholds; of some rules, those below another
_MENDED_LATER = dict.fromkeys(("turns_rising", "calls_at_cap", "duplicate_calls", "outputs_converging"), 50)
_MENDED_LATER["policy_shift"] = 60
DIGITS = 6  # significant ones
LEFT_OUT = ("time/", "memory/", "engine/", "stop/", "outcome/", "parse_failure/")  # no rule looks at these


@dataclass(frozen=True)
class Recorded:
    """One run of a world of `support.unhealthy`, or of the e-mail demo."""

    world: str
    seed: int
    moments: Sequence[Moment]


def is_a_test_of(run: Recorded, rule: str) -> bool:
    """Whether the run was made after the rule's thresholds were last changed."""
    return run.seed >= _MENDED_LATER.get(rule, FIRST_TEST_SEED)


def alerts_of(run: Recorded, thresholds: Mapping[str, Mapping[str, float]] | None = None) -> list[Alert]:
    """What a run that was watched from its beginning would have been told."""
    monitor = Monitor("answer_correct", thresholds or {})
    return [alert for moment in run.moments for alert in monitor.see(moment)]


def save(runs: Iterable[Recorded], file: Path = FILE) -> None:
    text = json.dumps([_as_columns(run) for run in runs], separators=(",", ":"))
    file.write_bytes(lzma.compress(text.encode(), preset=9))


def load(file: Path = FILE) -> list[Recorded]:
    return [_from_columns(each) for each in json.loads(lzma.decompress(file.read_bytes()))]


def _as_columns(run: Recorded) -> dict[str, Any]:
    """Figures by name: the same name at every step costs nothing once it is compressed so."""
    return {
        "world": run.world,
        "seed": run.seed,
        "steps": [moment.step for moment in run.moments],
        "figures": _columns([moment.figures for moment in run.moments]),
        "validated": [moment.step for moment in run.moments if moment.validation is not None],
        "validations": _columns([m.validation for m in run.moments if m.validation is not None]),
    }


def _columns(rows: Sequence[Figures]) -> dict[str, list[float | None]]:
    names = sorted({name for row in rows for name in row if not name.startswith(LEFT_OUT)})
    return {name: [_short(row.get(name)) for row in rows] for name in names}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _from_columns(made: Mapping[str, Any]) -> Recorded:
    def rows(columns: Mapping[str, list[float | None]], count: int) -> list[Figures]:
        return [
            {name: values[place] for name, values in columns.items() if values[place] is not None}
            for place in range(count)
        ]

    figures = rows(made["figures"], len(made["steps"]))
    validations = dict(zip(made["validated"], rows(made["validations"], len(made["validated"])), strict=True))
    moments = [Moment(step, each, validations.get(step)) for step, each in zip(made["steps"], figures, strict=True)]
    return Recorded(made["world"], made["seed"], moments)
