"""From groups to training rows: the one place where rewards become advantages of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from etude.learning.advantages import AdvantageKind, group_advantages
from etude.learning.rows import TrainingRow
from etude.rollout.group import Group


def training_rows(
    groups: Sequence[Group], kind: AdvantageKind, shuffle: np.random.Generator | None = None
) -> list[TrainingRow]:
    """One row for each row of each scored trajectory; all rows of a trajectory carry its advantage.

    shuffle: shuffles the advantages within each group, for a control in which reward teaches nothing.

    Faulted rollouts are not here at all: neither in a mean nor in a denominator. Rollouts of groups without variance
    are here with advantage 0, since they count in the denominators. A trajectory in which nothing was sampled has
    nothing to train and gives no row.
    """
    rows: list[TrainingRow] = []
    trajectory = 0
    for group in groups:
        scored = group.scored
        advantages = group_advantages(group.rewards, kind)
        if shuffle is not None:
            advantages = shuffle.permutation(advantages)
        for rollout, advantage in zip(scored, advantages, strict=True):
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
