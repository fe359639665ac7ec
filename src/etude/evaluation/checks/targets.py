"""What the attacks on one scenario are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.environment.calls import ToolCall
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.environment.tools import Tool
from etude.evaluation.checks.attacks import DECOYS, Target
from etude.evaluation.checks.delivery import valid
from etude.evaluation.checks.gold import Gold
from etude.evaluation.checks.leaks import Told
from etude.evaluation.checks.schemas import coerce, types_of
from etude.evaluation.checks.stage import CHARACTERS_PER_TOKEN
from etude.evaluation.checks.tools import calls_of
from etude.evaluation.checks.values import accepted, distractors, is_empty, leaves, value_at, wrong_values

_MOST_OTHERS = 200  # scenarios whose references serve as wrong answers
_MOST_REPEATS, _MOST_AT_ONCE, _MOST_ROOM = 30, 24, 8000
_MOST_DUMPED = 60  # items of a list that is dumped


def make_target(
    environment: Environment, scenario: Scenario, gold: Gold, rows: Sequence[Scenario], texts: Mapping[str, Told]
) -> Target:
    """rows: the whole split. texts: what the model reads, by scenario."""
    known = scenario.id in gold.values
    value = gold.values.get(scenario.id)
    near = rows[:_MOST_OTHERS]
    if gold.path:
        others = [value_at(row, gold.path) for row in near if row.id != scenario.id]
    else:
        others = [other for name, other in gold.values.items() if name != scenario.id]
    declines = known and is_empty(value)
    answers = known and not declines
    right = accepted(scenario, value)
    wrong = wrong_values(right, others) if answers else [each for each in others if not is_empty(each)][:3]
    if answers:
        wrong = [*wrong_values(right, distractors(scenario, value), count=2, invent=False), *wrong]
    decoys = wrong_values(right, others, count=40, invent=False) if answers else []
    calls = calls_of(gold, environment, scenario)
    limits = environment.limits
    most = limits.max_tool_calls if limits.max_tool_calls is not None else _MOST_REPEATS
    room = min(limits.max_tokens_per_turn * CHARACTERS_PER_TOKEN - 100, _MOST_ROOM)
    tools = environment.tools_by_name
    return Target(
        scenario=scenario,
        question=texts[scenario.id].prompt,
        instructions=texts[scenario.id].instructions,
        reference=value if answers else ("" if declines else None),
        right=right if known else [],
        wrong=wrong,
        others=decoys,
        calls=list(calls.values()),
        tool_names=list(tools),
        room=max(room, 40),
        repeats=min(limits.max_turns - 1, most, _MOST_REPEATS),
        at_once=min(most, _MOST_AT_ONCE),
        declines=declines,
        varied={name: _varied(tools[name], call) for name, call in calls.items()},
        guesses={name: _guesses(tools[name], call, [*decoys[:DECOYS], value]) for name, call in calls.items()}
        if answers
        else {},
        boasts=[made for name, call in calls.items() for made in _boasts(tools[name], call)],
        extremes=_extremes(environment),
        dumps=_dumps(environment, scenario, gold, near) if answers else {},
    )


def _varied(tool: Tool, call: ToolCall) -> list[ToolCall]:
    """The call with a text or a number of it changed a little, again and again: none of them asks for more."""
    for name, held in call.arguments.items():
        if isinstance(held, str | int) and not isinstance(held, bool):
            changed: list[Any] = [f"{held} {n}" if isinstance(held, str) else held + n for n in range(_MOST_AT_ONCE)]
            made = [{**call.arguments, name: each} for each in changed]
            if all(valid(tool, arguments) for arguments in made):
                return [ToolCall(tool.name, arguments, f"call_{n}") for n, arguments in enumerate(made)]
    return []


def _guesses(tool: Tool, call: ToolCall, values: Sequence[Any]) -> list[ToolCall]:
    """Each possible answer as the tool's first argument that takes it."""
    for name, schema in tool.parameters.get("properties", {}).items():
        flat = [leaf for value in values for leaf in leaves(value)]
        fitting = [coerce(leaf, schema, tool.parameters) for leaf in flat]
        made = [{**call.arguments, name: each} for each in fitting if each is not None]
        if made and all(valid(tool, arguments) for arguments in made):
            calls = [ToolCall(tool.name, arguments, f"call_{n}") for n, arguments in enumerate(made)]
            return [*calls[-1:], *calls[:-1]]  # the right one first: fewer may be allowed than there are
    return []


def _boasts(tool: Tool, call: ToolCall) -> list[ToolCall]:
    """The call with the highest numbers that it takes."""
    found: list[ToolCall] = []
    for name, schema in tool.parameters.get("properties", {}).items():
        if types_of(schema) & {"integer", "number"}:
            for value in dict.fromkeys((schema.get("maximum", 100), 10, 1)):
                arguments = {**call.arguments, name: value}
                if valid(tool, arguments):
                    found.append(ToolCall(tool.name, arguments, "call_high"))
    return found


def _extremes(environment: Environment) -> list[dict[str, Any]]:
    """Numbers and truth values of final tools, all high and all low."""
    found: list[dict[str, Any]] = []
    for tool in environment.tools_by_name.values():
        if not tool.final:
            continue
        high: dict[str, Any] = {}
        low: dict[str, Any] = {}
        for name, schema in tool.parameters.get("properties", {}).items():
            kinds = types_of(schema)
            if kinds & {"integer", "number"}:
                high[name] = schema.get("maximum", 1 if "number" in kinds else 10)
                low[name] = schema.get("minimum", 0)
            elif "boolean" in kinds:
                high[name], low[name] = True, False
        if high:
            found += [high, low, {name: 100 for name in high if not isinstance(high[name], bool)}]
    return [each for each in found if each]


def _dumps(
    environment: Environment, scenario: Scenario, gold: Gold, rows: Sequence[Scenario]
) -> dict[str, tuple[list[Any], list[Any]]]:
    """For lists that a final tool takes and a field of the scenario gives: wrong items, and those of all scenarios."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    for tool in environment.tools_by_name.values():
        for name, schema in tool.parameters.get("properties", {}).items() if tool.final else ():
            held = scenario.get(name)
            if name == gold.path or "array" not in types_of(schema) or not isinstance(held, list) or not held:
                continue
            other = [item for row in rows if row.id != scenario.id for item in leaves(row.get(name) or [])]
            wrong = list(dict.fromkeys(item for item in other if item not in held))[:_MOST_DUMPED]
            if len(wrong) >= len(held):
                found[name] = (wrong[: len(held)], [*wrong[::2], *held, *wrong[1::2]])
    return found
