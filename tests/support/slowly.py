"""The world of drawers, in which each grading takes a moment: there is time to interrupt."""

from __future__ import annotations

import asyncio

from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.rollout.rollout import Rollout
from support import symbols

MOMENT_S = 0.02


async def reward(rollout: Rollout, scenario: Scenario) -> float:
    await asyncio.sleep(MOMENT_S)
    return await symbols.reward(rollout, scenario)


def drawers() -> Environment:
    return symbols.drawers(reward)
