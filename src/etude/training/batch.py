"""From groups to training rows: the one place where rewards become advantages of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from etude.learning.advantages import AdvantageKind, group_advantages
from etude.learning.rows import TrainingRow
from etude.rollout.group import Group


def training_rows(groups: Sequence[Group], kind: AdvantageKind) -> list[TrainingRow]:
    """One row for each row of each scored trajectory; all rows of a trajectory carry its advantage.

    Faulted rollouts are not here at all: neither in a mean nor in a denominator. Rollouts of groups without variance
    are here with advantage 0, since they count in the denominators. A trajectory in which nothing was sampled has
    nothing to train and gives no row.
    """
    rows: list[TrainingRow] = []
    trajectory = 0
    for group in groups:
        scored = group.scored
        for rollout, advantage in zip(scored, group_advantages(group.rewards, kind), strict=True):
            for row in rollout.trajectory.rows:
                if row.action_mask.any():
                    rows.append(
                        TrainingRow(
                            tokens=row.tokens,
                            action_mask=row.action_mask,
                            logp_rollout=row.logprobs,
                            advantage=float(advantage),
                            trajectory=trajectory,
                            version=row.version,
                        )
                    )
            trajectory += 1
    return rows
