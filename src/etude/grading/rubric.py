"""Graders and rubrics: named scores, and the one reward that is made of them.

The reward of a rubric is

    R = clip(gates · Σ weight · score − Σ coefficient · penalty)

where `gates` is the product of the scores that are gates (0 where the hard budget of tool calls is overrun). So good
form, as a gate, can never buy back a wrong answer, and what an attempt costs counts however it ends.
A grader that breaks is a fault, and a fault is never a number.
"""

from __future__ import annotations

import asyncio
import math
import numbers
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.environment.blame import blame, file_of
from etude.environment.calls import Fault
from etude.environment.invoke import invoke
from etude.environment.scenario import Scenario
from etude.errors import ConfigError
from etude.rollout.rollout import Rollout

Grader = Callable[[Rollout, Scenario], float | Awaitable[float]]

# What every rollout can be charged for, by name. All but the seconds are reproducible.
COUNTS: Mapping[str, Callable[[Rollout], float]] = {
    "completion_tokens": lambda rollout: rollout.completion_tokens,
    "prompt_tokens": lambda rollout: rollout.prompt_tokens,
    "tool_calls": lambda rollout: len(rollout.calls),
    "turns": lambda rollout: rollout.turns,
    "parse_failures": lambda rollout: sum(rollout.parse_failures.values()),
    "tool_s": lambda rollout: rollout.tool_s,
    "wall_s": lambda rollout: rollout.wall_s,
}


@dataclass(frozen=True)
class Rubric:
    """scores: graders by name. weights: of those scores that are summed; 1 where none is given. gates: names of scores
    that multiply the sum instead of adding to it; their graders give 0 to 1. penalties: by name, what is counted (a key
    of `COUNTS`, or a grader) and the coefficient that it is subtracted with. tool_budget: more calls than this and the
    scores count for nothing. clip: (lowest, highest) reward.

    Raises ConfigError for a rubric that cannot work.
    """

    scores: Mapping[str, Grader]
    weights: Mapping[str, float] = field(default_factory=dict)
    gates: Sequence[str] = ()
    penalties: Mapping[str, tuple[str | Grader, float]] = field(default_factory=dict)
    tool_budget: int | None = None
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check_scores(self)
        _check_penalties(self)
        if self.tool_budget is not None and (isinstance(self.tool_budget, bool) or self.tool_budget < 0):
            raise ConfigError(f"rubric: tool_budget is {self.tool_budget!r}; give a number of calls from 0, or None")
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ConfigError(f"rubric: clip is {self.clip!r}; give (lowest, highest)")

    def graders(self) -> dict[str, Grader]:
        """All graders to run: of scores, and of those penalties that are no plain count."""
        return {**self.scores, **{name: counted for name, (counted, _) in self.penalties.items() if callable(counted)}}

    def reward(self, values: Mapping[str, float], rollout: Rollout) -> float:
        """The formula above. values: what each of `graders()` gave."""
        gate = math.prod(values[name] for name in self.gates)
        if self.tool_budget is not None and len(rollout.calls) > self.tool_budget:
            gate = 0.0
        total = sum(self.weights.get(name, 1.0) * values[name] for name in self.scores if name not in self.gates)
        costs = sum(
            coefficient * (values[name] if callable(counted) else COUNTS[counted](rollout))
            for name, (counted, coefficient) in self.penalties.items()
        )
        reward = gate * total - costs
        return reward if self.clip is None else min(max(reward, self.clip[0]), self.clip[1])


@dataclass(frozen=True, slots=True)
class Grade:
    """reward: None where the rollout may not be scored or a grader broke; then `fault` says which, if one did.
    scores: what each grader gave, by name."""

    reward: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    fault: Fault | None = None


async def grade(rubric: Rubric | Grader, rollout: Rollout, scenario: Scenario, timeout_s: float) -> Grade:
    """Grade one rollout. Graders run side by side, each within `timeout_s` seconds; sync ones in threads of their own.

    An attempt that failed by the model's own doing is graded like any other; faulted and cancelled ones are not.
    A grader that raises, takes too long, or gives anything but a finite number is a fault ("grader:NAME"): no reward.
    """
    if not rollout.outcome.scored:
        return Grade(reward=None)
    if not isinstance(rubric, Rubric):
        rubric = Rubric(scores={getattr(rubric, "__name__", type(rubric).__name__): rubric})
    graders = rubric.graders()
    results = await asyncio.gather(
        *(_measure(name, grader, rollout, scenario, timeout_s) for name, grader in graders.items())
    )
    faults = [result for result in results if isinstance(result, Fault)]
    values = {name: result for name, result in zip(graders, results, strict=True) if not isinstance(result, Fault)}
    faults += [
        _not_a_gate(name, values[name]) for name in rubric.gates if name in values and not 0 <= values[name] <= 1
    ]
    if faults:
        return Grade(reward=None, scores=values, fault=faults[0])
    reward = rubric.reward(values, rollout)
    if not math.isfinite(reward):
        return Grade(None, values, Fault("grader:rubric", "not_finite", f"the scores {values!r} add up to {reward}"))
    return Grade(reward, values)


async def _measure(name: str, grader: Grader, rollout: Rollout, scenario: Scenario, timeout_s: float) -> float | Fault:
    where = f"grader:{name}"
    try:
        async with asyncio.timeout(timeout_s) as limit:
            value = await invoke(grader, rollout, scenario)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # asked for from outside, not the grader's own
            raise
        return Fault(where, "exception", "it cancelled itself")
    except Exception as error:  # noqa: BLE001 - the one boundary to the user's grader: all that it raises is its fault
        if limit.expired():
            return Fault(where, "timeout", f"no score within {timeout_s:g} s")
        return Fault(where, "exception", blame(error, file_of(grader)))
    return _number(where, value)


def _number(where: str, value: Any) -> float | Fault:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        kind = type(value).__name__
        return Fault(where, "not_a_number", f"it gave {value!r:.80} ({kind}) for a score; return a float")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        return Fault(where, "not_finite", f"it gave {number} for a score; return a finite float")
    return number


def _not_a_gate(name: str, value: float) -> Fault:
    return Fault(f"grader:{name}", "not_a_gate", f"it gave {value:g}, but a gate multiplies the reward: return 0 to 1")


def _check_scores(rubric: Rubric) -> None:
    if not rubric.scores:
        raise ConfigError("rubric: it has no scores; name at least one grader")
    for name, grader in rubric.scores.items():
        if not callable(grader):
            raise ConfigError(f"rubric: the score {name!r} is {grader!r}; give a function of (rollout, scenario)")
    if isinstance(rubric.gates, str):
        raise ConfigError(f"rubric: gates is the text {rubric.gates!r}; give a list of names")
    for what, names in (("gates", rubric.gates), ("weights", rubric.weights)):
        if unknown := sorted(set(names) - set(rubric.scores)):
            raise ConfigError(f"rubric: {what} name {', '.join(unknown)}; its scores are {', '.join(rubric.scores)}")
    if both := sorted(set(rubric.gates) & set(rubric.weights)):
        raise ConfigError(f"rubric: {', '.join(both)}: a gate multiplies the sum and has no weight in it; drop one")
    if not set(rubric.scores) - set(rubric.gates):
        raise ConfigError("rubric: all its scores are gates, so the sum that they multiply is empty; add a score")
    for name, weight in rubric.weights.items():
        if not math.isfinite(weight):
            raise ConfigError(f"rubric: the weight of {name!r} is {weight!r}; give a finite number")


def _check_penalties(rubric: Rubric) -> None:
    for name, (counted, coefficient) in rubric.penalties.items():
        if name in rubric.scores:
            raise ConfigError(f"rubric: {name!r} is a score and a penalty; rename one")
        if not callable(counted) and counted not in COUNTS:
            raise ConfigError(f"rubric: the penalty {name!r} counts {counted!r}; use a grader, or {', '.join(COUNTS)}")
        if not (math.isfinite(coefficient) and coefficient >= 0):
            raise ConfigError(
                f"rubric: the penalty {name!r} has the coefficient {coefficient!r}; it is subtracted: from 0"
            )
