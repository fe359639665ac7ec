"""Playing a set of scenarios, several attempts each: what validation, evaluation and baselines share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from etude.environment.scenario import Scenario
from etude.rollout.group import Group, Ticket
from etude.rollout.player import Player


async def play_scenarios(
    player: Player,
    tickets: Sequence[Ticket],
    attempts: int,
    *,
    name: str,
    chunk: int | None,
    on_group: Callable[[Group], None],
    on_progress: Callable[[int, int], None],
) -> list[Group]:
    """Groups in the order of the tickets. chunk: how many rollouts are opened together (whole scenarios, at least
    one), for lock-step, where all that is open plays in one wave; None opens all and lets the player's own limit
    decide. on_group sees groups as they finish, on_progress (done, total).

    Raises what the engine raises; a faulted rollout is in its group, without a reward."""
    groups: list[Group] = []
    per_chunk = len(tickets) if chunk is None else max(1, chunk // attempts)
    for start in range(0, len(tickets), max(1, per_chunk)):
        part = tickets[start : start + per_chunk]
        playing = [player.group(ticket, attempts, name) for ticket in part]
        finished: dict[int, Group] = {}
        tasks = [asyncio.create_task(each) for each in playing]
        try:
            for next_done in asyncio.as_completed(tasks):
                group = await next_done
                finished[group.ticket.number] = group
                on_group(group)
                on_progress((len(groups) + len(finished)) * attempts, len(tickets) * attempts)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        groups += [finished[ticket.number] for ticket in part]
    return groups


def tickets_of(scenarios: Sequence[Scenario]) -> list[Ticket]:
    """One ticket for each scenario, numbered in their order: number and seed decide what is sampled."""
    return [Ticket(number, scenario) for number, scenario in enumerate(scenarios)]
