"""What a chat template does with history and tools, found out by rendering short conversations, before a run starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from etude.environment.calls import ToolCall
from etude.errors import ModelError
from etude.rollout.messages import Message
from etude.rollout.parsing import CALL_OPEN, render_call

_OPENING = (Message("system", "Probe rules."), Message("user", "First?"))
_CALL = ToolCall("probe_tool", {"text": "probe"})
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "A probe.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}
_RESULTS = (
    Message("tool", "probe result one", name="probe_tool"),
    Message("tool", "probe result two", name="probe_tool"),
)
_AGAIN = (Message("user", "Second?"),)
_THOUGHT = "<think>\nPlan.\n</think>\n\n"
_TURNS: tuple[tuple[str, str, tuple[Message, ...]], ...] = (
    ("a plain turn", "Reply.", _AGAIN),
    ("space around a turn", " Reply. \n", _AGAIN),
    ("thinking", f"{_THOUGHT}Reply.", _AGAIN),
    ("a call", f"Look.\n{render_call(_CALL)}", _RESULTS),
    ("thinking before a call", f"{_THOUGHT}{render_call(_CALL)}", _RESULTS),
)
_EXACT, _TRIMMED = "exact", "trimmed"
_SHOWN = 60  # characters of a rendering that a problem quotes


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """append_only: each prompt is the one before, the sampled turn and something new, in every probe. tool_support:
    the template shows the tools, passes results on, and asks for calls in the form that Etude parses (Hermes).
    problems: what is not so, in words for a person."""

    append_only: bool
    tool_support: bool
    problems: tuple[str, ...]


class Render(Protocol):
    """The template's rendering as text, with the head of the next assistant turn."""

    def __call__(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str: ...


def inspect_template(render: Render, end_of_turn: str, tools: Sequence[Mapping[str, Any]]) -> TemplateReport:
    """end_of_turn: the text of the token that ends an assistant's turn. tools: a probe stands in where there are none,
    because some templates move the tools to the last user message."""
    tools = list(tools) or [_PROBE_TOOL]
    kept = [(what, _kept(render, end_of_turn, content, new, tools)) for what, content, new in _TURNS]
    rewritten = [f"history is rewritten after {what}: {how}" for what, how in kept if how not in (_EXACT, _TRIMMED)]
    trimmed = [f"{what} is trimmed when it is rendered again" for what, how in kept if how == _TRIMMED]
    unsupported = list(_tool_problems(render, tools))
    return TemplateReport(not rewritten, not unsupported, (*rewritten, *trimmed, *unsupported))


def _kept(
    render: Render, end_of_turn: str, content: str, new: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> str:
    """Plays two turns of `content`, each answered by `new`; how the template keeps them, or what it makes of them."""
    messages = list(_OPENING)
    how = _EXACT
    try:
        held = render(messages, tools)
        for _ in range(2):
            messages += [Message("assistant", content), *new]
            whole = render(messages, tools)
            if not whole.startswith(held + content + end_of_turn):
                if not whole.startswith(held + content.strip() + end_of_turn):
                    return _difference(held + content + end_of_turn, whole)
                how = _TRIMMED
            held = whole
    except ModelError as error:
        return str(error)
    return how


def _difference(expected: str, found: str) -> str:
    pairs = zip(expected, found, strict=False)
    at = next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(expected), len(found)))
    return f"{expected[at:][:_SHOWN]!r} became {found[at:][:_SHOWN]!r}"


def _tool_problems(render: Render, tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    try:
        prompt = render(_OPENING, tools)
        results = render([*_OPENING, Message("assistant", render_call(_CALL)), *_RESULTS], tools)
    except ModelError as error:
        yield str(error)
        return
    names = [tool["function"]["name"] for tool in tools]
    hidden = [name for name in names if name not in prompt]
    if hidden:
        yield f"tools are not shown to the model: {', '.join(hidden)}"
    if CALL_OPEN not in prompt:
        yield f"calls are not asked for in the form that is parsed, {CALL_OPEN}"
    if '{{"name"' in prompt:
        yield "the call format is shown with doubled braces, which models copy: such calls do not parse"
    if any(result.content not in results for result in _RESULTS):
        yield "tool results are not shown to the model"
