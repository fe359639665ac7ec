"""Groups: the rollouts of one scenario, from one ticket of the sampler."""

from __future__ import annotations

from dataclasses import dataclass, field

from etude.environment.scenario import Scenario
from etude.rollout.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Ticket:
    """The number-th draw of the sampler. Numbers name groups, order them in lock-step, and survive a resume."""

    number: int
    scenario: Scenario


@dataclass(slots=True)
class Group:
    """rollouts: the last try of each attempt, in order of `attempt`. faulted: earlier tries, which were replaced."""

    ticket: Ticket
    rollouts: list[Rollout]
    faulted: list[Rollout] = field(default_factory=list)

    @property
    def scored(self) -> list[Rollout]:
        """Rollouts that have a reward: faults are in no mean, no deviation and no count."""
        return [rollout for rollout in self.rollouts if rollout.reward is not None]

    @property
    def rewards(self) -> list[float]:
        return [rollout.reward for rollout in self.rollouts if rollout.reward is not None]

    @property
    def has_variance(self) -> bool:
        return len(set(self.rewards)) > 1

    @property
    def oldest_version(self) -> int | None:
        """The lowest policy version among all sampled tokens; None where nothing was sampled."""
        versions = [rollout.trajectory.oldest_version for rollout in self.scored]
        return min((version for version in versions if version is not None), default=None)
