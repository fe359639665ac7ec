"""Tool calls and their results, as plain frozen data; and faults, which say who broke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

# "error": the tool told the model that it was wrong (its text goes to the model). "fault": the tool itself broke.
CallKind = Literal["ok", "error", "unparsable", "unknown_tool", "bad_arguments", "over_budget", "fault"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model asked for. `arguments` is the parsed JSON object, exactly as the model wrote it."""

    name: str
    arguments: dict[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Who broke (`where`: "tool:search", "grader:correct", "setup"), how (`kind`: "timeout", "exception", ...),
    and the message for a person. Never holds secrets of headers."""

    where: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """output: the text that the model sees, cut to the tool's budget. value: what the function returned, uncut.
    tokens: length of `output`. seconds: time in the tool. fault: set exactly where kind is "fault"."""

    kind: CallKind
    output: str
    value: Any = None
    seconds: float = 0.0
    tokens: int = 0
    truncated: bool = False
    fault: Fault | None = None
