"""Environments: instructions, tools, rubric and limits, over scenarios. What a user writes."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etude.environment.entry import call_entry
from etude.environment.invoke import invoke
from etude.environment.scenario import SPLITS, Scenario, load_scenarios, scenario_from_row
from etude.environment.state import StateError, state_snapshot
from etude.environment.tools import Tool, ToolContext
from etude.errors import ConfigError, DataError

if TYPE_CHECKING:
    from etude.grading.rubric import Grader, Rubric
    from etude.rollout.rollout import Rollout
    from etude.rollout.scripted import Policy

__all__ = ["Environment", "Limits", "ScenarioSource", "StateError", "load_environment", "state_snapshot"]

# Scenarios, rows that become scenarios, or a JSONL file (relative to the working directory).
ScenarioSource = Sequence[Scenario | Mapping[str, Any]] | Path | str


@dataclass(frozen=True, slots=True)
class Limits:
    """What one rollout may use.

    max_turns: assistant turns. max_tokens_per_turn: sampled tokens of one turn. max_tokens: all tokens of the rollout,
    prompt and tool output included. max_tool_calls: None is no limit; final calls are free. max_seconds: wall clock.
    Raises ConfigError for a limit that is not positive (max_tool_calls may be 0).
    """

    max_turns: int = 10
    max_tokens_per_turn: int = 512
    max_tokens: int = 4096
    max_tool_calls: int | None = None
    max_seconds: float = 300.0

    def __post_init__(self) -> None:
        _check_count("max_turns", self.max_turns, least=1)
        _check_count("max_tokens_per_turn", self.max_tokens_per_turn, least=1)
        _check_count("max_tokens", self.max_tokens, least=1)
        if self.max_tool_calls is not None:
            _check_count("max_tool_calls", self.max_tool_calls, least=0)
        seconds = self.max_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise ConfigError(f"limits: max_seconds is {seconds!r}, but must be a positive number of seconds")


@dataclass(frozen=True, eq=False)
class Environment:
    """Everything that an attempt is made of, except for the model.

    name: for people and the store. instructions: the system prompt, or a function that makes it. tools: `Tool`s, or
    functions that become tools. rubric: an `etude.grading.Rubric` or one grader. scenarios: by split (train,
    validation, test), each a sequence of scenarios or rows, or the path of a JSONL file. prompt: the scenario's key
    that holds the first user message, or a function that makes it. on_bad_call: an unparsable call, an unknown tool or
    bad arguments are answered with an error text ("continue") or end the attempt ("end"). setup, teardown: run around
    every rollout, sync (in a thread of its own) or async. metrics: numbers to report for a rollout; they never enter
    the reward.

    Raises ConfigError or DataError, naming the tool, split or scenario, for what cannot be played.
    """

    name: str
    instructions: str | Callable[[Scenario], str]
    tools: Sequence[Tool | Callable[..., Any]]
    rubric: Rubric | Grader
    scenarios: Mapping[str, ScenarioSource]
    prompt: str | Callable[[Scenario], str] = "question"
    limits: Limits = field(default_factory=Limits)
    on_bad_call: Literal["continue", "end"] = "continue"
    setup: Callable[[ToolContext], Awaitable[None] | None] | None = None
    teardown: Callable[[ToolContext], Awaitable[None] | None] | None = None
    metrics: Callable[[Rollout, Scenario], Mapping[str, float]] | None = None
    policies: Mapping[str, Policy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigError(f"an environment needs a name that is not empty; it is {self.name!r}")
        if self.on_bad_call not in ("continue", "end"):
            raise ConfigError(f"environment {self.name}: on_bad_call is {self.on_bad_call!r}; use 'continue' or 'end'")
        for role in ("setup", "teardown", "metrics"):
            if getattr(self, role) is not None and not callable(getattr(self, role)):
                raise ConfigError(
                    f"environment {self.name}: {role} is {getattr(self, role)!r}, which is not a function"
                )
        # Not isinstance(Rubric): grading stands on environments, so environments cannot import it.
        if self.rubric is None or isinstance(self.rubric, str | int | float | Mapping | Sequence):
            raise ConfigError(f"environment {self.name}: its rubric is {self.rubric!r}; give it a Rubric or one grader")
        object.__setattr__(self, "tools", _as_tools(self.name, self.tools))
        object.__setattr__(self, "scenarios", _as_scenarios(self.name, self.scenarios))
        if isinstance(self.prompt, str):
            for split in self._splits.values():
                for scenario in split:
                    self._prompt_in(scenario, self.prompt)

    @cached_property
    def tools_by_name(self) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in self.tools if isinstance(tool, Tool)}

    @cached_property
    def tool_specs(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's form, in the order in which they were given."""
        return [tool.spec() for tool in self.tools_by_name.values()]

    @property
    def has_final_tool(self) -> bool:
        """Whether an attempt ends with a call of a tool, rather than with a turn without a call."""
        return any(tool.final for tool in self.tools_by_name.values())

    def instructions_for(self, scenario: Scenario) -> str:
        """Raises ConfigError where a function made something that is not text, and whatever that function raises."""
        return self._made("instructions", self.instructions, scenario)

    def prompt_for(self, scenario: Scenario) -> str:
        """Raises DataError where the scenario has no such text, else as `instructions_for`."""
        if isinstance(self.prompt, str):
            return self._prompt_in(scenario, self.prompt)
        return self._made("prompt", self.prompt, scenario)

    def scenarios_of(self, split: str) -> Sequence[Scenario]:
        """Raises ConfigError for a split that is not there or empty, naming those that can be used."""
        found = self._splits.get(split, ())
        if not found:
            usable = ", ".join(f"{name} ({len(rows)})" for name, rows in self._splits.items() if rows)
            raise ConfigError(f"environment {self.name} has no scenarios in split {split!r}; it has: {usable}")
        return found

    async def run_setup(self, context: ToolContext) -> None:
        """Raises whatever the environment's setup raises."""
        if self.setup is not None:
            await invoke(self.setup, context)

    async def run_teardown(self, context: ToolContext) -> None:
        """Raises whatever the environment's teardown raises."""
        if self.teardown is not None:
            await invoke(self.teardown, context)

    @property
    def _splits(self) -> Mapping[str, tuple[Scenario, ...]]:
        """`scenarios` as __post_init__ left them."""
        return self.scenarios  # type: ignore[return-value]

    def _prompt_in(self, scenario: Scenario, key: str) -> str:
        text = scenario.get(key)
        if not isinstance(text, str) or not text.strip():
            held = "is missing" if key not in scenario else f"is {text!r}, not a text with something in it"
            raise DataError(
                f"environment {self.name}: {scenario.split} scenario {scenario.id!r}: its prompt, key {key!r}, {held}; "
                f"its keys are {', '.join(scenario)} (prompt='...' names another key)"
            )
        return text

    def _made(self, what: str, source: str | Callable[[Scenario], str], scenario: Scenario) -> str:
        text = source if isinstance(source, str) else source(scenario)
        if not isinstance(text, str):
            raise ConfigError(
                f"environment {self.name}: its {what} for scenario {scenario.id!r} are {text!r}, not text"
            )
        return text


def load_environment(entry: str, args: Mapping[str, Any]) -> Environment:
    """The environment that a function makes when it is called with `args`.

    entry: "package.module:function", "path/to/file.py:function", or the name of a recipe (`etude.recipes`), whose
    function is `environment`. Raises ConfigError, naming the entry, where file, module or function is missing, where it
    does not take an argument, raises an error, or returns something else; and any EtudeError as it is.
    """
    made = call_entry(entry, args)
    if not isinstance(made, Environment):
        raise ConfigError(f"{entry}: returned {type(made).__name__}, but an environment is an etude Environment")
    return made


def _check_count(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"limits: {name} is {value!r}, but must be a whole number of at least {least}")


def _as_tools(environment: str, tools: Iterable[Tool | Callable[..., Any]]) -> tuple[Tool, ...]:
    made = [tool if isinstance(tool, Tool) else Tool.from_function(tool) for tool in tools]
    names = [tool.name for tool in made]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"environment {environment}: more than one tool is called {', '.join(twice)}; rename one")
    return tuple(made)


def _as_scenarios(environment: str, splits: Mapping[str, ScenarioSource]) -> dict[str, tuple[Scenario, ...]]:
    made: dict[str, tuple[Scenario, ...]] = {}
    split_of: dict[str, str] = {}
    for split, source in splits.items():
        if split not in SPLITS:
            raise ConfigError(f"environment {environment}: there is no split {split!r}; use {', '.join(SPLITS)}")
        rows = load_scenarios(source, split) if isinstance(source, str | Path) else source
        made[split] = tuple(_as_scenario(environment, split, number, row) for number, row in enumerate(rows, start=1))
        for scenario in made[split]:
            if scenario.id in split_of:
                raise DataError(
                    f"environment {environment}: the scenario id {scenario.id!r} is in {split_of[scenario.id]} and "
                    f"again in {split}; ids must be unique (a row without one is named after its file and line)"
                )
            split_of[scenario.id] = split
    if not split_of:
        raise DataError(f"environment {environment} has no scenarios; give it at least one in a split")
    return made


def _as_scenario(environment: str, split: str, number: int, row: Scenario | Mapping[str, Any]) -> Scenario:
    where = f"environment {environment}: {split} scenario {number}"
    if not isinstance(row, Scenario):
        if not isinstance(row, Mapping):
            raise DataError(f"{where}: is {row!r}; a scenario is a Scenario or a mapping of keys to values")
        return scenario_from_row(row, where, default_id=f"{split}-{number}", split=split)
    if row.split != split:
        raise DataError(f"{where} ({row.id!r}): belongs to split {row.split!r}, but is used as {split!r}")
    return row
