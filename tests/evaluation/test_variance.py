"""Best of k and the share of scenarios without variance: slow twins, scipy, and what is then found."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluation.statistics import pass_at_k
from etude.evaluation.variance import expected_best, has_variance, zero_variance_share

rewards = st.lists(st.floats(-2, 2), min_size=1, max_size=7)


@given(rewards, st.data())
def test_best_of_k_is_the_mean_of_the_maximum_over_all_subsets(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    twin = np.mean([max(subset) for subset in itertools.combinations(values, k)])
    assert expected_best(values, k) == pytest.approx(twin, abs=1e-12)


@given(st.integers(1, 20), st.data())
def test_of_zeros_and_ones_it_is_pass_at_k(n: int, data: st.DataObject) -> None:
    right, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert expected_best([1.0] * right + [0.0] * (n - right), k) == pytest.approx(pass_at_k(n, right, k))


def test_best_of_more_than_there_are_is_refused() -> None:
    for k in (0, 3):
        with pytest.raises(ValueError, match="number of attempts"):
            expected_best([0.0, 1.0], k)


def test_variance_is_what_exceeds_the_tolerance() -> None:
    assert not has_variance([0.5, 0.55])
    assert has_variance([0.5, 0.56])
    assert not has_variance([0.5])
    assert has_variance([0.0, 1e-9], tolerance=0.0)


def test_the_share_is_the_beta_binomials() -> None:
    """With chances of success that are beta(2, 3), 8 attempts all end alike in a known share of scenarios."""
    rng = np.random.default_rng(0)
    counts = [(8, int(right)) for right in scipy.stats.betabinom(8, 2, 3).rvs(200_000, random_state=rng)]
    for attempts in (8, 16, 32):
        alike = scipy.stats.betabinom(attempts, 2, 3)
        share = zero_variance_share(counts, attempts, resamples=200)
        assert share.estimate == pytest.approx(alike.pmf(0) + alike.pmf(attempts), rel=0.03)
        assert share.low <= share.estimate <= share.high


@pytest.mark.parametrize("shape", [(0.3, 0.5), (1.0, 1.0), (0.5, 4.0), (5.0, 2.0)])
@pytest.mark.parametrize("factor", [2, 4])
def test_nine_of_ten_intervals_hold_what_is_then_found(shape: tuple[float, float], factor: int) -> None:
    rng = np.random.default_rng([int(10 * value) for value in shape] + [factor])
    covered = 0
    for trial in range(20):
        chances = rng.beta(*shape, size=300)
        counts = [(8, int(right)) for right in rng.binomial(8, chances)]
        right = rng.binomial(8 * factor, chances)
        found = np.mean((right == 0) | (right == 8 * factor))
        interval = zero_variance_share(counts, 8 * factor, seed=trial, resamples=500)
        covered += interval.low <= found <= interval.high
    assert covered >= 18


def test_attempts_may_be_missing() -> None:
    share = zero_variance_share([(8, 0)] * 5 + [(5, 3)] * 5 + [(1, 1)], 16)
    assert 0 <= share.low <= share.estimate <= share.high < 1


@pytest.mark.parametrize("right", [0, 8])
def test_all_alike_stays_alike(right: int) -> None:
    assert zero_variance_share([(8, right)] * 100, 32).estimate > 0.95


@pytest.mark.parametrize(
    ("counts", "attempts"), [([(8, 1)], 8), ([(8, 9), (8, 1)], 8), ([(0, 0)] * 2, 8), ([(8, 1)] * 2, 0)]
)
def test_counts_that_cannot_be_are_refused(counts: list[tuple[int, int]], attempts: int) -> None:
    with pytest.raises(ValueError):
        zero_variance_share(counts, attempts)
