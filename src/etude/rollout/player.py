"""Plays attempts to a graded end: run, grade, start again where it faulted."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from etude.engine.protocol import Engine
from etude.environment.blame import blame, file_of
from etude.environment.calls import Fault
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.grading.rubric import grade
from etude.rollout.agent import Attempt, derive_seed, run_attempt
from etude.rollout.chat import ChatFormat
from etude.rollout.group import Group, Ticket
from etude.rollout.outcome import Outcome
from etude.rollout.rollout import Rollout

GRADE_TIMEOUT_S = 120.0


async def finish(environment: Environment, rollout: Rollout, scenario: Scenario) -> Rollout:
    """Grade a rollout in place and add the environment's metrics. A fault gets no reward; a grader or a metric that
    breaks makes it a `grader_fault`."""
    if not rollout.outcome.scored:
        return rollout
    result = await grade(environment.rubric, rollout, scenario, GRADE_TIMEOUT_S)
    rollout.reward, rollout.scores = result.reward, dict(result.scores)
    fault = result.fault
    if fault is None and environment.metrics is not None:
        try:
            rollout.metrics = {name: float(value) for name, value in environment.metrics(rollout, scenario).items()}
        except Exception as error:  # noqa: BLE001  # the user's code: attributed, shown, never scored
            fault = Fault("metrics", "exception", blame(error, file_of(environment.metrics)))
    if fault is not None:
        rollout.outcome, rollout.fault, rollout.reward = Outcome.GRADER_FAULT, fault, None
    return rollout


@dataclass
class Player:
    """max_concurrent: rollouts that run at once; None is no limit (lock-step, where all of a wave must be open)."""

    environment: Environment
    engine: Engine
    chat: ChatFormat
    seed: int
    temperature: float = 1.0
    max_retries: int = 3
    max_concurrent: int | None = None
    _gate: AbstractAsyncContextManager[object] = field(init=False)

    def __post_init__(self) -> None:
        self._gate = nullcontext() if self.max_concurrent is None else asyncio.Semaphore(self.max_concurrent)

    def group(self, ticket: Ticket, attempts: int, name: str = "train") -> Coroutine[None, None, Group]:
        """Opens all attempts at the engine now (a lock-step wave must know whom to wait for); plays when awaited.
        name: keeps seeds and keys of training apart from those of validations."""
        keys = [f"{name}/{ticket.number:08d}/{index:04d}" for index in range(attempts)]
        for key in keys:
            self.engine.open(key)
        return self._group(ticket, keys, name)

    async def _group(self, ticket: Ticket, keys: list[str], name: str) -> Group:
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._attempt(ticket, index, key, name), name=key)
                    for index, key in enumerate(keys)
                ]
        except ExceptionGroup as errors:  # what stops one attempt here (a broken engine) stops all: tell it once
            raise errors.exceptions[0] from errors
        tries = [task.result() for task in running]
        return Group(ticket, [each[-1] for each in tries], [rollout for each in tries for rollout in each[:-1]])

    async def _attempt(self, ticket: Ticket, index: int, key: str, name: str) -> list[Rollout]:
        """All tries of one attempt, the last one counts. A fault is started again under a new trace id and seed."""
        tries: list[Rollout] = []
        try:
            async with self._gate:
                while True:
                    tries.append(await self._try(ticket, index, key, name, len(tries)))
                    if tries[-1].outcome.scored or len(tries) > self.max_retries:
                        return tries
        finally:
            self.engine.close(key)

    async def _try(self, ticket: Ticket, index: int, key: str, name: str, retry: int) -> Rollout:
        attempt = Attempt(
            key=key,
            trace_id=f"trace_{uuid.uuid4()}",
            group=f"{name}/{ticket.number:08d}",
            index=index,
            seed=derive_seed(self.seed, name, ticket.number, index, retry),
            temperature=self.temperature,
        )
        rollout = await self._play(ticket.scenario, attempt)
        rollout.retries = retry
        return await finish(self.environment, rollout, ticket.scenario)

    def used(self) -> Mapping[str, float]:
        """What playing has used so far, as figures for the store: of endpoints."""
        return {}

    async def _play(self, scenario: Scenario, attempt: Attempt) -> Rollout:
        """One try, ungraded."""
        return await run_attempt(self.environment, scenario, self.engine, self.chat, attempt)
