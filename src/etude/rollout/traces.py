"""Traces: conversations to imitate in a warm start, from JSONL or from a run's good rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from etude.environment.calls import ToolCall
from etude.errors import DataError
from etude.rollout.chat import ChatFormat
from etude.rollout.messages import Message
from etude.rollout.trajectory import Row, TrajectoryBuilder

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Trace:
    """tools: their specifications in OpenAI's form, as the model saw them."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]


def load_traces(path: Path | str) -> list[Trace]:
    """Read {"messages": [...], "tools": [...]} a line, messages in OpenAI's form. Raises DataError with the line."""
    path = Path(path)
    traces = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read traces from {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                traces.append(_trace(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}:{number}: not a trace: {error}") from error
    if not traces:
        raise DataError(f"{path} holds no traces")
    return traces


def save_traces(path: Path | str, traces: Iterable[Trace]) -> None:
    """The inverse of `load_traces`."""
    with Path(path).open("w", encoding="utf-8") as file:
        for trace in traces:
            messages = [_to_json(message) for message in trace.messages]
            file.write(json.dumps({"messages": messages, "tools": list(trace.tools)}, ensure_ascii=False) + "\n")


def trace_row(chat: ChatFormat, trace: Trace) -> Row:
    """Tokens of the conversation up to its last assistant turn; the mask is true on assistant turns (stop token
    included), exactly where it would be true had the model sampled them. Raises ValueError where there is none."""
    builder = TrajectoryBuilder()
    turns = [index for index, message in enumerate(trace.messages) if message.role == "assistant"]
    if not turns or turns[0] == 0:
        raise ValueError("a trace needs an assistant turn after its first messages")
    builder.extend_prompt(chat.start(trace.messages[: turns[0]], trace.tools))
    for index, turn in enumerate(turns):
        tokens = chat.render_assistant(trace.messages[turn])
        builder.append_sample(tokens, [0.0] * len(tokens), [0] * len(tokens))
        if index + 1 < len(turns):
            new = trace.messages[turn + 1 : turns[index + 1]]
            builder.extend_prompt(chat.extend(builder.held, trace.messages[: turns[index + 1]], new, trace.tools))
    rows = builder.build().rows
    if len(rows) != 1:
        raise ValueError("the chat template rewrites history: this conversation cannot be one sequence of tokens")
    return imitation_row(rows[0])


def imitation_row(row: Row) -> Row:
    """The row without log-probabilities: nobody sampled it, or it no longer matters who did."""
    return Row(row.tokens, row.action_mask, np.full(len(row), np.nan, np.float32), row.version, row.turn)


def _trace(data: Mapping[str, Any]) -> Trace:
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise ValueError("a line must be an object with a list of messages")
    return Trace(tuple(_message(each) for each in data["messages"]), tuple(data.get("tools") or ()))


def _message(data: Mapping[str, Any]) -> Message:
    if data.get("role") not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, not {data.get('role')!r}")
    calls = []
    for call in data.get("tool_calls") or ():
        function = call["function"]
        arguments = function["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        calls.append(ToolCall(function["name"], arguments, call.get("id", "")))
    return Message(
        data["role"],
        data.get("content") or "",
        tuple(calls),
        call_id=data.get("tool_call_id", ""),
        name=data.get("name", ""),
    )


def _to_json(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        data |= {"tool_call_id": message.call_id, "name": message.name}
    return data


def rows_from(chat: ChatFormat, traces: Sequence[Trace], max_tokens: int) -> tuple[list[Row], int]:
    """Rows of at most max_tokens, and how many traces were dropped because they are longer."""
    rows = [trace_row(chat, trace) for trace in traces]
    kept = [row for row in rows if len(row) <= max_tokens]
    return kept, len(rows) - len(kept)
