"""What a run tells while it goes on: typed events, seen by the display, the store and trackers alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    run_id: str
    kind: str
    steps: int
    first_step: int = 0


@dataclass(frozen=True, slots=True)
class RolloutsDone:
    """Progress inside a step or an evaluation: `done` of `total` rollouts."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """step: how many optimizer steps have been taken. metrics: names with slashes, e.g. "reward/mean"."""

    step: int
    steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Validated:
    step: int
    split: str
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person should know. data: figures for machines."""

    level: Level
    message: str
    type: str = "message"
    data: Mapping[str, object] = field(default_factory=dict)


Event = RunStarted | RolloutsDone | StepDone | Validated | Note
Observer = Callable[[Event], None]


def silent(event: Event) -> None:
    """The observer that shows nothing: the store records a run's events whether or not somebody watches."""
