"""The sampler: which scenario the n-th ticket plays. A pure function, so that its position is one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from etude.environment.scenario import Scenario


class EpochSampler:
    """Every scenario once an epoch, in an order that the seed and the epoch decide."""

    def __init__(self, scenarios: Sequence[Scenario], seed: int) -> None:
        if not scenarios:
            raise ValueError("there are no scenarios to draw from")
        self._scenarios = list(scenarios)
        self._seed = seed
        self._epoch, self._order = -1, np.arange(0)

    def __call__(self, number: int) -> Scenario:
        epoch, index = divmod(number, len(self._scenarios))
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self._seed, epoch]).permutation(len(self._scenarios))
        return self._scenarios[int(self._order[index])]
