"""Two evaluations of the same scenarios, figure by figure: what changed, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from etude.errors import DataError
from etude.evaluation.statistics import Interval, paired_difference, paired_ratio_difference
from etude.store.records import RolloutSummary
from etude.store.store import Store

# Shares among some of the attempts: name -> (metric that is counted, metric that it is counted among).
RATIOS: Mapping[str, tuple[str, str]] = {"hallucination_rate": ("hallucinated", "attempted_answer")}


@dataclass(frozen=True, slots=True)
class Comparison:
    """before, after: means over the scenarios that both have, by figure. difference: after - before, with the interval
    of the paired difference. scenarios: how many both have; left_out: ids of those that only one has a reward for."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    difference: Mapping[str, Interval]
    scenarios: int
    left_out: tuple[str, ...]


def compare_runs(store: Store, before: str, after: str, *, seed: int = 0) -> Comparison:
    """Compare two evaluation runs over the scenarios that both played: their rewards, scores and metrics, `turns`,
    `tokens` (completion), and the shares of RATIOS. Attempts at one scenario are averaged first.

    seed: of the bootstrap. Raises DataError where they share fewer than two scenarios, StorageError.
    """
    first, second = _by_scenario(store.rollouts(before)), _by_scenario(store.rollouts(after))
    shared = [name for name in first if name in second]
    if len(shared) < 2:
        raise DataError(
            f"{before} and {after} share {len(shared)} scenarios that both graded; a comparison needs at least 2"
        )
    left_out = tuple(sorted(first.keys() ^ second.keys()))
    difference = _differences([first[name] for name in shared], [second[name] for name in shared], seed)
    return Comparison(
        _means([first[name] for name in shared], difference),
        _means([second[name] for name in shared], difference),
        difference,
        len(shared),
        left_out,
    )


def _by_scenario(rows: Sequence[RolloutSummary]) -> dict[str, dict[str, float]]:
    """Mean figures of each scenario's graded attempts; a scenario without any is missing, not 0."""
    attempts: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        if row.reward is not None:
            figures = {"reward": row.reward, **row.scores, **row.metrics}
            figures |= {"turns": float(row.turns), "tokens": float(row.completion_tokens)}
            attempts.setdefault(row.scenario_id, []).append(figures)
    return {
        name: {key: float(np.mean([one[key] for one in each])) for key in each[0]} for name, each in attempts.items()
    }


def _differences(
    before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]], seed: int
) -> dict[str, Interval]:
    result = {}
    for name in dict.fromkeys(key for side in (before, after) for figures in side for key in figures):
        pairs = [(one[name], two[name]) for one, two in zip(before, after, strict=True) if name in one and name in two]
        if len(pairs) > 1:
            result[name] = paired_difference([one for one, _ in pairs], [two for _, two in pairs], seed=seed)
    for name, (counted, among) in RATIOS.items():
        if counted in result and _total(before, among) and _total(after, among):
            sides = ([(figures[counted], figures[among]) for figures in side] for side in (before, after))
            result[name] = paired_ratio_difference(*sides, seed=seed)
    return result


def _means(side: Sequence[Mapping[str, float]], names: Mapping[str, Interval]) -> dict[str, float]:
    means = {}
    for name in names:
        if name in RATIOS:
            counted, among = RATIOS[name]
            means[name] = _total(side, counted) / _total(side, among)
        else:
            means[name] = float(np.mean([figures[name] for figures in side if name in figures]))
    return means


def _total(side: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(figures.get(name, 0.0) for figures in side)
