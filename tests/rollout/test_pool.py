"""The pool: one formula of admission, staleness never above η, everything that is dropped is counted."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.environment.calls import Fault
from etude.environment.scenario import Scenario
from etude.errors import TrainingError
from etude.rollout.group import Group, Ticket
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.pool import Pool, PoolSettings, PoolState, room
from etude.rollout.rollout import Rollout
from etude.rollout.trajectory import Row, Trajectory


def scenario_of(number: int) -> Scenario:
    return Scenario(f"s{number}", "train", {"question": str(number)})


def rollout(reward: float | None, version: int, index: int = 0) -> Rollout:
    row = Row(
        tokens=np.array([1, 2], np.int32),
        action_mask=np.array([False, True]),
        logprobs=np.array([np.nan, -1.0], np.float32),
        version=np.array([-1, version], np.int32),
        turn=np.array([0, 0], np.int16),
    )
    return Rollout(
        trace_id=f"t{random.random()}",
        scenario_id="s",
        split="train",
        attempt=index,
        outcome=Outcome.OK if reward is not None else Outcome.ENV_FAULT,
        stop=Stop.ANSWERED,
        messages=(),
        calls=(),
        trajectory=Trajectory((row,)),
        reward=reward,
        fault=None if reward is not None else Fault("tool:search", "timeout", "no answer in 30 s"),
    )


class World:
    """Plays groups with given rewards; each takes a few turns of the event loop. `version` is the learner's."""

    def __init__(self, rewards: Callable[[int], list[float | None]], hops: Callable[[int], int] = lambda n: n % 3):
        self.version, self.rewards, self.hops = 0, rewards, hops
        self.seen: list[tuple[int, str]] = []
        self.started: list[int] = []

    async def play(self, ticket: Ticket) -> Group:
        self.started.append(ticket.number)
        version = self.version
        for _ in range(self.hops(ticket.number)):
            await asyncio.sleep(0)
        rewards = self.rewards(ticket.number)
        return Group(ticket, [rollout(reward, version, index) for index, reward in enumerate(rewards)])

    async def on_group(self, group: Group, fate: str) -> None:
        self.seen.append((group.ticket.number, fate))

    def pool(self, state: PoolState | None = None, **settings: object) -> Pool:
        return Pool(PoolSettings(**settings), scenario_of, self.play, self.on_group, state)  # type: ignore[arg-type]

    async def steps(self, pool: Pool, count: int) -> list[list[int]]:
        taken = []
        for _ in range(count):
            groups = await pool.next_step(self.version)
            for group in groups:
                oldest = group.oldest_version
                assert oldest is not None
                assert 0 <= self.version - oldest <= pool.settings.staleness
            taken.append([group.ticket.number for group in groups])
            self.version += 1
        return taken


def varied(number: int) -> list[float | None]:
    return [0.0, 1.0]


@pytest.mark.parametrize(
    ("version", "staleness", "trained", "waiting", "running", "expected"),
    [
        (0, 0, 0, 0, 0, 4),
        (0, 0, 0, 1, 2, 1),
        (1, 0, 4, 0, 0, 4),
        (0, 2, 0, 0, 0, 12),
        (3, 1, 12, 4, 4, 0),
        (0, 0, 9, 0, 0, 0),
    ],
)
def test_room_is_the_formula_of_admission(
    version: int, staleness: int, trained: int, waiting: int, running: int, expected: int
) -> None:
    assert room(version, staleness, 4, trained, waiting, running) == expected


@given(
    groups=st.integers(1, 4),
    staleness=st.integers(0, 3),
    lockstep=st.booleans(),
    seed=st.integers(0, 99),
    refill=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_no_group_is_older_than_allowed_and_none_is_lost(
    groups: int, staleness: int, lockstep: bool, seed: int, refill: bool
) -> None:
    chance = random.Random(seed)
    hops = {number: chance.randrange(6) for number in range(500)}
    rewards = {number: chance.choice([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0], [None, 1.0]]) for number in range(500)}
    world = World(lambda n: rewards[n], lambda n: hops[n])

    async def go() -> None:
        pool = world.pool(
            groups_per_step=groups, staleness=staleness, lockstep=lockstep, refill=refill, max_fault_rate=1.0
        )
        taken = [number for step in await world.steps(pool, 5) for number in step]
        await pool.aclose()
        assert len(taken) == len(set(taken)) == 5 * groups
        kept = [number for number, fate in world.seen if fate == "kept"]
        assert set(taken) <= set(kept)
        assert Counter(fate for _, fate in world.seen if fate != "kept") == pool.dropped  # each is told of
        assert all(rewards[number] != [None, 1.0] for number in taken)  # fewer than two scored siblings

    asyncio.run(go())


def test_lockstep_takes_tickets_in_order_whatever_the_timing() -> None:
    def run(hops: Callable[[int], int]) -> list[list[int]]:
        world = World(varied, hops)
        return asyncio.run(world.steps(world.pool(groups_per_step=3, staleness=1, lockstep=True), 4))

    assert run(lambda n: n % 5) == run(lambda n: (7 - n) % 4) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_lockstep_leaves_nothing_in_flight_between_steps() -> None:
    world = World(lambda n: [1.0, 1.0] if n % 2 else [0.0, 1.0])

    async def go() -> None:
        pool = world.pool(groups_per_step=2, staleness=2, lockstep=True, refill=True)
        for _ in range(4):
            await pool.next_step(world.version)
            world.version += 1
            assert pool.state().pending == []

    asyncio.run(go())


def test_refill_replaces_groups_without_variance_up_to_its_limit() -> None:
    world = World(lambda n: [1.0, 1.0])

    async def go() -> None:
        pool = world.pool(groups_per_step=2, refill=True, refill_limit=3.0)
        groups = await pool.next_step(0)
        assert pool.dropped == {"zero_variance": 6}
        assert [group.has_variance for group in groups] == [False, False]

    asyncio.run(go())


def test_the_breaker_stops_a_run_whose_tools_are_broken() -> None:
    world = World(lambda n: [None, None])

    async def go() -> None:
        with pytest.raises(TrainingError, match=r"100% of the last 50 rollouts faulted.*tool:search timeout"):
            await world.pool(groups_per_step=2, max_fault_rate=0.5).next_step(0)

    asyncio.run(go())


def test_a_pool_goes_on_from_its_state_with_what_was_in_flight_played_again() -> None:
    world = World(varied, hops=lambda n: 50 if n == 1 else 0)

    async def go() -> None:
        pool = world.pool(groups_per_step=1, staleness=3)
        first = await pool.next_step(0)
        state = pool.state()
        await pool.aclose()
        assert [group.ticket.number for group in first] == [0]
        assert 1 in state.pending
        world.version, world.hops = 1, lambda n: 0
        resumed = world.pool(state, groups_per_step=1, staleness=3)
        taken = {number for step in await world.steps(resumed, 4) for number in step}
        await resumed.aclose()
        assert taken == {1, 2, 3, 4}

    asyncio.run(go())


def test_an_error_of_the_engine_reaches_the_caller() -> None:
    async def broken(ticket: Ticket) -> Group:
        raise RuntimeError("out of memory")

    async def ignore(group: Group, fate: str) -> None: ...

    async def go() -> None:
        pool = Pool(PoolSettings(groups_per_step=2), scenario_of, broken, ignore)
        with pytest.raises(RuntimeError, match="out of memory"):
            await pool.next_step(0)
        await pool.aclose()

    asyncio.run(go())
