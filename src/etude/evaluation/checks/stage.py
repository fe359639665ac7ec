"""Where attempts of a check are played: the agent loop, the environment's own tools, limits and grader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etude.environment.blame import blame
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.rollout.messages import Message
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.player import finish
from etude.rollout.rollout import Rollout
from etude.rollout.scripted import Policy, play

CHARACTERS_PER_TOKEN = 4  # as `etude.rollout.scripted` counts without a tokenizer
MOST_AT_ONCE = 8  # attempts that are played at the same time


class PolicyBroke(Exception):
    """A policy of the environment raised an exception; the text names its line."""


class Turns:
    """A policy that makes the given turns, and the last one again for as long as it is asked."""

    def __init__(self, turns: Sequence[Message]) -> None:
        self._turns = turns

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        return self._turns[min(sum(message.role == "assistant" for message in messages), len(self._turns) - 1)]


def _ungraded(rollout: Rollout, scenario: Scenario) -> float:
    return 0.0


@dataclass
class Stage:
    """environment: the one that is checked. graded: how many attempts its grader has seen."""

    environment: Environment
    graded: int = 0
    _bare: Environment = field(init=False)
    _short: Environment = field(init=False)
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))

    def __post_init__(self) -> None:
        # Played first and graded after: a script speaks without tokens, and a grader may count them.
        self._bare = replace(self.environment, rubric=_ungraded, metrics=None)
        self._short = replace(self._bare, limits=replace(self._bare.limits, max_turns=1))

    async def play(self, scenario: Scenario, turns: Sequence[Message], *, cut: bool = False) -> Rollout:
        """One graded attempt. cut: its last turn ran into the limit of tokens, so that nothing of it was parsed."""
        async with self._gate:
            rollout = await play(self._short if cut else self._bare, scenario, Turns(turns))
            if cut and rollout.outcome.scored:
                rollout = replace(rollout, outcome=Outcome.POLICY_FAULT, stop=Stop.TRUNCATED, answer=None)
                rollout.parse_failures = {}
            return await self.grade(rollout, scenario)

    async def play_policy(self, scenario: Scenario, policy: Policy) -> Rollout:
        """Raises PolicyBroke."""
        async with self._gate:
            try:
                rollout = await play(self._bare, scenario, policy)
            except Exception as error:
                raise PolicyBroke(blame(error.__cause__ or error)) from error
            return await self.grade(rollout, scenario)

    async def grade(self, rollout: Rollout, scenario: Scenario) -> Rollout:
        """A fresh copy with the environment's reward; also for one that was graded before."""
        outcome = rollout.outcome
        if outcome is Outcome.GRADER_FAULT:
            outcome = Outcome.OK if rollout.stop is Stop.ANSWERED else Outcome.POLICY_FAULT
        fault = rollout.fault if not outcome.scored else None
        written = sum(len(each.content) for each in rollout.messages if each.role == "assistant")
        read = sum(len(each.content) for each in rollout.messages if each.role != "assistant")
        fresh = replace(
            rollout,
            outcome=outcome,
            fault=fault,
            reward=None,
            scores={},
            metrics={},
            completion_tokens=-(-written // CHARACTERS_PER_TOKEN),
            prompt_tokens=-(-read // CHARACTERS_PER_TOKEN),
        )
        self.graded += 1
        return await finish(self.environment, fresh, scenario)


def told(rollout: Rollout, most: int = 160) -> str:
    """An attempt in a line: its calls and its answer."""
    calls = [f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})" for call in rollout.calls]
    if len(calls) > 3:
        calls = [*calls[:2], f"… {len(calls) - 3} more calls", calls[-1]]
    texts = [each.content for each in rollout.messages if each.role == "assistant" and not each.tool_calls]
    said: list[Any] = [repr(texts[-1])] if texts else []
    line = " → ".join(["(nothing)"] if not calls and not said else [*calls, *said])
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 2 :]}"
