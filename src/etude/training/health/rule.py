"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from etude.training.health.history import History

Level = Literal["info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class Threshold:
    default: float
    meaning: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule saw, in words, and the figures that say so."""

    message: str
    evidence: Mapping[str, float]


class Limits(dict[str, float]):
    """A rule's thresholds by name; whole ones (windows, steps) through `count`."""

    def count(self, name: str) -> int:
        return int(self[name])


Check = Callable[[History, Limits], Finding | None]

# Of every rule: how it looks at a run, whatever it looks for.
STEPS = Threshold(10, "steps with the figure before the rule speaks")
WINDOW = Threshold(5, "steps whose median counts as now, and as the beginning")


@dataclass(frozen=True, slots=True)
class Rule:
    """looks_for: one line for a table. advice: what to do, most likely cause first. check: None where all is well, or
    where it cannot be told yet; it keeps no state, so that a run looked at again says the same."""

    name: str
    looks_for: str
    advice: str
    thresholds: Mapping[str, Threshold]
    check: Check
    level: Level = "warn"

    def limits(self, changed: Mapping[str, float]) -> Limits:
        return Limits({**{name: threshold.default for name, threshold in self.thresholds.items()}, **changed})


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule's finding at a step. evidence: figures by name, the thresholds that they passed among them."""

    rule: str
    level: Level
    step: int
    message: str
    evidence: Mapping[str, float]
    advice: str
