"""An environment that cannot be played is refused when it is made, by name."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.environment.tools import Tool, ToolContext, tool
from etude.errors import ConfigError, DataError


def search(query: str) -> list[str]:
    """Search."""
    return [query]


@tool(final=True)
def finish(answer: str) -> str:
    """End."""
    return answer


def always_one(rollout: Any, scenario: Scenario) -> float:
    return 1.0


def environment(**changes: Any) -> Environment:
    fields: dict[str, Any] = {
        "name": "mail",
        "instructions": "Find it.",
        "tools": [search, finish],
        "rubric": always_one,
        "scenarios": {"train": [{"question": "Who?"}, {"question": "When?", "day": "today"}]},
    }
    return Environment(**{**fields, **changes})


def test_functions_become_tools_and_rows_become_scenarios() -> None:
    made = environment()
    assert list(made.tools_by_name) == ["search", "finish"]
    assert all(isinstance(each, Tool) for each in made.tools)
    assert made.tools_by_name["finish"] is finish
    assert [spec["function"]["name"] for spec in made.tool_specs] == ["search", "finish"]
    assert made.has_final_tool
    assert not environment(tools=[search]).has_final_tool
    assert [(each.id, each.split) for each in made.scenarios_of("train")] == [
        ("train-1", "train"),
        ("train-2", "train"),
    ]


def test_prompt_and_instructions_are_texts_or_functions_of_the_scenario() -> None:
    made = environment()
    scenario = made.scenarios_of("train")[1]
    assert (made.instructions_for(scenario), made.prompt_for(scenario)) == ("Find it.", "When?")
    by_function = environment(
        instructions=lambda scenario: f"Today is {scenario['day']}.", prompt=lambda scenario: scenario["question"] * 2
    )
    assert by_function.instructions_for(scenario) == "Today is today."
    assert by_function.prompt_for(scenario) == "When?When?"
    with pytest.raises(KeyError):  # the user's own error comes out as it is
        by_function.instructions_for(by_function.scenarios_of("train")[0])
    with pytest.raises(ConfigError, match="its prompt for scenario 'train-2' are 3, not text"):
        environment(prompt=lambda scenario: 3).prompt_for(scenario)


def test_scenarios_come_from_files_rows_and_scenarios(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "1"}\n{"question": "2", "id": "mine"}\n')
    made = environment(
        scenarios={
            "train": tmp_path / "a.jsonl",
            "validation": [Scenario("v", "validation", {"question": "3"}), {"question": "4", "split": "validation"}],
            "test": (),
        }
    )
    assert [each.id for each in made.scenarios_of("train")] == ["a-1", "mine"]
    assert [each.id for each in made.scenarios_of("validation")] == ["v", "validation-2"]
    assert [each.id for each in environment(scenarios={"test": str(tmp_path / "a.jsonl")}).scenarios_of("test")] == [
        "a-1",
        "mine",
    ]
    for unusable in ("test", "nothing"):
        with pytest.raises(ConfigError, match=rf"no scenarios in split '{unusable}'; it has: train \(2\), validation"):
            made.scenarios_of(unusable)


def test_a_changed_copy_is_checked_again() -> None:
    made = environment()
    copy = dataclasses.replace(made, limits=dataclasses.replace(made.limits, max_turns=3), on_bad_call="end")
    assert (copy.limits.max_turns, copy.on_bad_call) == (3, "end")
    assert copy.tools == made.tools
    assert copy.scenarios == made.scenarios
    with pytest.raises(DataError, match="key 'query', is missing"):
        dataclasses.replace(made, prompt="query")


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"name": " "}, ConfigError, "needs a name"),
        ({"on_bad_call": "stop"}, ConfigError, "mail: on_bad_call is 'stop'; use 'continue' or 'end'"),
        ({"setup": "no"}, ConfigError, "mail: setup is 'no', which is not a function"),
        ({"teardown": 1}, ConfigError, "mail: teardown is 1"),
        ({"metrics": {}}, ConfigError, "mail: metrics is {}"),
        ({"rubric": None}, ConfigError, "mail: its rubric is None; give it a Rubric or one grader"),
        ({"rubric": {"correct": always_one}}, ConfigError, "mail: its rubric is {'correct'"),
        ({"rubric": [always_one]}, ConfigError, r"mail: its rubric is \["),
        ({"tools": [search, search]}, ConfigError, "more than one tool is called search"),
        ({"tools": [lambda: 1]}, ConfigError, "'<lambda>'"),
        ({"scenarios": {}}, DataError, "mail has no scenarios"),
        ({"scenarios": {"train": []}}, DataError, "mail has no scenarios"),
        ({"scenarios": {"dev": [{"question": "?"}]}}, ConfigError, "no split 'dev'; use train, validation, test"),
        ({"scenarios": {"train": [3]}}, DataError, "train scenario 1: is 3"),
        ({"scenarios": {"train": [{"question": "?", "id": []}]}}, DataError, r"train scenario 1: the id is \[\]"),
        ({"scenarios": {"train": [{"question": "?", "split": "test"}]}}, DataError, "'test', but is used as 'train'"),
        (
            {"scenarios": {"train": [Scenario("a", "test", {"question": "?"})]}},
            DataError,
            r"train scenario 1 \('a'\): belongs to split 'test', but is used as 'train'",
        ),
        (
            {"scenarios": {"train": [{"question": "?", "id": "a"}, {"question": "?", "id": "a"}]}},
            DataError,
            "the scenario id 'a' is in train and again in train",
        ),
        (
            {"scenarios": {"train": [{"question": "?", "id": "a"}], "test": [{"question": "?", "id": "a"}]}},
            DataError,
            "the scenario id 'a' is in train and again in test",
        ),
        (
            {"scenarios": {"test": [{"question": "?"}, {"query": "?", "n": 1}]}},
            DataError,
            "test scenario 'test-2': its prompt, key 'question', is missing; its keys are query, n",
        ),
        ({"scenarios": {"test": [{"question": ["?"]}]}}, DataError, r"key 'question', is \['\?'\], not a text"),
        ({"scenarios": {"test": [{"question": "  "}]}}, DataError, "key 'question', is '  ', not a text"),
        ({"scenarios": {"test": "missing.jsonl"}}, DataError, "missing.jsonl: cannot be read"),
    ],
)
def test_what_cannot_be_played_is_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        environment(**changes)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_setup_and_teardown_get_the_context(asynchronous: bool) -> None:
    def begin(context: ToolContext) -> None:
        context.state["begun"] = threading.current_thread() is threading.main_thread()

    async def begin_async(context: ToolContext) -> None:
        context.state["begun"] = True

    def broken(context: ToolContext) -> None:
        raise ValueError("no disk")

    made = environment(setup=begin_async if asynchronous else begin, teardown=broken)
    context = ToolContext(made.scenarios_of("train")[0], "trace", {})
    asyncio.run(made.run_setup(context))
    assert context.state == {"begun": asynchronous}  # sync code stays off the event loop's thread
    with pytest.raises(ValueError, match="no disk"):
        asyncio.run(made.run_teardown(context))
    asyncio.run(environment().run_setup(context))
    asyncio.run(environment().run_teardown(context))


@pytest.mark.parametrize("name", ["max_turns", "max_tokens_per_turn", "max_tokens", "max_tool_calls", "max_seconds"])
@pytest.mark.parametrize("value", [-1, "3", True, float("nan")])
def test_limits_are_positive_numbers(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"limits: {name} is {value!r}"):
        Limits(**{name: value})


def test_only_tool_calls_may_be_limited_to_none_at_all() -> None:
    assert Limits(max_tool_calls=0).max_tool_calls == 0  # only the final tool may be called
    for name in ("max_turns", "max_tokens_per_turn", "max_tokens", "max_seconds"):
        with pytest.raises(ConfigError, match=f"limits: {name} is 0"):
            Limits(**{name: 0})


def test_counts_are_whole_and_seconds_are_finite() -> None:
    assert Limits(max_seconds=2, max_tool_calls=None) == Limits(max_seconds=2.0)
    with pytest.raises(ConfigError, match=r"max_turns is 2\.5, but must be a whole number of at least 1"):
        Limits(max_turns=2.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_seconds is inf"):
        Limits(max_seconds=float("inf"))


def test_environments_import_neither_torch_nor_transformers() -> None:
    script = (
        "import sys, etude.environment.environment as _; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
