"""Groups as they were played, from the rollouts that were saved of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from etude.rollout.group import Group, Ticket
from etude.rollout.rollout import Rollout
from etude.store.records import SavedRollout


def groups_of(rollouts: Iterable[SavedRollout]) -> dict[int, Group]:
    """By number. rollouts: of one step or evaluation, in the order in which they were saved; the last try of each
    attempt counts, and those before it were replaced."""
    members: dict[int, list[SavedRollout]] = defaultdict(list)
    for saved in rollouts:
        members[int(saved.summary.group)].append(saved)
    return {number: _group(number, each) for number, each in members.items()}


def _group(number: int, members: list[SavedRollout]) -> Group:
    last: dict[int, Rollout] = {saved.summary.attempt: saved.rollout for saved in members}
    kept = set(map(id, last.values()))
    faulted = [saved.rollout for saved in members if id(saved.rollout) not in kept]
    return Group(Ticket(number, members[0].scenario), [last[attempt] for attempt in sorted(last)], faulted)
