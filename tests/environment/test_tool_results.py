"""What a call gives back: the answer as the model reads it, or the model's mistake."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import functools
import json
from collections.abc import Awaitable, Callable
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from etude.environment.calls import ToolCall, ToolResult
from etude.environment.tools import NO_OUTPUT, Tool, ToolError, render

RunOne = Callable[..., ToolResult]
RunTools = Callable[..., list[ToolResult]]


def test_sync_and_async_functions_answer(run_tools: RunTools) -> None:
    def double(a: int) -> int:
        return 2 * a

    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"hello {name}"

    tools = [Tool.from_function(double), Tool.from_function(greet)]
    first, second = run_tools(tools, ToolCall("greet", {"name": "you"}), ToolCall("double", {"a": 4}))
    assert (first.kind, first.output, first.value, first.tokens, first.truncated, first.fault) == (
        "ok",
        "hello you",
        "hello you",
        2,
        False,
        None,
    )
    assert (second.kind, second.output, second.value) == ("ok", "8", 8)
    assert first.seconds >= 0
    assert second.seconds > 0


def test_whatever_returns_an_awaitable_is_awaited(run_one: RunOne) -> None:
    async def later(a: int) -> int:
        return a

    class Callee:
        async def __call__(self, a: int) -> int:
            return a

    def wrapped(a: int) -> Awaitable[int]:
        return later(a)

    for function in (functools.partial(later), Callee(), wrapped):
        assert run_one(function, {"a": 7}).value == 7


def test_no_calls_no_results(run_tools: RunTools) -> None:
    assert run_tools([]) == []


def test_a_function_gets_the_types_it_asked_for_and_its_own_defaults(run_one: RunOne) -> None:
    class Colour(Enum):
        RED = "red"

    def paint(colour: Any, times: int = 3) -> str:
        return f"{colour.name} {times}"

    paint.__annotations__["colour"] = Colour
    assert run_one(paint, {"colour": "red"}).output == "RED 3"


def test_a_tool_cannot_change_the_record_of_its_call(run_tools: RunTools) -> None:
    def typed(names: list[str]) -> int:
        names.append("more")
        return len(names)

    schema = {"type": "object", "properties": {"names": {"type": "array"}}, "required": ["names"]}
    for options in ({}, {"parameters": schema}):
        call = ToolCall("it", {"names": ["a"]})
        result = run_tools([Tool.from_function(typed, **{"name": "it", **options})], call)[0]
        assert (result.value, call.arguments) == (2, {"names": ["a"]})


@dataclasses.dataclass
class Hit:
    id: str
    day: datetime.date


class Snippet(BaseModel):
    text: str


class Kind(StrEnum):
    MAIL = "mail"


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, NO_OUTPUT),
        ([], "[]"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, None], "é": "ü"}, '{"a":[1,null],"é":"ü"}'),
        ([Hit("1", datetime.date(2001, 5, 31))], '[{"id":"1","day":"2001-05-31"}]'),
        (Snippet(text="“x”"), '{"text":"“x”"}'),
        (Kind.MAIL, "mail"),
        (datetime.date(2001, 5, 31), "2001-05-31"),
        ((1, "a"), '[1,"a"]'),
        ({3}, "[3]"),
    ],
)
def test_a_result_is_rendered_for_the_model_and_kept_as_it_was(run_one: RunOne, value: Any, output: str) -> None:
    def give() -> Any:
        return value

    result = run_one(give)
    assert (result.kind, result.output) == ("ok", output)
    assert result.value is value


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
        max_leaves=10,
    ).filter(lambda value: isinstance(value, list | dict))
)
def test_rendered_json_is_compact_and_reads_back(value: Any) -> None:
    text = render(value)
    assert json.loads(text) == value
    assert text == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


def test_output_is_cut_to_the_tools_own_budget_and_the_value_is_not(run_one: RunOne) -> None:
    def talk() -> str:
        return "a b c d e"

    result = run_one(talk, max_output_tokens=3)
    assert (result.output, result.tokens, result.truncated, result.value) == ("a b [cut]", 3, True, "a b c d e")


# The model's mistakes


def test_a_tool_error_is_told_to_the_model_within_the_budget(run_one: RunOne) -> None:
    class NotFound(ToolError): ...

    def read(id: str) -> str:
        raise NotFound(f"no mail {id} here")

    result = run_one(read, {"id": "7"})
    assert (result.kind, result.output, result.value, result.fault) == ("error", "Error: no mail 7 here", None, None)
    assert run_one(read, {"id": "7"}, max_output_tokens=2).output == "Error: [cut]"


def test_an_unknown_tool_is_told_the_names_of_those_that_exist(run_tools: RunTools) -> None:
    def search(a: int) -> int:
        return a

    def read(a: int) -> int:
        return a

    tools = [Tool.from_function(search), Tool.from_function(read)]
    result = run_tools(tools, ToolCall("serach", {}))[0]
    assert (result.kind, result.output) == (
        "unknown_tool",
        "Error: there is no tool 'serach'; the tools are: search, read",
    )
    assert result.tokens == len(result.output.split(" "))
    assert len(run_tools(tools, ToolCall("x" * 5000, {}))[0].output) < 200
    assert run_tools([], ToolCall("a", {}))[0].output.endswith("the tools are: none")


def test_bad_arguments_never_reach_the_function(run_one: RunOne) -> None:
    seen: list[Any] = []

    def search(limit: int) -> None:
        seen.append(limit)

    result = run_one(search, {"limit": "3"})
    assert (result.kind, result.output, result.fault) == (
        "bad_arguments",
        'Error: bad arguments for it: limit: "3" is not of type integer',
        None,
    )
    assert seen == []
