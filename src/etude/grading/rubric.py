"""A stand-in by LEAD so that integration can begin; GRADE replaces this file with the real one."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from etude.environment.calls import Fault
from etude.environment.scenario import Scenario
from etude.rollout.rollout import Rollout

Grader = Callable[[Rollout, Scenario], float | Awaitable[float]]


@dataclass(frozen=True)
class Rubric:
    scores: Mapping[str, Grader]


@dataclass(frozen=True)
class Grade:
    reward: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    fault: Fault | None = None


async def grade(rubric: Rubric | Grader, rollout: Rollout, scenario: Scenario, timeout_s: float) -> Grade:
    scores = {}
    graders = rubric.scores if isinstance(rubric, Rubric) else {"reward": rubric}
    for name, grader in graders.items():
        try:
            async with asyncio.timeout(timeout_s):
                value = grader(rollout, scenario)
                if inspect.isawaitable(value):
                    value = await value
        except Exception as error:
            return Grade(None, {}, Fault(f"grader:{name}", "exception", f"{type(error).__name__}: {error}"))
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return Grade(None, {}, Fault(f"grader:{name}", "not_a_number", repr(value)))
        scores[name] = float(value)
    return Grade(sum(scores.values()), scores)
