"""Checks of tools that need no grader: that they answer, in time and within their budget, and give nothing away."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from etude.environment.calls import ToolCall
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.environment.tools import Tool
from etude.evaluation.checks.delivery import call_turn, valid
from etude.evaluation.checks.gold import Gold, real_call
from etude.evaluation.checks.leaks import are_labels, named_in
from etude.evaluation.checks.report import Finding, shown
from etude.evaluation.checks.schemas import EXAMPLE_TEXT, example
from etude.evaluation.checks.stage import Stage
from etude.evaluation.checks.values import as_text, is_empty, normal
from etude.rollout.messages import Message
from etude.rollout.rollout import CallRecord, Rollout

MOST = 3  # scenarios on which each tool is called
SLOW = 0.5  # of its time limit
CUT = 0.5  # of its calls cut to the budget, from which a budget is too small
_MOSTLY = 0.5  # of an output that is the reference, from which it gives it away rather than holds it
_ERRORS = 4  # calls of policies that must all be refused before a tool counts as useless


def calls_of(gold: Gold, environment: Environment, scenario: Scenario) -> dict[str, ToolCall]:
    """A valid call of each tool but the final ones: a policy's own, else one made from the schema and the question."""
    found: dict[str, ToolCall] = {}
    for rollout in gold.played:
        if rollout.scenario_id == scenario.id:
            for call in rollout.calls:
                if call.kind == "ok" and call.name in environment.tools_by_name:
                    found.setdefault(call.name, ToolCall(call.name, call.arguments, "call_again"))
    for name, tool in environment.tools_by_name.items():
        if not tool.final and name not in found and (made := real_call(environment, tool, scenario)) is not None:
            found[name] = made
    return {name: call for name, call in found.items() if not environment.tools_by_name[name].final}


async def check_tools(
    stage: Stage, gold: Gold, scenarios: Sequence[Scenario], references: Mapping[str, Any]
) -> list[Finding]:
    environment = stage.environment
    records: dict[str, list[tuple[CallRecord, Rollout]]] = defaultdict(list)
    changed: dict[str, tuple[str, str, str]] = {}
    for scenario in scenarios[:MOST]:
        for name, call in calls_of(gold, environment, scenario).items():
            first, again = [await _call(stage, scenario, call) for _ in range(2)]
            for rollout in (first, again):
                records[name] += [(each, rollout) for each in rollout.calls[:1]]
            outputs = [rollout.calls[0].output if rollout.calls else "" for rollout in (first, again)]
            if outputs[0] != outputs[1]:
                changed.setdefault(name, (scenario.id, *outputs))  # type: ignore[arg-type]
    for rollout in gold.played:
        for each in rollout.calls:
            records[each.name].append((each, rollout))
    found: list[Finding] = []
    for name, tool in environment.tools_by_name.items():
        found += _answers(tool, records[name], [each for r in gold.played for each in r.calls if each.name == name])
    found += [_unsteady(name, *three) for name, three in changed.items()]
    return [*found, *await _given_away(stage, scenarios, references, gold.path)]


async def _call(stage: Stage, scenario: Scenario, call: ToolCall) -> Rollout:
    return await stage.play(scenario, [call_turn([call]), Message("assistant", "I don't know")])


def _answers(
    tool: Tool, records: Sequence[tuple[CallRecord, Rollout]], by_policy: Sequence[CallRecord]
) -> list[Finding]:
    found: list[Finding] = []
    broken = [(each, rollout) for each, rollout in records if each.kind == "fault"]
    if broken:
        call, rollout = broken[0]
        fault = rollout.fault
        found.append(
            _finding(
                "fail",
                "tool.fault",
                f"the tool {tool.name} broke: {fault.kind if fault else ''}: {fault.message if fault else ''}",
                "A fault is retried and then dropped, never scored. Raise etude.ToolError for what the model did "
                "wrong, and mend the rest.",
                call,
                rollout,
                len(broken),
                len(records),
            )
        )
    slow = [(each, rollout) for each, rollout in records if each.kind == "ok" and each.seconds > SLOW * tool.timeout_s]
    if slow:
        call, rollout = max(slow, key=lambda each: each[0].seconds)
        message = f"the tool {tool.name} took {call.seconds:.1f} s of its {tool.timeout_s:g} s"
        advice = "Raise timeout_s or make it faster: many attempts call it at the same time."
        found.append(_finding("warn", "tool.slow", message, advice, call, rollout, len(slow), len(records)))
    cut = [(each, rollout) for each, rollout in records if each.truncated]
    if len(cut) >= max(2, CUT * len(records)):
        call, rollout = cut[0]
        message = f"outputs of the tool {tool.name} do not fit its budget of {tool.max_output_tokens} tokens"
        advice = "Return less, page by page, or raise max_output_tokens (and limits.max_tokens with it)."
        found.append(_finding("warn", "tool.cut", message, advice, call, rollout, len(cut), len(records)))
    if len(by_policy) >= _ERRORS and all(each.kind in ("error", "bad_arguments") for each in by_policy):
        call, rollout = next((each, rollout) for each, rollout in records if each.kind in ("error", "bad_arguments"))
        message = f"the tool {tool.name} refused every call of the environment's policies"
        advice = "See what it said; policies should show calls that work."
        found.append(_finding("warn", "tool.refuses", message, advice, call, rollout, len(by_policy), len(by_policy)))
    return found


def _finding(
    severity: Any, check: str, message: str, advice: str, call: CallRecord, rollout: Rollout, seen: int, of: int
) -> Finding:
    evidence = {"call": f"{call.name}({call.arguments})"[:300], "output": shown(call.output)}
    return Finding(severity, check, message, advice, rollout.scenario_id, evidence, seen, of)


def _unsteady(name: str, scenario: str, first: str, again: str) -> Finding:
    return Finding(
        "warn",
        "tool.unsteady",
        f"the tool {name} answered the same call of the same scenario in two ways",
        "Seed it from the scenario: attempts of one group are compared with each other.",
        scenario,
        {"first": shown(first), "again": shown(again)},
        1,
        MOST,
    )


async def _given_away(
    stage: Stage, scenarios: Sequence[Scenario], references: Mapping[str, Any], path: str
) -> list[Finding]:
    """Calls that ask for nothing in particular, and are answered with the reference all the same. A tool that finds the
    answer for those who ask for it is no leak; so only an output that names it, is little else, or is an error counts,
    and only where it is each scenario's own reference."""
    found: list[Finding] = []
    known = [each for each in scenarios if not is_empty(references.get(each.id))]
    if are_labels([references[each.id] for each in known]):
        return found
    chosen: dict[str, Scenario] = {}
    for each in known:
        chosen.setdefault(normal(as_text(references[each.id])), each)
    for tool in stage.environment.tools_by_name.values():
        arguments = _nothing_asked(tool)
        if arguments is None or tool.final or len(chosen) < 2:
            continue
        leaked: list[tuple[CallRecord, Rollout]] = []
        asked = list(chosen.values())[:MOST]
        outputs: list[str] = []
        for scenario in asked:
            rollout = await _call(stage, scenario, ToolCall(tool.name, arguments, "call_0"))
            outputs += [each.output for each in rollout.calls[:1]]
            value = references[scenario.id]
            leaked += [(each, rollout) for each in rollout.calls[:1] if _gives_away(each, value, path, bool(arguments))]
        if len(leaked) >= 2 and len(set(outputs)) > 1:
            message = f"the tool {tool.name} gives the reference to a call that asks for nothing"
            advice = "Do not let a tool read the scenario's reference; and keep it out of error texts."
            found.append(
                _finding("fail", "leak.tool_output", message, advice, *leaked[0], seen=len(leaked), of=len(asked))
            )
    return found


def _nothing_asked(tool: Tool) -> dict[str, Any] | None:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    arguments = {name: example(schema, tool.parameters) for name, schema in properties.items() if name in required}
    texts = [value for value in arguments.values() if isinstance(value, str)]
    if arguments and EXAMPLE_TEXT not in "".join(texts):
        return None  # numbers and choices ask for something that may be there
    return arguments if valid(tool, arguments) else None


def _gives_away(call: CallRecord, value: Any, path: str, asked: bool) -> bool:
    text = as_text(value)
    if named_in(call.output, value, [path.rpartition(".")[2]] if path else ()):
        return True
    if not asked or not re.search(rf"(?<!\w){re.escape(text)}(?!\w)", call.output):
        return False
    return call.kind == "error" or len(text) >= _MOSTLY * len(call.output.strip())
