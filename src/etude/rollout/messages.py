"""Messages, as plain frozen data: what a conversation is made of before it is tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from etude.environment.calls import ToolCall

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. For `assistant`, `content` is the raw text that was sampled (tool-call markup included) when it
    came from a model, or the text before the calls when a person wrote it; `tool_calls` are its parsed calls.
    For `tool`, `content` is the output, `call_id` and `name` say which call it answers."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = field(default=())
    call_id: str = ""
    name: str = ""
