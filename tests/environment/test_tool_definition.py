"""How a function becomes a Tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from etude.environment.context import ToolContext
from etude.environment.tools import Tool, tool
from etude.errors import ConfigError


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(name="finish", description="End it.", timeout_s=2.5, max_output_tokens=7, final=True)
async def answer(text: str, context: ToolContext) -> str:
    """Not this."""
    return text + context.trace_id


@tool(parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
def raw(a, context: ToolContext):  # type: ignore[no-untyped-def]
    """From a schema.

    Args:
        unknown: is not checked here.
    """
    return a


def test_a_decorated_function_is_a_tool_that_can_still_be_called() -> None:
    assert isinstance(add, Tool)
    assert add(2, b=3) == 5
    assert (add.timeout_s, add.max_output_tokens, add.final) == (30.0, 1000, False)
    assert add.spec() == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
                "required": ["a"],
            },
        },
    }


def test_options_replace_what_the_function_says() -> None:
    assert (answer.name, answer.description, answer.timeout_s, answer.max_output_tokens, answer.final) == (
        "finish",
        "End it.",
        2.5,
        7,
        True,
    )
    assert answer.context_param == "context"
    context: Any = type("Context", (), {"trace_id": "!"})
    assert asyncio.run(answer("done", context)) == "done!"


def test_a_raw_schema_takes_the_place_of_the_types() -> None:
    assert (raw.name, raw.description, raw.context_param, raw.adapters) == ("raw", "From a schema.", "context", None)
    assert raw.spec()["function"]["parameters"]["required"] == ["a"]


def test_a_function_without_a_name_needs_one() -> None:
    def typed(a: int) -> int:
        return a

    assert Tool.from_function(typed, name="other-name_1").name == "other-name_1"
    with pytest.raises(ConfigError, match=r"'<lambda>'.*letters, digits"):
        Tool.from_function(lambda: None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": ""}, "tool name ''"),
        ({"name": "two words"}, "'two words'"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"timeout_s": 0}, "add: timeout_s is 0"),
        ({"timeout_s": -1.0}, "timeout_s is -1.0"),
        ({"timeout_s": float("inf")}, "timeout_s is inf"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"max_output_tokens": 0}, "max_output_tokens is 0"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Tool.from_function(add.function, **options)
