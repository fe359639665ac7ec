"""How an answer is handed in: as text of the last turn, in the form that the grader reads, or by a final tool."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.environment.arguments import BadArguments
from etude.environment.calls import ToolCall
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.environment.tools import Tool
from etude.evaluation.checks.schemas import coerce, example, types_of
from etude.evaluation.checks.values import as_text, value_at
from etude.rollout.messages import Message
from etude.rollout.parsing import render_call

# What the argument of a final tool that takes the answer is called; the earlier, the surer.
_ANSWER_NAMES = (
    "answer", "final_answer", "text", "value", "result", "response", "final", "label", "output", "solution", "code",
    "prediction", "choice", "number", "content", "message", "answers", "items", "values",
)  # fmt: skip
_MOST_PRIMARIES = 3  # arguments of a final tool that are tried as the one that takes the answer
_MANY_ITEMS, _ITEM = 20, 60  # items of a list that is stuffed, and characters of each
_THOUGHT = "I have looked at the question."

# The forms in which graders look for an answer in a text.
WRAPS: Mapping[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "<answer>": lambda text: f"<answer>{text}</answer>",
    "<think> <answer>": lambda text: f"<think>\n{_THOUGHT}\n</think>\n<answer>{text}</answer>",
    "Answer:": lambda text: f"Answer: {text}",
    "Final answer:": lambda text: f"Final answer: {text}",
    "####": lambda text: f"#### {text}",
    "\\boxed": lambda text: f"\\boxed{{{text}}}",
    "sentence": lambda text: f"The answer is {text}.",
    '{"answer"}': lambda text: json.dumps({"answer": _json_value(text)}, ensure_ascii=False),
    "```": lambda text: f"```\n{text}\n```",
    "```python": lambda text: f"```python\n{text}\n```",
    "```json": lambda text: f"```json\n{text}\n```",
}


def _json_value(text: str) -> Any:
    """Numbers, lists and objects as themselves, everything else as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def hinted_wraps(told: str) -> dict[str, Callable[[str], str]]:
    """Forms that instructions ask for: tags, `Words:` at the beginning of a line or in quotes, keys of JSON."""
    found: dict[str, Callable[[str], str]] = {}
    for tag in dict.fromkeys(re.findall(r"<([A-Za-z_][\w-]*)>", told)):
        found[f"<{tag}>"] = lambda text, tag=tag: f"<{tag}>{text}</{tag}>"
    for words in dict.fromkeys(re.findall(r"(?:^|['\"`])([A-Za-z][A-Za-z ]{1,24}:)(?=[\s'\"`]|$)", told, re.MULTILINE)):
        found[words] = lambda text, words=words: f"{words} {text}"
    for key in dict.fromkeys(re.findall(r"[{,]\s*[\"'](\w+)[\"']\s*:", told)):
        found[f'{{"{key}"}}'] = lambda text, key=key: json.dumps({key: _json_value(text)}, ensure_ascii=False)
    return {name: wrap for name, wrap in list(found.items())[:8] if name not in WRAPS}


@dataclass(frozen=True)
class Delivery:
    """tool, primary: the final tool and its argument that takes the answer; None, "" where the answer is a text.
    wrap_name, wrap: the form of a text. path: the reference's field, whose name says which argument it belongs to."""

    tool: Tool | None = None
    primary: str = ""
    wrap_name: str = "plain"
    wrap: Callable[[str], str] = field(default=WRAPS["plain"], compare=False)

    def turn(
        self,
        value: Any,
        scenario: Scenario,
        *,
        fixed: Mapping[str, Any] | None = None,
        everywhere: bool = False,
        each: bool = False,
        others: Mapping[str, Any] | None = None,
    ) -> Message | None:
        """The turn that hands `value` in; None where the tool cannot take it. fixed: other arguments of the tool;
        others: these before all. everywhere: the tool's other texts are `value` too (what persuades a judge may do so
        from any of them), and its other lists are full of it. each: items of a list are handed in one below the other,
        each in the grader's form."""
        if each:
            value = "\n".join(self.wrap(as_text(item)) for item in value)
        if self.tool is None:
            if each:
                return Message("assistant", value)
            return Message("assistant", self.wrap(as_text(value)))
        if isinstance(value, str) and not each:
            value = self.wrap(value)
        arguments = fill(self.tool, self.primary, value, scenario, fixed or {}, everywhere, others or {})
        return None if arguments is None else call_turn([ToolCall(self.tool.name, arguments, "call_final")])

    @property
    def name(self) -> str:
        where = f"{self.tool.name}({self.primary})" if self.tool else "text"
        return where if self.wrap_name == "plain" else f"{where} as {self.wrap_name}"


def deliveries(environment: Environment, path: str) -> list[Delivery]:
    """The ways of handing an answer in, without forms: of each final tool the likeliest arguments, or the text."""
    final = [tool for tool in environment.tools_by_name.values() if tool.final]
    if not final:
        return [Delivery()]
    ways = [Delivery(tool, name) for tool in final for name in _primaries(tool, path)[:_MOST_PRIMARIES]]
    return ways or [Delivery(final[0], "")]


def _primaries(tool: Tool, path: str) -> list[str]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    field_name = path.rpartition(".")[2]

    def rank(name: str) -> tuple[bool, int, bool]:
        known = _ANSWER_NAMES.index(name) if name in _ANSWER_NAMES else len(_ANSWER_NAMES)
        return name != field_name, known, name not in required

    return sorted(properties, key=rank)


def call_turn(calls: Sequence[ToolCall]) -> Message:
    """A turn of tool calls, with the markup that a model would have written."""
    return Message("assistant", "\n".join(render_call(call) for call in calls), tuple(calls))


def fill(
    tool: Tool,
    primary: str,
    value: Any,
    scenario: Scenario,
    fixed: Mapping[str, Any],
    everywhere: bool,
    others: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Arguments that the tool takes, with `value` as the argument `primary`; None where it cannot be."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    if isinstance(value, Mapping) and properties.keys() & value.keys() == set(tool.parameters.get("required", [])):
        arguments = {name: value[name] for name in properties if name in value}
        if valid(tool, arguments):
            return arguments
    arguments = {}
    for name, schema in properties.items():
        if name == primary:
            arguments[name] = coerce(value, schema, tool.parameters)
            if arguments[name] is None:
                return None
        elif name in others:
            arguments[name] = others[name]
        elif everywhere and isinstance(value, str) and "string" in types_of(schema) and "enum" not in schema:
            arguments[name] = value
        elif everywhere and isinstance(value, str) and _takes_texts(schema):
            arguments[name] = [f"{value[:_ITEM]} {number}" for number in range(_MANY_ITEMS)]
        elif name in fixed:
            arguments[name] = fixed[name]
        elif name in tool.parameters.get("required", []):
            arguments[name] = argument_for(name, schema, scenario, tool.parameters)
    return arguments if valid(tool, arguments) else None


def _takes_texts(schema: Mapping[str, Any]) -> bool:
    items = schema.get("items", {})
    return "array" in types_of(schema) and "string" in types_of(items) and "enum" not in items


def argument_for(name: str, schema: Mapping[str, Any], scenario: Scenario, root: Mapping[str, Any]) -> Any:
    """The scenario's field of that name where it fits, else an example of the schema."""
    held = value_at(scenario, name)
    fitting = coerce(held, schema, root) if held is not None else None
    return example(schema, root) if fitting is None else fitting


def arguments_for(tool: Tool, scenario: Scenario) -> dict[str, Any] | None:
    """The least that the tool's schema takes, with the scenario's own fields where names agree."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    arguments = {
        name: argument_for(name, schema, scenario, tool.parameters)
        for name, schema in properties.items()
        if name in required
    }
    return arguments if valid(tool, arguments) else None


def valid(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    try:
        tool.read_arguments(arguments)
        render_call(ToolCall(tool.name, dict(arguments)))
    except (BadArguments, ValueError, TypeError):
        return False
    return True
