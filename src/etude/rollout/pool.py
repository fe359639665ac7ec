"""The pool: many groups at once, never more than the allowed staleness, nothing dropped unnoticed.

`room` is the one formula of admission. In lock-step the pool plays whole waves and takes groups in the order of their
tickets, so that nothing depends on timing; otherwise groups are taken as they finish.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Literal

from etude.environment.scenario import Scenario
from etude.errors import TrainingError
from etude.rollout.group import Group, Ticket

MIN_SCORED = 2  # a group trains with at least two scored siblings
BREAKER_WINDOW = 50  # rollouts


def room(version: int, staleness: int, groups_per_step: int, trained: int, waiting: int, running: int) -> int:
    """How many groups may be admitted now: groups trained + waiting + running < (η + version + 1) · groups_per_step.
    Dropped and refused groups count in none of them."""
    return max(0, (staleness + version + 1) * groups_per_step - trained - waiting - running)


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """refill: replace groups without variance, at most refill_limit · groups_per_step of them a step."""

    groups_per_step: int
    staleness: int = 0
    lockstep: bool = False
    refill: bool = False
    refill_limit: float = 3.0
    max_fault_rate: float = 0.5


@dataclass(slots=True)
class PoolState:
    """What a checkpoint keeps of a pool: enough to go on as if nothing had happened (groups in flight start again)."""

    next_ticket: int = 0
    trained: int = 0
    pending: list[int] = field(default_factory=list)  # tickets in flight, to be played again
    waiting: list[Group] = field(default_factory=list)


class Pool:
    """scenario_of: the sampler, a pure function of the ticket's number. play: opens and plays one group.
    on_group: sees every group that finished, with what became of it ("kept" or the reason of the drop), and again where
    one that was kept is refused later as "stale"."""

    def __init__(
        self,
        settings: PoolSettings,
        scenario_of: Callable[[int], Scenario],
        play: Callable[[Ticket], Coroutine[None, None, Group]],
        on_group: Callable[[Group, str], Awaitable[None]],
        state: PoolState | None = None,
    ) -> None:
        state = state or PoolState()
        self.settings = settings
        self.dropped: Counter[str] = Counter()  # since the pool was made, by reason
        self._scenario_of, self._play, self._on_group = scenario_of, play, on_group
        self._next_ticket, self._trained = state.next_ticket, state.trained
        self._again = deque(sorted(state.pending))
        self._waiting: list[Group] = list(state.waiting)
        self._running: dict[asyncio.Task[Group], Ticket] = {}
        self._recent: deque[bool] = deque(maxlen=BREAKER_WINDOW)  # did the try fault?
        self._dropped_this_step: Counter[str] = Counter()

    def state(self) -> PoolState:
        """Call between steps."""
        pending = [*self._again, *(ticket.number for ticket in self._running.values())]
        return PoolState(self._next_ticket, self._trained, sorted(pending), list(self._waiting))

    async def next_step(self, version: int) -> list[Group]:
        """The groups of one optimizer step, for weights of this version.

        Raises TrainingError where faults pass the breaker's rate, or no group can be had within the refill limit, and
        whatever the engine raises."""
        self._dropped_this_step.clear()
        count = self.settings.groups_per_step
        await self._refuse_stale(version)
        self._admit(version)
        while len(self._waiting) < count or (self.settings.lockstep and self._running):
            for group in await self._finished():
                await self._sort(group)
            await self._refuse_stale(version)
            if not self.settings.lockstep or len(self._waiting) < count:
                self._admit(version)
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        self._trained += count
        return batch

    def _admit(self, version: int) -> None:
        settings = self.settings
        free = room(
            version, settings.staleness, settings.groups_per_step, self._trained, len(self._waiting), len(self._running)
        )
        # All of a wave is opened before any of it runs: `play` opens at once, its coroutine starts at the next await.
        for ticket in [self._draw() for _ in range(free)]:
            self._running[asyncio.create_task(self._play(ticket), name=f"group-{ticket.number}")] = ticket

    def _draw(self) -> Ticket:
        if self._again:
            number = self._again.popleft()
        else:
            number, self._next_ticket = self._next_ticket, self._next_ticket + 1
        return Ticket(number, self._scenario_of(number))

    async def _finished(self) -> list[Group]:
        wanted: Literal["ALL_COMPLETED", "FIRST_COMPLETED"]
        wanted = asyncio.ALL_COMPLETED if self.settings.lockstep else asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(self._running, return_when=wanted)
        for task in done:
            del self._running[task]
        for error in [task.exception() for task in done]:  # all are looked at, so that none is lost
            if error is not None:
                raise error
        groups = [task.result() for task in done]
        return sorted(groups, key=lambda group: group.ticket.number)

    async def _sort(self, group: Group) -> None:
        reason = self._reason_to_drop(group)
        if reason is None:
            self._waiting.append(group)
        else:
            self._drop(reason)
        await self._on_group(group, reason or "kept")
        self._watch_faults(group)

    def _reason_to_drop(self, group: Group) -> str | None:
        if len(group.scored) < MIN_SCORED:
            return "too_few_scored"
        if self.settings.refill and not group.has_variance:
            limit = self.settings.refill_limit * self.settings.groups_per_step
            return "zero_variance" if self._dropped_this_step["zero_variance"] < limit else None
        return None

    def _drop(self, reason: str) -> None:
        self.dropped[reason] += 1
        self._dropped_this_step[reason] += 1

    async def _refuse_stale(self, version: int) -> None:
        """What is older than η versions is not trained; the oldest token counts, time in the queue too."""
        fresh = []
        for group in self._waiting:
            oldest = group.oldest_version
            if oldest is not None and version - oldest > self.settings.staleness:
                self._drop("stale")
                await self._on_group(group, "stale")
            else:
                fresh.append(group)
        self._waiting = fresh

    def _watch_faults(self, group: Group) -> None:
        self._recent.extend(True for _ in group.faulted)
        self._recent.extend(not rollout.outcome.scored for rollout in group.rollouts)
        rate = sum(self._recent) / len(self._recent)
        if len(self._recent) == BREAKER_WINDOW and rate > self.settings.max_fault_rate:
            raise TrainingError(
                f"{rate:.0%} of the last {BREAKER_WINDOW} rollouts faulted (limit {self.settings.max_fault_rate:.0%}); "
                f"the run stops rather than train on what is left. Last faults: {'; '.join(_faults(group))}. "
                "Mend the tool or grader and resume, or raise training.max_fault_rate."
            )

    async def aclose(self) -> None:
        """Cancel what is in flight and wait for it."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()


def _faults(group: Group) -> Iterator[str]:
    for rollout in [*group.faulted, *group.rollouts]:
        if rollout.fault is not None:
            yield f"{rollout.fault.where} {rollout.fault.kind}: {rollout.fault.message}"
