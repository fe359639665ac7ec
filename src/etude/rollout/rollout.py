"""One attempt at one scenario, as data: what graders see, what the store keeps, what training learns from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from etude.environment.calls import CallKind, Fault
from etude.rollout.messages import Message
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One tool call as it happened.

    turn: assistant turn, from 0. kind: "ok" | "error" (the tool told the model that it was wrong) |
    "unparsable" | "unknown_tool" | "bad_arguments" | "over_budget" | "fault". arguments: as parsed ({} where it
    could not be). output: the text that the model saw, after the cut. tokens: its length. seconds: time in the tool.
    """

    turn: int
    call_id: str
    name: str
    arguments: dict[str, Any]
    output: str
    kind: CallKind
    seconds: float = 0.0
    tokens: int = 0
    truncated: bool = False


@dataclass(slots=True)
class Rollout:
    """`reward` is None until graded, and stays None for a fault; None never becomes a number."""

    trace_id: str
    scenario_id: str
    split: str
    attempt: int  # index within its group, from 0
    outcome: Outcome
    stop: Stop
    messages: tuple[Message, ...]
    calls: tuple[CallRecord, ...]
    trajectory: Trajectory
    answer: Any = None  # what the final tool returned, or the text of the last turn; None where there is none
    state: dict[str, Any] = field(default_factory=dict)  # the environment's per-rollout state, JSON values only
    fault: Fault | None = None
    turns: int = 0
    prompt_tokens: int = 0  # tokens of the last prompt's row that were not sampled
    completion_tokens: int = 0  # sampled tokens
    wall_s: float = 0.0
    tool_s: float = 0.0
    parse_failures: dict[str, int] = field(default_factory=dict)  # by kind
    retries: int = 0  # earlier starts of this attempt that faulted
    reward: float | None = None
    scores: dict[str, float] = field(default_factory=dict)  # named scores of the rubric
    metrics: dict[str, float] = field(default_factory=dict)  # what the environment reports; never enters the reward
    usage: dict[str, float] = field(default_factory=dict)  # of an endpoint, see `etude.rollout.scripted.Usage`
