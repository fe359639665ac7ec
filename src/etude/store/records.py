"""What the store gives back, as plain frozen data. Times are seconds since the epoch, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from etude.environment.calls import Fault
from etude.environment.scenario import Scenario
from etude.errors import ConfigError
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import Rollout

Level = Literal["info", "warn", "error"]


RunKind = Literal["train", "sft", "eval", "regrade", "baseline"]
# "interrupted": its process is gone without having said how it ended.
RunStatus = Literal["running", "succeeded", "failed", "cancelled", "interrupted"]


@dataclass(frozen=True, slots=True)
class Run:
    """status: as it is now: a run that says `running` but whose process is gone is `interrupted`.
    host, pid: where it runs, or ran last. heartbeat: when it last said that it was alive.
    git_commit: of the folder that it was started in, "-dirty" where files were changed; None outside a repository.
    versions: of Python and of the packages that decide results. parent: the run it continues or regrades."""

    id: str
    kind: RunKind
    name: str
    environment: str
    model: str
    config: Mapping[str, Any]
    status: RunStatus
    created: float
    finished: float | None
    host: str
    pid: int
    heartbeat: float
    error: str | None
    git_commit: str | None
    versions: Mapping[str, str]
    parent: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """metrics: numbers by name; None is a figure that does not exist (never 0), NaN one that came out as NaN."""

    step: int
    time: float
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Event:
    """step: the training step that it belongs to; None for one that outlives a rewind to a checkpoint."""

    id: int
    run: str
    step: int | None
    time: float
    level: Level
    type: str
    message: str
    data: Mapping[str, Any]


class RolloutFilter(TypedDict, total=False):
    """Which rollouts of a run; what is left out or None does not filter."""

    phase: str | None
    step: int | None
    scenario: str | None
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class RolloutSummary:
    """One rollout without its trajectory, messages and state: cheap to list, and kept when those are dropped.
    reward, scores, metrics: as first graded. saved: whether the rest is still there."""

    id: int
    run: str
    step: int
    phase: str
    scenario_id: str
    split: str
    attempt: int
    group: str
    trace_id: str
    time: float
    outcome: Outcome
    stop: Stop
    reward: float | None
    scores: Mapping[str, float]
    metrics: Mapping[str, float]
    fault_where: str | None
    fault_kind: str | None
    turns: int
    prompt_tokens: int
    completion_tokens: int
    wall_s: float
    tool_s: float
    retries: int
    saved: bool


@dataclass(frozen=True, slots=True)
class SavedRollout:
    summary: RolloutSummary
    rollout: Rollout
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Regrade:
    """first: the rollout as it was graded when it was played. The rest is what a later grading says of it."""

    first: RolloutSummary
    outcome: Outcome
    reward: float | None
    scores: Mapping[str, float]
    metrics: Mapping[str, float]
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many trajectories were dropped, and their size in bytes."""

    rollouts: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Retention:
    """How long trajectories are kept: for `days`, or for the last `steps` steps of each run; both None: for ever.
    Rows and rewards are always kept."""

    days: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.days is not None and self.steps is not None:
            raise ConfigError("retention: give days or steps, not both")
        if self.days is not None and not self.days > 0:
            raise ConfigError(f"retention: {self.days} days must be more than 0")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"retention: {self.steps} steps must be at least 1")
