"""What the tests of tools share: a way to run calls, with time limits of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from etude.environment.calls import ToolCall, ToolResult
from etude.environment.scenario import Scenario
from etude.environment.tools import Cut, Tool, ToolContext, run_calls

WAIT_S = 20.0  # far more than anything here takes: reached only where something hangs


def cut_words(text: str, max_tokens: int) -> tuple[str, int, bool]:
    words = text.split(" ")
    if len(words) <= max_tokens:
        return text, len(words), False
    return " ".join([*words[: max_tokens - 1], "[cut]"]), max_tokens, True


@pytest.fixture(scope="session")
def cut() -> Cut:
    """A budget in words."""
    return cut_words


@pytest.fixture
def context() -> ToolContext:
    return ToolContext(Scenario("s1", "train", {"question": "?"}), trace_id="trace_1", state={})


@pytest.fixture
def run_tools(context: ToolContext) -> Callable[..., list[ToolResult]]:
    """Runs the calls of one turn on an event loop of their own."""

    def run(tools: list[Tool], *calls: ToolCall) -> list[ToolResult]:
        work = run_calls({each.name: each for each in tools}, calls, context, cut_words)
        return asyncio.run(asyncio.wait_for(work, WAIT_S))

    return run


@pytest.fixture
def run_one(run_tools: Callable[..., list[ToolResult]]) -> Callable[..., ToolResult]:
    """Runs one call of a function, which becomes a tool called "it"."""

    def run(function: Callable[..., Any], arguments: dict[str, Any] | None = None, **options: Any) -> ToolResult:
        made = Tool.from_function(function, **{"name": "it", **options})
        return run_tools([made], ToolCall("it", arguments or {}))[0]

    return run
