"""The world of drawers, in which one thing takes for ever: once, for whoever comes back finds it mended."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import etude.training.runtime
from etude.engine.local import EngineCore
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.environment.tools import Tool, ToolContext, tool
from etude.learning.learner import Learner
from etude.rollout.rollout import Rollout
from etude.training.checkpoints import Checkpoints
from support.symbols import drawers, open_drawer, reward, say

FOR_EVER_S = 3600.0
AT_CALL = 3  # of what is stuck: some are done before


class Stuck:
    """Says that it has begun, in a file; then takes for ever."""

    def __init__(self, marker: Path) -> None:
        self.marker, self.calls = marker, 0

    def due(self) -> bool:
        self.calls += 1
        if self.calls < AT_CALL or self.marker.exists():
            return False
        self.marker.touch()
        return True

    def block(self) -> None:
        if self.due():
            time.sleep(FOR_EVER_S)

    async def wait(self) -> None:
        if self.due():
            await asyncio.sleep(FOR_EVER_S)

    async def refuse(self) -> None:
        """Not even to be cancelled."""
        if self.due():
            while True:
                try:
                    await asyncio.sleep(FOR_EVER_S)
                except asyncio.CancelledError:
                    continue

    def before(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def stuck(*args: Any, **kwargs: Any) -> Any:
            self.block()
            return original(*args, **kwargs)

        setattr(owner, name, stuck)


def world(moment: str, marker: str) -> Environment:
    stuck = Stuck(Path(marker))
    places: dict[str, Callable[[], None]] = {
        "loading": lambda: stuck.before(etude.training.runtime, "load_model"),
        "sampling": lambda: stuck.before(EngineCore, "step"),
        "learning": lambda: stuck.before(Learner, "step"),
        "imitating": lambda: stuck.before(Learner, "sft_step"),
        "saving": lambda: stuck.before(Checkpoints, "save"),
    }
    if moment in places:
        stuck.calls = AT_CALL if moment == "loading" else 0  # it happens once only
        places[moment]()
        return drawers()
    if moment == "grader":
        return drawers(grader(stuck))
    if moment == "none":
        return drawers()
    return drawers(tools=[slow_tool(moment, stuck), say])


def grader(stuck: Stuck) -> Callable[[Rollout, Scenario], Any]:
    async def slow(rollout: Rollout, scenario: Scenario) -> float:
        await stuck.wait()
        return await reward(rollout, scenario)

    return slow


def slow_tool(moment: str, stuck: Stuck) -> Tool:
    @tool(name="open_drawer", timeout_s=FOR_EVER_S)
    async def waits(number: int, context: ToolContext) -> str:
        """Open a drawer."""
        await {"tool": stuck.wait, "stubborn tool": stuck.refuse}[moment]()
        return await open_drawer(number, context)

    @tool(name="open_drawer", timeout_s=FOR_EVER_S)
    async def blocks(number: int, context: ToolContext) -> str:
        """Open a drawer, and hold up everything else meanwhile."""
        stuck.block()
        return await open_drawer(number, context)

    @tool(name="open_drawer", timeout_s=FOR_EVER_S)
    def in_a_thread(number: int, context: ToolContext) -> Any:
        """Open a drawer."""
        stuck.block()
        return open_drawer(number, context)

    return {"tool in a thread": in_a_thread, "tool that blocks the event loop": blocks}.get(moment, waits)
