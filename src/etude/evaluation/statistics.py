"""How sure a figure is: bootstrap and Wilson intervals, paired comparison, pass@k, sign test. Numpy only.

An attempt that is missing (a fault, cancelled) is missing and never 0: None, NaN and the infinities are refused. Leave
such an attempt out, and where two things are compared, leave its scenario out of both (`complete_scenarios`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_DRAWS_AT_ONCE = 1 << 22  # indices drawn at a time: 32 MB


@dataclass(frozen=True, slots=True)
class Interval:
    """estimate: the figure; low, high: its confidence interval. confidence: the share of such intervals that hold the
    true value. n: how many values the estimate is a mean of."""

    estimate: float
    low: float
    high: float
    confidence: float
    n: int

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class SignTest:
    """How many pairs went up, went down or stayed the same, and the two-sided exact p-value of "neither way"."""

    wins: int
    losses: int
    ties: int
    p_value: float


def bootstrap_mean(
    values: Sequence[float] | NDArray[np.floating],
    *,
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Percentile bootstrap interval of a mean (Efron & Tibshirani 1993, chapter 13).

    clusters: the scenario of each value. Attempts at one scenario are not independent, so where there are several, it
    is whole scenarios that are drawn; the estimate stays the mean over values. The same seed gives the same interval.
    With few scenarios (under about 30) percentile intervals are somewhat too narrow.

    Raises ValueError for a value that is None or not finite, and for fewer than two values (or clusters).
    """
    numbers = _finite(values, "values")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} must lie between 0 and 1")
    if resamples < 1:
        raise ValueError(f"{resamples} resamples: at least 1 is needed, 10,000 are usual")
    sums, counts = _by_cluster(numbers, clusters)
    units = len(sums)
    if units < 2:
        raise ValueError(f"an interval needs at least 2 {'values' if clusters is None else 'clusters'}, got {units}")
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, _DRAWS_AT_ONCE // units)
    for start in range(0, resamples, step):
        drawn = rng.integers(0, units, size=(min(step, resamples - start), units))
        means[start : start + step] = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(numbers.mean()), float(low), float(high), confidence, len(numbers))


def paired_difference(
    before: Sequence[float] | NDArray[np.floating],
    after: Sequence[float] | NDArray[np.floating],
    *,
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Percentile bootstrap interval of the mean of `after[i] - before[i]`: above 0 where `after` is better.

    before, after: the same scenarios (and attempts) in the same order. clusters, seed, errors: as in `bootstrap_mean`.
    """
    first, second = _finite(before, "before"), _finite(after, "after")
    if len(first) != len(second):
        raise ValueError(f"a paired comparison needs the same scenarios on both sides: {len(first)} and {len(second)}")
    return bootstrap_mean(second - first, clusters=clusters, seed=seed, resamples=resamples, confidence=confidence)


def paired_ratio_difference(
    before: Sequence[tuple[float, float]],
    after: Sequence[tuple[float, float]],
    *,
    seed: int = 0,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Percentile bootstrap interval of a change of sum(x) / sum(y), for shares among some: (wrong, attempted).

    before, after: (x, y) of the same scenarios in the same order; whole scenarios are drawn. `n` is their number.
    Raises ValueError as `paired_difference`, and where a sum of y is 0: of nothing there is no share. (A drawn sample
    whose y are all 0 has none either and is left out.)
    """
    columns = [_finite([pair[part] for pair in side], name) for side, name in ((before, "before"), (after, "after"))
               for part in (0, 1)]  # fmt: skip
    if len(before) != len(after):
        raise ValueError(f"a paired comparison needs the same scenarios on both sides: {len(before)} and {len(after)}")
    table = np.stack(columns)  # rows: x and y before, x and y after
    if len(before) < 2 or not table[1].sum() or not table[3].sum():
        raise ValueError("a change of a share needs at least 2 scenarios, and on both sides something to be a share of")
    rng = np.random.default_rng(seed)
    ratios = []
    step = max(1, _DRAWS_AT_ONCE // len(before))
    for start in range(0, resamples, step):
        drawn = rng.integers(0, len(before), size=(min(step, resamples - start), len(before)))
        x0, y0, x1, y1 = (row[drawn].sum(axis=1) for row in table)
        some = (y0 > 0) & (y1 > 0)
        ratios.append(x1[some] / y1[some] - x0[some] / y0[some])
    low, high = np.quantile(np.concatenate(ratios), [(1 - confidence) / 2, (1 + confidence) / 2])
    x0, y0, x1, y1 = table.sum(axis=1)
    return Interval(float(x1 / y1 - x0 / y0), float(low), float(high), confidence, len(before))


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a share, without continuity correction (Wilson 1927). Raises ValueError."""
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes of {n}: there must be at least one attempt, and no more successes")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} must lie between 0 and 1")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, scale = successes / n, 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else centre - half  # both ends are exact there, and rounding would miss them
    high = 1.0 if successes == n else centre + half
    return Interval(share, low, high, confidence, n)


def pass_at_k(n: int, successes: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k attempts succeeds, from n attempts at one scenario.

    1 - C(n - c, k) / C(n, k), as the product of Chen et al. 2021 (arXiv 2107.03374, figure 3), which does not overflow.
    Raises ValueError where n < k: attempts that were not made are missing, not failures.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} attempts")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {max(k, 1)} attempts at each scenario, and k at least 1; got {n}")
    if n - successes < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - successes + 1, n + 1))


def mean_pass_at_k(attempts: Mapping[str, Sequence[bool]], k: int) -> float:
    """Mean of pass@k over scenarios. attempts: by scenario, whether each attempt succeeded. Raises ValueError."""
    if not attempts:
        raise ValueError("pass@k of no scenarios is not a number")
    return sum(pass_at_k(*_counts(name, results), k) for name, results in attempts.items()) / len(attempts)


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4 ... up to `most`: the k for which pass@k and best of k are told."""
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def mean_of_k(attempts: Mapping[str, Sequence[float]], k: int) -> float:
    """Mean over scenarios of the mean reward of their k attempts. Raises ValueError where one has not exactly k."""
    if not attempts:
        raise ValueError("the mean of no scenarios is not a number")
    wrong = [f"{name} ({len(rewards)})" for name, rewards in attempts.items() if len(rewards) != k]
    if wrong:
        raise ValueError(
            f"mean of {k} needs exactly {k} attempts at each scenario; {len(wrong)} have others: {', '.join(wrong[:5])}"
        )
    return float(np.mean([_finite(rewards, f"attempts at {name}").mean() for name, rewards in attempts.items()]))


def complete_scenarios(
    attempts: Mapping[str, Sequence[float | None]], k: int
) -> tuple[dict[str, tuple[float, ...]], tuple[str, ...]]:
    """Scenarios with at least k attempts that have a reward, cut to the first k of them; and the names of the others,
    which are to be reported: a fault is nobody's failure, but what it hides is not known."""
    scored = {name: tuple(value for value in values if value is not None) for name, values in attempts.items()}
    complete = {name: values[:k] for name, values in scored.items() if len(values) >= k}
    return complete, tuple(name for name in attempts if name not in complete)


def sign_test(before: Sequence[float], after: Sequence[float]) -> SignTest:
    """Exact two-sided sign test of paired values, ties left out; for 0 and 1 it is McNemar's exact test.

    p = min(1, 2 · P(X <= min(wins, losses))), X binomial(wins + losses, 1/2). Raises ValueError as `paired_difference`.
    """
    first, second = _finite(before, "before"), _finite(after, "after")
    if len(first) != len(second):
        raise ValueError(f"a paired comparison needs the same scenarios on both sides: {len(first)} and {len(second)}")
    wins, losses = int((second > first).sum()), int((second < first).sum())
    decided, tail, ways = wins + losses, 0, 1
    for i in range(min(wins, losses) + 1):  # ways: decided over i, in whole numbers
        tail += ways
        ways = ways * (decided - i) // (i + 1)
    return SignTest(wins, losses, len(first) - decided, min(1.0, 2 * tail / 2**decided))


def _finite(values: Sequence[float] | NDArray[np.floating], what: str) -> NDArray[np.float64]:
    """The values as float64. Raises ValueError, naming the first one that is missing or not finite."""
    numbers = np.empty(len(values))
    for index, value in enumerate(values):
        if value is None or not math.isfinite(value):
            raise ValueError(
                f"{what}[{index}] is {value}: a missing attempt is not 0; leave it out (of both sides, where two are "
                "compared) or make it again"
            )
        numbers[index] = value
    return numbers


def _by_cluster(
    numbers: NDArray[np.float64], clusters: Sequence[str] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sum and count of the values of each unit that is drawn."""
    if clusters is None:
        return numbers, np.ones(len(numbers), dtype=np.int64)
    if len(clusters) != len(numbers):
        raise ValueError(f"{len(numbers)} values but {len(clusters)} clusters")
    index = {name: position for position, name in enumerate(dict.fromkeys(clusters))}
    of = np.array([index[name] for name in clusters], dtype=np.int64)
    sums = np.bincount(of, weights=numbers, minlength=len(index))
    return sums.astype(np.float64), np.bincount(of, minlength=len(index)).astype(np.int64)


def _counts(scenario: str, results: Sequence[bool]) -> tuple[int, int]:
    for index, result in enumerate(results):
        if not isinstance(result, bool | np.bool_):
            raise ValueError(f"attempt {index} at {scenario} is {result!r}: a success is True or False, nothing else")
    return len(results), sum(map(bool, results))
