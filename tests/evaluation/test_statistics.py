"""Intervals, paired comparison, pass@k, sign test: against scipy, published values and slow twins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluation.statistics import (
    Interval,
    bootstrap_mean,
    complete_scenarios,
    mean_of_k,
    mean_pass_at_k,
    paired_difference,
    paired_ratio_difference,
    pass_at_k,
    sign_test,
    wilson_interval,
)

# Hours of extra sleep of ten patients under two drugs (Cushny & Peebles 1905, the data of Student 1908).
DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


# ---- bootstrap


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_bootstrap_equals_scipys_draw_by_draw(confidence: float) -> None:
    interval = bootstrap_mean(DRUG_2, seed=3, resamples=2000, confidence=confidence)
    twin = scipy.stats.bootstrap(
        (DRUG_2,),
        np.mean,
        n_resamples=2000,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(3),
    )
    assert interval.estimate == pytest.approx(2.33)
    assert (interval.low, interval.high) == pytest.approx(tuple(twin.confidence_interval), abs=1e-12)
    assert (interval.confidence, interval.n) == (confidence, 10)


def test_the_paired_bootstrap_equals_scipys_on_the_differences() -> None:
    interval = paired_difference(DRUG_1, DRUG_2, seed=3, resamples=2000)
    twin = scipy.stats.bootstrap(
        (DRUG_1, DRUG_2),
        lambda before, after, axis: np.mean(after - before, axis=axis),
        paired=True,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(3),
    )
    assert interval.estimate == pytest.approx(1.58)  # Student's own figure
    assert (interval.low, interval.high) == pytest.approx(tuple(twin.confidence_interval), abs=1e-12)
    assert interval.low > 0


def assert_quantiles(interval: Interval, means: list[float], tail: float) -> None:
    """Of the equally likely `means`, a share of `tail` lies beyond either end (ends may fall on one of them)."""
    beyond = [mean < interval.low - 1e-9 for mean in means], [mean > interval.high + 1e-9 for mean in means]
    up_to = [mean <= interval.low + 1e-9 for mean in means], [mean >= interval.high - 1e-9 for mean in means]
    for low, high in zip(beyond, up_to, strict=True):
        assert np.mean(low) - 0.005 <= tail <= np.mean(high) + 0.005


def test_a_small_bootstrap_is_that_of_all_resamples_there_are() -> None:
    """Slow twin: the 4^4 equally likely resamples of four values, instead of random ones."""
    values = [0.0, 1.0, 2.0, 7.0]
    means = [float(np.mean(draw)) for draw in itertools.product(values, repeat=4)]
    assert_quantiles(bootstrap_mean(values, resamples=100_000, confidence=0.9), means, tail=0.05)


def test_clusters_are_drawn_whole() -> None:
    """Slow twin: all 3^3 draws of three scenarios of unequal sizes."""
    by_scenario = {"a": [0.0, 0.0, 0.0, 1.0], "b": [1.0], "c": [0.5, 0.5]}
    clusters = [name for name, values in by_scenario.items() for _ in values]
    values = [value for group in by_scenario.values() for value in group]
    means = [
        float(np.mean([value for name in draw for value in by_scenario[name]]))
        for draw in itertools.product(by_scenario, repeat=3)
    ]
    interval = bootstrap_mean(values, clusters=clusters, resamples=100_000, confidence=0.8)
    assert interval.estimate == pytest.approx(3 / 7)
    assert min(means) < interval.low < interval.high < max(means)
    assert_quantiles(interval, means, tail=0.1)


def test_clusters_of_one_value_are_no_clusters() -> None:
    names = [f"scenario {number}" for number in range(10)]
    assert bootstrap_mean(DRUG_1, clusters=names, seed=5) == bootstrap_mean(DRUG_1, seed=5)


def test_attempts_that_only_repeat_each_other_do_not_narrow_the_interval() -> None:
    repeated = [value for value in DRUG_1 for _ in range(8)]
    names = [f"scenario {number}" for number in range(10) for _ in range(8)]
    once, clustered = bootstrap_mean(DRUG_1, seed=1), bootstrap_mean(repeated, clusters=names, seed=1)
    assert (clustered.estimate, clustered.low, clustered.high) == pytest.approx((once.estimate, once.low, once.high))
    naive = bootstrap_mean(repeated, seed=1)
    assert naive.high - naive.low < (once.high - once.low) / 2


def test_the_seed_alone_decides_and_draws_in_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bootstrap_mean(DRUG_1, seed=9)
    assert bootstrap_mean(np.array(DRUG_1), seed=9) == whole
    assert bootstrap_mean(DRUG_1, seed=10) != whole
    monkeypatch.setattr("etude.evaluation.statistics._DRAWS_AT_ONCE", 70)
    assert bootstrap_mean(DRUG_1, seed=9) == whole


def coverage(draw: Callable[[np.random.Generator], Interval], truth: float, trials: int = 400) -> float:
    rng = np.random.default_rng(20261129)
    intervals = [draw(rng) for _ in range(trials)]
    return float(np.mean([interval.low <= truth <= interval.high for interval in intervals]))


def test_95_of_100_intervals_hold_the_true_mean() -> None:
    """400 trials: the share's standard error is 1.1 %, so 92 to 98 % is within three of them."""

    def rewards(rng: np.random.Generator) -> Interval:
        return bootstrap_mean(rng.beta(0.5, 0.8, 120), resamples=600, seed=int(rng.integers(2**32)))

    assert 0.92 <= coverage(rewards, truth=0.5 / 1.3) <= 0.98


def test_95_of_100_paired_intervals_hold_the_true_difference() -> None:
    def difference(rng: np.random.Generator) -> Interval:
        difficulty = rng.uniform(0.2, 0.7, 150)
        before, after = rng.random(150) < difficulty, rng.random(150) < difficulty + 0.1
        return paired_difference(before, after, resamples=600, seed=int(rng.integers(2**32)))

    assert 0.92 <= coverage(difference, truth=0.1) <= 0.98


def test_95_of_100_clustered_intervals_hold_the_true_mean_and_naive_ones_do_not() -> None:
    def attempts(rng: np.random.Generator, clustered: bool) -> Interval:
        chances = np.repeat(rng.beta(0.4, 0.4, 80), 8)  # scenarios are mostly easy or hard: attempts agree
        names = [str(number) for number in np.repeat(np.arange(80), 8)]
        values = rng.random(640) < chances
        clusters = names if clustered else None
        return bootstrap_mean(values, clusters=clusters, resamples=400, seed=int(rng.integers(2**32)))

    assert 0.92 <= coverage(lambda rng: attempts(rng, True), truth=0.5) <= 0.98
    assert coverage(lambda rng: attempts(rng, False), truth=0.5, trials=100) < 0.75


def test_a_change_of_a_share_equals_scipys_bootstrap_of_it() -> None:
    before = [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 1.0)]
    after = [(0.0, 1.0), (0.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0)]
    interval = paired_ratio_difference(before, after, seed=5, resamples=2000)
    twin = scipy.stats.bootstrap(
        tuple(np.array([*zip(*before, strict=True), *zip(*after, strict=True)])),
        lambda x0, y0, x1, y1, axis: x1.sum(axis) / y1.sum(axis) - x0.sum(axis) / y0.sum(axis),
        paired=True,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(5),
    )
    assert interval.estimate == pytest.approx(2 / 5 - 2 / 5)
    assert (interval.low, interval.high) == pytest.approx(tuple(twin.confidence_interval), abs=1e-12)
    assert interval.n == 6


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([(1.0, 1.0)] * 3, [(1.0, 1.0)] * 2, "same scenarios"),
        ([(0.0, 0.0)] * 3, [(1.0, 1.0)] * 3, "share of"),
        ([(1.0, 1.0)], [(1.0, 1.0)], "at least 2"),
        ([(math.nan, 1.0)] * 2, [(1.0, 1.0)] * 2, "missing"),
    ],
)
def test_a_share_of_nothing_has_no_change(before: Any, after: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        paired_ratio_difference(before, after)


# ---- Wilson


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 20), (20, 20), (1, 10), (81, 263), (97, 197)])
def test_wilson_equals_scipy(successes: int, n: int, confidence: float) -> None:
    interval = wilson_interval(successes, n, confidence)
    twin = scipy.stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert (interval.low, interval.high) == pytest.approx((twin.low, twin.high), abs=1e-12)
    assert (interval.estimate, interval.n) == (successes / n, n)


def test_wilson_equals_the_published_example() -> None:
    """81 of 263: 0.2553 to 0.3662 (Newcombe 1998, table I, method 3)."""
    interval = wilson_interval(81, 263)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.2553, 0.3662)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_stays_between_0_and_1(pair: tuple[int, int]) -> None:
    interval = wilson_interval(*pair)
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1


# ---- pass@k


def test_pass_at_k_equals_every_choice_counted() -> None:
    """Slow twin: of all sets of k attempts, the share that holds a success."""
    for n in range(1, 8):
        for successes in range(n + 1):
            attempts = [index < successes for index in range(n)]
            for k in range(1, n + 1):
                chosen = list(itertools.combinations(attempts, k))
                assert pass_at_k(n, successes, k) == pytest.approx(sum(map(any, chosen)) / len(chosen), abs=1e-12)


@given(st.data())
def test_pass_at_k_is_stable_for_many_attempts(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 3000))
    successes, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - math.comb(n - successes, k) / math.comb(n, k)
    assert pass_at_k(n, successes, k) == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_pass_at_k_golden_values() -> None:
    assert pass_at_k(200, 1, 100) == pytest.approx(0.5)
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert pass_at_k(10, 0, 10) == 0.0
    assert pass_at_k(10, 1, 10) == 1.0


def test_pass_at_k_is_unbiased() -> None:
    """Over all outcomes of n attempts at a success chance p, its mean is exactly 1 - (1 - p)^k."""
    n, k, p = 9, 4, 0.2
    mean = sum(scipy.stats.binom.pmf(c, n, p) * pass_at_k(n, c, k) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_the_mean_of_pass_at_k_is_over_scenarios() -> None:
    attempts = {"a": [True, False, False], "b": [False, False], "c": [True, True, True, True]}
    assert mean_pass_at_k(attempts, 2) == pytest.approx((2 / 3 + 0 + 1) / 3)
    assert mean_pass_at_k(attempts, 1) == pytest.approx((1 / 3 + 0 + 1) / 3)


# ---- mean of k


def test_the_mean_of_k_weighs_scenarios_alike() -> None:
    assert mean_of_k({"a": [1.0, 0.0], "b": [0.5, 0.25]}, 2) == pytest.approx(0.4375)


def test_scenarios_with_missing_attempts_are_set_apart_by_name() -> None:
    attempts = {"a": [1.0, None, 0.5], "b": [None, 0.0, None], "c": [0.0, 0.0, 1.0]}
    complete, incomplete = complete_scenarios(attempts, 2)
    assert complete == {"a": (1.0, 0.5), "c": (0.0, 0.0)}
    assert incomplete == ("b",)
    assert mean_of_k(complete, 2) == pytest.approx(0.375)


# ---- sign test


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_the_sign_test_equals_scipys_binomial_test(pairs: list[tuple[int, int]]) -> None:
    before, after = zip(*pairs, strict=True)
    result = sign_test(before, after)
    assert result.wins + result.losses + result.ties == len(pairs)
    decided = result.wins + result.losses
    twin = scipy.stats.binomtest(result.wins, decided).pvalue if decided else 1.0
    assert result.p_value == pytest.approx(twin, abs=1e-12)


def test_mcnemars_exact_test_on_a_published_table() -> None:
    """10 against 2 discordant pairs: p = 158 / 4096 = 0.0386, from Pascal's triangle: 2 (1 + 12 + 66) / 2^12."""
    before = [False] * 10 + [True] * 2 + [True] * 30
    after = [True] * 10 + [False] * 2 + [True] * 30
    result = sign_test(before, after)
    assert (result.wins, result.losses, result.ties) == (10, 2, 30)
    assert result.p_value == pytest.approx(158 / 4096, abs=1e-15)


def test_the_sign_test_does_not_overflow() -> None:
    result = sign_test([0.0] * 5000, [1.0] * 2400 + [-1.0] * 2600)
    assert result.p_value == pytest.approx(scipy.stats.binomtest(2400, 5000).pvalue, rel=1e-9)


# ---- what is missing is missing


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "use",
    [
        bootstrap_mean,
        lambda values: bootstrap_mean(values, clusters=["a", "b", "c"]),
        lambda values: paired_difference([0.0] * 3, values),
        lambda values: paired_difference(values, [0.0] * 3),
        lambda values: mean_of_k({"q": values}, 3),
        lambda values: sign_test(values, [0.0] * 3),
    ],
)
def test_a_missing_attempt_is_refused_by_its_place(use: Callable[[Any], Any], missing: float | None) -> None:
    with pytest.raises(ValueError, match=rf"\[1\] is {missing}: a missing attempt is not 0; leave it out"):
        use([1.0, missing, 0.0])


@pytest.mark.parametrize("missing", [None, float("nan"), 1.0, "yes"])
def test_a_success_is_true_or_false_and_nothing_else(missing: Any) -> None:
    with pytest.raises(ValueError, match=r"attempt 1 at q-7 is .*: a success is True or False"):
        mean_pass_at_k({"q-7": [True, missing]}, 1)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: bootstrap_mean([]), "at least 2 values, got 0"),
        (lambda: bootstrap_mean([1.0]), "at least 2 values, got 1"),
        (lambda: bootstrap_mean([1.0, 0.0], clusters=["a", "a"]), "at least 2 clusters, got 1"),
        (lambda: bootstrap_mean([1.0, 0.0], clusters=["a"]), "2 values but 1 clusters"),
        (lambda: bootstrap_mean([1.0, 0.0], confidence=95), "confidence 95 must lie between 0 and 1"),
        (lambda: bootstrap_mean([1.0, 0.0], resamples=0), "0 resamples"),
        (lambda: paired_difference([1.0], [1.0, 0.0]), "the same scenarios on both sides: 1 and 2"),
        (lambda: sign_test([1.0], [1.0, 0.0]), "the same scenarios on both sides: 1 and 2"),
        (lambda: wilson_interval(0, 0), "0 successes of 0"),
        (lambda: wilson_interval(3, 2), "3 successes of 2"),
        (lambda: wilson_interval(-1, 2), "-1 successes of 2"),
        (lambda: wilson_interval(1, 2, 0.0), "confidence 0.0 must lie"),
        (lambda: pass_at_k(3, 4, 1), "4 successes of 3 attempts"),
        (lambda: pass_at_k(3, 1, 4), "pass@4 needs at least 4 attempts at each scenario, .* got 3"),
        (lambda: pass_at_k(3, 1, 0), "k at least 1"),
        (lambda: mean_pass_at_k({}, 1), "no scenarios"),
        (lambda: mean_pass_at_k({"a": [True]}, 2), "pass@2 needs"),
        (lambda: mean_of_k({}, 1), "no scenarios"),
        (lambda: mean_of_k({"a": [1.0, 1.0], "b": [1.0]}, 2), r"exactly 2 attempts .* 1 have others: b \(1\)"),
    ],
)
def test_what_cannot_be_computed_is_refused(use: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use()


def test_an_interval_reads_as_a_figure_with_its_bounds() -> None:
    assert str(Interval(0.53149, 0.46, 0.6, 0.95, 197)) == "0.531 [0.460, 0.600]"
