"""Why nothing trained: every rollout that a step decided on has exactly one fate, so the counts always add up.

A rollout counts in the step that decides what becomes of it: the step that trains its group, or the one in which the
group is dropped. What is finished but undecided waits in the pool's queue. So over a run: what the pool played is what
the steps sampled, and what still waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from etude.learning.advantages import AdvantageKind, group_advantages, has_variance
from etude.rollout.group import Group
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import Rollout
from etude.store.records import RolloutSummary
from etude.store.store import Store

# What becomes of a rollout, in the order in which it is asked, and what each means. Names of groups that the pool drops
# are the pool's reasons.
FATES: Mapping[str, str] = {
    "env_fault": "a tool or the environment broke: no reward",
    "grader_fault": "the grader or a metric broke: no reward",
    "cancelled": "stopped before its end",
    "stale": "its group waited, or ran, until it was older than sampling.staleness allows",
    "too_few_scored": "fewer than two of its group had a reward: nothing to compare with",
    "nothing_sampled": "no token was sampled before it ended",
    "zero_variance": "all rewards of its group were equal",
    "at_the_mean": "its reward was exactly its group's mean",
    "trained": "it moved the weights",
}
KEPT = "kept"  # the fate of a group that is trained
CUT = frozenset({Stop.TRUNCATED, Stop.OUT_OF_TOKENS})
PREFIX = "ledger/"


@dataclass(frozen=True, slots=True)
class Ended:
    """What decides the fate of a rollout. fault: where it faulted ("tool:search"), None where it did not."""

    outcome: Outcome
    stop: Stop
    reward: float | None
    sampled_tokens: int
    fault: str | None

    @classmethod
    def of(cls, rollout: Rollout | RolloutSummary) -> Ended:
        where = rollout.fault_where if isinstance(rollout, RolloutSummary) else _where(rollout)
        return cls(rollout.outcome, rollout.stop, rollout.reward, rollout.completion_tokens, where)


@dataclass(frozen=True, slots=True)
class Ledger:
    """One step. fates: how many rollouts met each of `FATES`. truncated: of those with a reward, how many were cut off
    by a limit of tokens (they are trained like others, since running out is the model's own doing). faults: by where.
    waiting: rollouts finished but undecided after the step; None where that is not known."""

    fates: Mapping[str, int]
    truncated: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    waiting: int | None = None

    @property
    def sampled(self) -> int:
        """All rollouts that the step decided on, faulted tries that were replaced included."""
        return sum(self.fates.values())

    def metrics(self) -> dict[str, float]:
        """Every count by name, zeros too, for the step's figures."""
        counts = {"sampled": self.sampled, **self.fates, "truncated": self.truncated}
        if self.waiting is not None:
            counts["waiting"] = self.waiting
        return {f"{PREFIX}{name}": count for name, count in counts.items()}


def account(
    groups: Iterable[tuple[str, Sequence[Ended]]], advantage: AdvantageKind, waiting: int | None = None
) -> Ledger:
    """groups: (fate, all its rollouts) of every group that a step trained (`KEPT`) or dropped (the pool's reason)."""
    fates: Counter[str] = Counter(dict.fromkeys(FATES, 0))
    faults: Counter[str] = Counter()
    truncated = 0
    for fate, rollouts in groups:
        fates.update(_fates(fate, rollouts, advantage))
        faults.update(rollout.fault for rollout in rollouts if rollout.fault is not None)
        truncated += sum(rollout.stop in CUT and rollout.reward is not None for rollout in rollouts)
    return Ledger(dict(fates), truncated, dict(sorted(faults.items())), waiting)


def group_ended(group: Group) -> list[Ended]:
    """Every rollout of a group, those that faulted and were replaced too."""
    return [Ended.of(rollout) for rollout in (*group.faulted, *group.rollouts)]


def ledgers_of(store: Store, run: str, advantage: AdvantageKind) -> dict[int, Ledger]:
    """The ledger of every training step of a run, from its stored rollouts: trajectories may have been dropped.

    Raises StorageError."""
    reasons = {
        (event.step, str(event.data["group"])): str(event.data["reason"])
        for event in store.events(run)
        if event.type == "dropped"
    }
    waiting = {step.step: step.metrics.get(f"{PREFIX}waiting") for step in store.steps(run)}
    steps: dict[int, dict[str, list[Ended]]] = defaultdict(lambda: defaultdict(list))
    for row in store.rollouts(run, phase="train"):
        steps[row.step][row.group].append(Ended.of(row))
    ledgers = {}
    for step, groups in sorted(steps.items()):
        held = waiting.get(step)
        decided = [(reasons.get((step, name), KEPT), rollouts) for name, rollouts in groups.items()]
        ledgers[step] = account(decided, advantage, None if held is None else int(held))
    return ledgers


def _fates(fate: str, rollouts: Sequence[Ended], advantage: AdvantageKind) -> list[str]:
    """The order of `FATES`: a fault is a fault whatever became of its group."""
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    advantages = iter(group_advantages(rewards, advantage).tolist())
    named = []
    for rollout in rollouts:
        if rollout.reward is None:
            named.append(rollout.outcome.value)
        elif fate != KEPT:
            named.append(fate)
            next(advantages)
        else:
            named.append(_trained(rollout, next(advantages), varied=has_variance(rewards)))
    return named


def _trained(rollout: Ended, advantage: float, *, varied: bool) -> str:
    if not rollout.sampled_tokens:
        return "nothing_sampled"
    if not varied:
        return "zero_variance"
    return "trained" if advantage != 0 else "at_the_mean"


def _where(rollout: Rollout) -> str | None:
    return rollout.fault.where if rollout.fault is not None else None
