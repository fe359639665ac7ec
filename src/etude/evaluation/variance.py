"""What several attempts at each scenario say: best of k, and how many scenarios have no variance, now and with more.

A group whose rewards are all equal teaches nothing, so the share of such scenarios is the share of a training that is
wasted. An attempt that is missing (a fault) is missing, not 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from etude.evaluation.statistics import Interval

REWARD_TOLERANCE = 0.05  # rewards that differ by no more count as equal

# The beta distributions that are tried: their mean, and a + b ("how much alike scenarios are").
_MEANS = np.concatenate([[1e-4, 1e-3], np.linspace(0.01, 0.99, 99), [1 - 1e-3, 1 - 1e-4]])
_WEIGHTS = np.geomspace(0.02, 200.0, 150)


def expected_best(rewards: Sequence[float], k: int) -> float:
    """Unbiased estimate of the mean of the best of k attempts, from n >= k attempts at one scenario.

    The mean of the maximum over all subsets of k: sum of r_(i) C(i-1, k-1) / C(n, k), r_(i) ascending; for rewards of
    0 and 1 it is pass@k (Chen et al. 2021, arXiv 2107.03374). Raises ValueError where n < k.
    """
    n = len(rewards)
    if not 1 <= k <= n:
        raise ValueError(f"best of {k} needs k from 1 to the number of attempts, which is {n}")
    ascending = np.sort(np.asarray(rewards, dtype=np.float64))
    ways = np.array([math.comb(index, k - 1) for index in range(n)], dtype=np.float64)
    return float(ascending @ ways / math.comb(n, k))


def has_variance(rewards: Sequence[float], tolerance: float = REWARD_TOLERANCE) -> bool:
    """Whether a group with these rewards could teach anything."""
    return len(rewards) > 1 and max(rewards) - min(rewards) > tolerance + 1e-12  # 0.55 - 0.5 is more than 0.05


def zero_variance_share(
    counts: Sequence[tuple[int, int]],
    attempts: int,
    *,
    seed: int = 0,
    resamples: int = 1000,
    confidence: float = 0.9,
) -> Interval:
    """The share of scenarios that will be all right or all wrong when each is attempted `attempts` times, predicted.

    counts: (attempts, how many of them were right) of each scenario. A beta-binomial is fitted by maximum likelihood
    (Skellam 1948): chances of success are beta-distributed over scenarios. The interval is for what will be *found* in
    as many scenarios: scenarios are resampled and the fit repeated, and each time a share is drawn, so that it holds
    the uncertainty of the fit and the luck of the draw. Where chances of success are of two kinds only (impossible and
    certain, say, with little between), no beta fits well and more attempts than were made are extrapolation.

    Raises ValueError for fewer than two scenarios, or counts that cannot be.
    """
    if len(counts) < 2:
        raise ValueError(f"a share needs at least 2 scenarios, got {len(counts)}")
    for n, right in counts:
        if not (n >= 1 and 0 <= right <= n):
            raise ValueError(f"{right} right of {n} attempts")
    if attempts < 1:
        raise ValueError(f"attempts is {attempts} and must be at least 1")
    kinds = Counter(counts)
    seen = np.array(list(kinds.values()), dtype=np.float64)
    grid = _betas(_MEANS, _WEIGHTS)
    table = _log_likelihoods(list(kinds), grid)
    shares = _share_of_equal(attempts, grid)
    fitted = _fitted_share(list(kinds), seen, attempts, grid, int(np.argmax(seen @ table)))
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(counts), seen / seen.sum(), size=resamples)
    refitted = shares[np.argmax(drawn @ table, axis=1)]
    found = rng.binomial(len(counts), refitted) / len(counts)
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(fitted, float(low), float(high), confidence, len(counts))


Betas = tuple[NDArray[np.float64], NDArray[np.float64]]  # (a, b) of each


def _betas(means: NDArray[np.float64], weights: NDArray[np.float64]) -> Betas:
    mean, weight = (axis.ravel() for axis in np.meshgrid(means, weights))
    return mean * weight, (1 - mean) * weight


def _fitted_share(
    kinds: Sequence[tuple[int, int]], seen: NDArray[np.float64], attempts: int, grid: Betas, best: int
) -> float:
    """Of the most likely beta: once more around the best of the grid, ten times as finely."""
    weight = grid[0][best] + grid[1][best]
    mean = grid[0][best] / weight
    means = np.clip(np.linspace(mean - 0.01, mean + 0.01, 21), _MEANS[0], _MEANS[-1])
    finer = _betas(means, weight * np.geomspace(0.92, 1.09, 21))
    return float(_share_of_equal(attempts, finer)[np.argmax(seen @ _log_likelihoods(kinds, finer))])


def _log_likelihoods(kinds: Sequence[tuple[int, int]], betas: Betas) -> NDArray[np.float64]:
    """[kinds, betas]: log of B(a + right, b + wrong) / B(a, b), written as sums so that no gamma function is needed."""
    a, b = betas
    return np.stack([_log_rising(a, right) + _log_rising(b, n - right) - _log_rising(a + b, n) for n, right in kinds])


def _share_of_equal(attempts: int, betas: Betas) -> NDArray[np.float64]:
    """[betas]: E[p^m + (1 - p)^m], the chance that m attempts all end alike."""
    a, b = betas
    total = _log_rising(a + b, attempts)
    alike = np.exp(_log_rising(a, attempts) - total) + np.exp(_log_rising(b, attempts) - total)
    return np.minimum(alike, 1.0)


def _log_rising(start: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """log of start (start + 1) ... (start + steps - 1)."""
    result = np.zeros_like(start)
    for step in range(steps):
        result += np.log(start + step)
    return result
