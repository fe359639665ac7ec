"""Finding an attempt that is right: which field is the reference, how it is handed in, and which calls it takes.

A grader is asked rather than guessed at: of all ways to hand a scenario's fields in, the one that it rewards best is
the gold attempt; among equals the field with the most conventional name, and the simplest way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etude.environment.calls import ToolCall
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.environment.tools import Tool
from etude.evaluation.checks.delivery import (
    WRAPS,
    Delivery,
    arguments_for,
    call_turn,
    deliveries,
    hinted_wraps,
    valid,
)
from etude.evaluation.checks.schemas import types_of
from etude.evaluation.checks.stage import PolicyBroke, Stage
from etude.evaluation.checks.values import fields_of, is_conventional, is_empty, renderings, value_at
from etude.rollout.messages import Message
from etude.rollout.rollout import Rollout

PROBES = 3  # scenarios on which ways of answering are compared
GOOD = 0.99  # a mean reward from which no better way is looked for
CLEARLY = 0.1  # by how much of the best reward a way must be better to be preferred to a simpler one
_MOST_FORMS = 5


@dataclass(frozen=True)
class Approach:
    """How attempts are made. before: turns before the answer, by scenario. fixed: other arguments of the final tool, by
    scenario. form: which of the reference's forms is handed in (see `forms`)."""

    name: str
    delivery: Delivery
    form: int = 0
    before: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    fixed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def turns(self, value: Any, scenario: Scenario, *, everywhere: bool = False) -> list[Message] | None:
        last = self.delivery.turn(value, scenario, fixed=self.fixed.get(scenario.id), everywhere=everywhere)
        return None if last is None else [*self.before.get(scenario.id, ()), last]

    @property
    def uses_tools(self) -> bool:
        return any(self.before.values())


@dataclass
class Gold:
    """source: where the reference values come from, for a person. values: by scenario; a scenario without one is not in
    it. sure: the field has a name for references, or the user named it. approaches: without tools first. best: the best
    attempt at each scenario. calls: real calls of each tool, by scenario, as policies made them. broken: policies that
    raised, with their line."""

    source: str = ""
    path: str = ""
    sure: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    approaches: list[Approach] = field(default_factory=list)
    best: dict[str, Rollout] = field(default_factory=dict)
    played: list[Rollout] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)

    def offer(self, rollout: Rollout) -> None:
        held = self.best.get(rollout.scenario_id)
        self.played.append(rollout)
        if rollout.reward is not None and (held is None or held.reward is None or rollout.reward > held.reward):
            self.best[rollout.scenario_id] = rollout


@dataclass(frozen=True)
class _Way:
    path: str
    approach: Approach
    mean: float


def forms(value: Any) -> list[Any]:
    """What may be handed in for a reference value: itself, then its texts; of lists and mappings also their parts."""
    found = [value] if isinstance(value, str) else [value, *renderings(value)]
    return found[:_MOST_FORMS]


def form_of(value: Any, number: int) -> Any:
    found = forms(value)
    return found[min(number, len(found) - 1)]


async def find_gold(stage: Stage, scenarios: Sequence[Scenario], reference: str | None) -> Gold:
    """reference: the field that the user named. Policies of the environment are played too, and are gold where they
    earn more than the bare reference."""
    gold = Gold()
    environment = stage.environment
    policies = await _play_policies(stage, scenarios, gold)
    prompt_key = environment.prompt if isinstance(environment.prompt, str) else None
    paths = [reference] if reference else list(dict.fromkeys(p for s in scenarios for p in fields_of(s, prompt_key)))
    named = [path for path in paths if reference or is_conventional(path)]
    search = _Search(stage, scenarios)
    await search.try_fields(named[:6])
    if search.best_mean() < GOOD:
        await search.try_wraps()
    if search.best_mean() < GOOD:
        await search.try_calls(policies)
    if not search.separated() and not reference:
        await search.try_fields([path for path in paths if path not in named][:10])
        if search.best_mean() < GOOD:
            await search.try_wraps()
    _settle(gold, search, policies, reference)
    for scenario in scenarios:
        for approach in gold.approaches:
            if scenario.id in gold.values:
                turns = approach.turns(form_of(gold.values[scenario.id], approach.form), scenario)
                if turns is not None:
                    gold.offer(await stage.play(scenario, turns))
    return gold


async def _play_policies(stage: Stage, scenarios: Sequence[Scenario], gold: Gold) -> list[tuple[str, list[Rollout]]]:
    """Rollouts of each policy, the best policy first."""
    played: list[tuple[str, list[Rollout]]] = []
    for name, policy in stage.environment.policies.items():
        try:
            rollouts = await asyncio.gather(*(stage.play_policy(each, policy) for each in scenarios))
        except PolicyBroke as error:
            gold.broken[name] = str(error)
            continue
        for rollout in rollouts:
            gold.offer(rollout)
        played.append((name, list(rollouts)))
    return sorted(played, key=lambda each: -mean([one.reward for one in each[1]]))


def mean(rewards: Sequence[float | None]) -> float:
    """Of those that there are; minus infinity of none."""
    there = [each for each in rewards if each is not None]
    return sum(there) / len(there) if there else float("-inf")


class _Search:
    """The ways that were tried, in order of preference."""

    def __init__(self, stage: Stage, scenarios: Sequence[Scenario]) -> None:
        self.stage, self.scenarios = stage, scenarios
        self.environment = stage.environment
        self.ways: list[_Way] = []
        self._wrong: dict[str, float] = {}

    def best_mean(self) -> float:
        return max((way.mean for way in self.ways), default=float("-inf"))

    def separated(self) -> bool:
        """Whether some field earns clearly more than others do: then it is the reference."""
        best = self.best_mean()
        least = min((way.mean for way in self.ways if way.mean > float("-inf")), default=best)
        return best > 0.3 or (best - least > 0.3 and len(self.ways) > 1)

    def probes(self, path: str) -> list[Scenario]:
        with_value = [each for each in self.scenarios if not is_empty(value_at(each, path))]
        seen: dict[str, Scenario] = {}
        for each in with_value:  # different references tell ways of answering apart
            seen.setdefault(str(value_at(each, path)), each)
        return (list(seen.values()) + [each for each in with_value if each not in seen.values()])[:PROBES]

    async def try_fields(self, paths: Sequence[str]) -> None:
        for path in paths:
            probes = self.probes(path)
            if not probes:
                continue
            most = max(len(forms(value_at(each, path))) for each in probes)
            for delivery in deliveries(self.environment, path):
                for form in range(most):
                    if await self._try(path, Approach(delivery.name, delivery, form)) >= GOOD:
                        return

    async def try_wraps(self) -> None:
        """The forms that graders read, on the likeliest fields."""
        told = "\n".join(
            f"{self.environment.instructions_for(each)}\n{self.environment.prompt_for(each)}"
            for each in self.scenarios[:1]
        )
        wraps: Mapping[str, Callable[[str], str]] = {**hinted_wraps(told), **WRAPS}
        for path, approach in self._leading(2):
            probe = next(iter(self.probes(path)))
            if approach.delivery.turn("text", probe) is None:
                continue
            for name, wrap in wraps.items():
                for form in {approach.form, min(1, len(forms(value_at(probe, path))) - 1)}:
                    if name == "plain":
                        continue
                    delivery = replace(approach.delivery, wrap_name=name, wrap=wrap)
                    if await self._try(path, Approach(delivery.name, delivery, form)) >= GOOD:
                        return

    async def try_calls(self, policies: Sequence[tuple[str, Sequence[Rollout]]]) -> None:
        """One real call of each tool before the answer, then all of them; and what the best policy did before its."""
        tools = [tool for tool in self.environment.tools_by_name.values() if not tool.final]
        plans = [[tool] for tool in tools] if len(tools) == 1 else [*([tool] for tool in tools[:6]), tools[:6]]
        befores = [(" + ".join(tool.name for tool in plan), self._calls(plan)) for plan in plans]
        befores = [*((f"the calls of {name}", calls) for name, calls in self._expected_calls().items()), *befores]
        befores = [(f"policy {name}", before_of(played)) for name, played in policies[:1]] + befores
        for path, approach in self._leading(2):
            fixed = fixed_of(policies[0][1]) if policies else {}
            for name, before in befores:
                made = replace(approach, name=f"{approach.delivery.name} after {name}", before=before, fixed=fixed)
                if await self._try(path, made) >= GOOD:
                    return

    def _expected_calls(self) -> dict[str, dict[str, tuple[Message, ...]]]:
        """Fields that hold calls, as data sets of function calling do: by field, the turns of each scenario."""
        found: dict[str, dict[str, tuple[Message, ...]]] = {}
        for scenario in self.scenarios:
            for key, value in scenario.items():
                calls = calls_in(self.environment, value)
                if calls:
                    found.setdefault(key, {})[scenario.id] = tuple(call_turn([call]) for call in calls)
        return found

    def _leading(self, count: int) -> list[tuple[str, Approach]]:
        ordered = sorted(self.ways, key=lambda way: -way.mean)
        found: dict[str, Approach] = {}
        for way in ordered:
            if way.mean > float("-inf"):
                found.setdefault(way.path, way.approach)
        return list(found.items())[:count]

    def _calls(self, tools: Sequence[Tool]) -> dict[str, tuple[Message, ...]]:
        before: dict[str, tuple[Message, ...]] = {}
        for scenario in self.scenarios:
            calls = [real_call(self.environment, tool, scenario) for tool in tools]
            before[scenario.id] = tuple(call_turn([call]) for call in calls if call is not None)
        return before

    async def _try(self, path: str, approach: Approach) -> float:
        rewards: list[float | None] = []
        for scenario in self.probes(path):
            turns = approach.turns(form_of(value_at(scenario, path), approach.form), scenario)
            if turns is not None:
                rewards.append((await self.stage.play(scenario, turns)).reward)
        way = _Way(path, approach, mean(rewards))
        self.ways.append(way)
        return way.mean


def real_call(environment: Environment, tool: Tool, scenario: Scenario) -> ToolCall | None:
    """A call that somebody might make who wants to know: texts that no field of the scenario fills are the question."""
    arguments = arguments_for(tool, scenario)
    if arguments is None:
        return None
    asked = dict(arguments)
    for name, schema in tool.parameters.get("properties", {}).items():
        plain = "string" in types_of(schema) and not {"enum", "format", "const"} & schema.keys()
        if plain and name in arguments and name not in scenario:
            asked[name] = environment.prompt_for(scenario)[:200]
    return ToolCall(tool.name, asked if valid(tool, asked) else arguments, f"call_{tool.name}")


def calls_in(environment: Environment, value: Any) -> list[ToolCall]:
    """The calls that a value describes: mappings with a tool's name and a mapping of arguments; [] where it is none."""
    if isinstance(value, Mapping):
        function = value.get("function")
        inner = function if isinstance(function, Mapping) else value
        names = [each for each in inner.values() if isinstance(each, str) and each in environment.tools_by_name]
        arguments = [dict(each) for each in inner.values() if isinstance(each, Mapping)]
        if names and arguments and valid(environment.tools_by_name[names[0]], arguments[0]):
            return [ToolCall(names[0], arguments[0], f"call_{names[0]}")]
        return []
    if isinstance(value, Sequence) and not isinstance(value, str):
        found = [calls_in(environment, each) for each in value]
        return [call for calls in found for call in calls] if all(found) else []
    return []


def before_of(rollouts: Sequence[Rollout]) -> dict[str, tuple[Message, ...]]:
    """What an attempt did before its answer, by scenario."""
    return {
        each.scenario_id: tuple(message for message in each.messages if message.role == "assistant")[:-1]
        for each in rollouts
    }


def fixed_of(rollouts: Sequence[Rollout]) -> dict[str, Mapping[str, Any]]:
    """The arguments of each attempt's last call."""
    return {each.scenario_id: each.calls[-1].arguments for each in rollouts if each.calls}


def _settle(
    gold: Gold, search: _Search, policies: Sequence[tuple[str, Sequence[Rollout]]], reference: str | None
) -> None:
    """Chooses field and approaches from what was tried."""
    best = search.best_mean()
    slack = CLEARLY * abs(best) if best > float("-inf") else 0.0
    chosen = next((way for way in search.ways if way.mean > float("-inf") and way.mean >= best - slack), None)
    if chosen is not None:
        same_path = [way for way in search.ways if way.path == chosen.path]
        chosen = max(same_path, key=lambda way: way.mean) if chosen.mean < best - 0.02 * abs(best) else chosen
        gold.path, gold.source = chosen.path, f"field {chosen.path!r}"
        gold.sure = reference is not None or is_conventional(chosen.path)
        gold.values = {each.id: value_at(each, chosen.path) for each in search.scenarios}
        bare = [way for way in same_path if not way.approach.uses_tools and way.mean > float("-inf")]
        top = max(bare, key=lambda way: way.mean) if bare else chosen
        gold.approaches = [top.approach]
        if top.approach.delivery.wrap_name != "plain":  # attacks need not keep to the form
            plain = replace(top.approach.delivery, wrap_name="plain", wrap=WRAPS["plain"])
            gold.approaches.insert(0, Approach(plain.name, plain, top.approach.form))
        if chosen.approach.uses_tools and chosen.mean > top.mean + slack:
            gold.approaches.append(chosen.approach)
    if policies:
        _settle_policy(gold, search, policies[0], best)


def _settle_policy(gold: Gold, search: _Search, policy: tuple[str, Sequence[Rollout]], best: float) -> None:
    name, rollouts = policy
    earned = mean([each.reward for each in rollouts])
    if earned <= best + CLEARLY * abs(best) and gold.values:
        return
    if gold.approaches and best > 0.3 and gold.sure:
        delivery, form = gold.approaches[-1].delivery, gold.approaches[-1].form
    else:  # no field is the reference: what the policy answers is
        delivery, form = deliveries(search.environment, gold.path)[0], 0
        gold.source, gold.path, gold.sure = f"answers of policy {name!r}", "", True
        gold.values = {
            each.scenario_id: answer_of(each, delivery)
            for each in rollouts
            if each.reward is not None and each.reward >= earned - 0.5 * abs(earned)
        }
    made = Approach(f"as policy {name}", delivery, form, before_of(rollouts), fixed_of(rollouts))
    bare = [each for each in gold.approaches if not each.uses_tools] if best > 0.3 and gold.sure else []
    gold.approaches = [*(bare or [Approach(delivery.name, delivery)]), made]


def answer_of(rollout: Rollout, delivery: Delivery) -> Any:
    """What an attempt handed in, as `delivery` would take it."""
    if delivery.tool is not None and rollout.calls:
        return rollout.calls[-1].arguments.get(delivery.primary)
    return rollout.answer
