"""What a step's rollouts say of the run's health, as numbers: the part that plain means do not show.

Everything here is computed from rollouts alone, so that a saved run gives the same figures as it did while it ran.
Names begin with "health/"; a figure that cannot be measured (no two groups, no spread of rewards) is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from etude.rollout.group import Group
from etude.rollout.outcome import Stop
from etude.rollout.rollout import CallRecord, Rollout
from etude.training.ledger import CUT

PREFIX = "health/"
GRAM = 3  # tokens; a rollout's beginning and end count as tokens, so that short outputs have trigrams too
LEAST_SCORED = 8  # rollouts below which correlations are noise
AT_CAP = frozenset({Stop.OUT_OF_TURNS, Stop.OUT_OF_CALLS})
_EDGE = -1
_FLAT = 1e-12  # a sum of squares below this is rounding

Array = NDArray[np.float64]
Labels = NDArray[np.int64]  # which stratum a rollout is in, from 0


def step_figures(
    groups: Sequence[Group], dropped: Sequence[Group], version: int, held_out: str | None
) -> dict[str, float]:
    """groups: those that the step trained; dropped: those that it dropped (only their faults count here). version: of
    the weights that were trained. held_out: name of the metric that says whether an attempt was right."""
    scored = [rollout for group in groups for rollout in group.scored]
    figures = _faults([*dropped, *groups])
    if scored:
        figures |= _rewards(scored)
        figures |= _outputs([group.scored for group in groups if group.scored])
        figures |= _calls(scored)
        figures |= _ends(scored)
        figures |= _ages(scored, version)
        figures |= _spread([group.scored for group in groups], held_out)
    return {f"{PREFIX}{name}": value for name, value in figures.items()}


def _faults(groups: Sequence[Group]) -> dict[str, float]:
    """fault/WHERE: tries that faulted there. tries: all of them, those that were replaced included."""
    tries = [rollout for group in groups for rollout in (*group.faulted, *group.rollouts)]
    where = Counter(rollout.fault.where for rollout in tries if rollout.fault is not None)
    return {"tries": len(tries), **{f"fault/{name}": count for name, count in sorted(where.items())}}


def _rewards(scored: Sequence[Rollout]) -> dict[str, float]:
    rewards = _numbers([rollout.reward for rollout in scored])
    return {"reward_min": float(rewards.min()), "reward_max": float(rewards.max())}


def _outputs(groups: Sequence[Sequence[Rollout]]) -> dict[str, float]:
    """distinct: different trigrams of sampled tokens, per trigram. sameness: how alike rollouts of different scenarios
    are, as the mean Jaccard overlap of their sets of trigrams; each is compared with the one at its place in the next
    group, so that the cost is linear."""
    grams = [[_grams(rollout) for rollout in group] for group in groups]
    every = [gram for group in grams for rollout in group for gram in rollout]
    figures = {"distinct": len(set(every)) / len(every)}
    overlaps = [
        _overlap(set(left), set(right))
        for one, other in pairwise(grams)
        for left, right in zip(one, other, strict=False)
    ]
    if overlaps:
        figures["sameness"] = float(np.mean(overlaps))
    return figures


def _grams(rollout: Rollout) -> list[tuple[int, ...]]:
    tokens = [_EDGE, *(int(token) for row in rollout.trajectory.rows for token in row.tokens[row.action_mask]), _EDGE]
    tokens += [_EDGE] * (GRAM - len(tokens))
    return [tuple(tokens[place : place + GRAM]) for place in range(len(tokens) - GRAM + 1)]


def _overlap(left: set[tuple[int, ...]], right: set[tuple[int, ...]]) -> float:
    return len(left & right) / len(left | right)


def _calls(scored: Sequence[Rollout]) -> dict[str, float]:
    """duplicate_calls: share of calls that repeat an earlier one of their rollout, arguments too. top_tool: share of
    calls that went to the tool called most; tools: how many were called."""
    calls = [[call for call in rollout.calls if call.name] for rollout in scored]
    names = Counter(call.name for each in calls for call in each)
    total = sum(names.values())
    if not total:
        return {}
    repeated = sum(len(each) - len({_identity(call) for call in each}) for each in calls)
    return {"duplicate_calls": repeated / total, "top_tool": max(names.values()) / total, "tools": len(names)}


def _identity(call: CallRecord) -> tuple[str, str]:
    return call.name, repr(_in_order(call.arguments))


def _in_order(value: object) -> object:
    """Equal arguments in another order of keys are equal."""
    if isinstance(value, dict):
        return sorted((key, _in_order(part)) for key, part in value.items())
    return [_in_order(part) for part in value] if isinstance(value, list) else value


def _ends(scored: Sequence[Rollout]) -> dict[str, float]:
    """parse_failures: per turn. at_cap, truncated: shares of rollouts that a limit of turns or calls, or of tokens,
    ended."""
    turns = sum(rollout.turns for rollout in scored)
    failures = sum(sum(rollout.parse_failures.values()) for rollout in scored)
    return {
        "parse_failures": failures / turns if turns else 0.0,
        "at_cap": sum(rollout.stop in AT_CAP for rollout in scored) / len(scored),
        "truncated": sum(rollout.stop in CUT for rollout in scored) / len(scored),
    }


def _ages(scored: Sequence[Rollout], version: int) -> dict[str, float]:
    """age: by how many versions the sampled tokens were behind the weights that they trained, mean and largest."""
    ages = [version - row.version[row.action_mask] for rollout in scored for row in rollout.trajectory.rows]
    every = np.concatenate(ages) if ages else np.empty(0)
    return {"age_mean": float(every.mean()), "age_max": float(every.max())} if every.size else {}


def _spread(groups: Sequence[Sequence[Rollout]], held_out: str | None) -> dict[str, float]:
    """What the differences of rewards within groups go with: length, and the components of the rubric."""
    groups = [group for group in groups if len(group) > 1]
    scored = [rollout for group in groups for rollout in group]
    if len(scored) < LEAST_SCORED:
        return {}
    group_of: Labels = np.repeat(np.arange(len(groups), dtype=np.int64), [len(group) for group in groups])
    rewards = _within(_numbers([rollout.reward for rollout in scored]), group_of)
    if rewards @ rewards < _FLAT:
        return {}
    right = None
    if held_out is not None and all(held_out in rollout.metrics for rollout in scored):
        right = _numbers([rollout.metrics[held_out] for rollout in scored])
    return {**_length(scored, rewards, group_of, right), **_components(scored, rewards, group_of, right)}


def _length(scored: Sequence[Rollout], rewards: Array, group_of: Labels, right: Array | None) -> dict[str, float]:
    """length_correlation: of reward and sampled tokens, within groups. length_share: the part of the reward's variance
    within groups that length explains among attempts that are equally right; negative where short ones are paid."""
    tokens = _numbers([rollout.completion_tokens for rollout in scored])
    strata = group_of if right is None else _together(group_of, right)
    length, paid = _within(tokens, strata), _within(rewards, strata)
    both, own = float(length @ paid), float(length @ length)
    share = both * abs(both) / (own * float(rewards @ rewards)) if own > _FLAT else 0.0
    return {"length_correlation": _correlation(_within(tokens, group_of), rewards), "length_share": share}


def _components(scored: Sequence[Rollout], rewards: Array, group_of: Labels, right: Array | None) -> dict[str, float]:
    """share/NAME: the part of the reward's variance within groups that a score accounts for: b·cov(score, reward) /
    var(reward), where b are the weights of least squares. Shares of a weighted sum add up to 1. held_out/NAME: the
    score's correlation with the held-out metric, within groups. Only where a rubric has two scores or more."""
    names = sorted(set.intersection(*(set(rollout.scores) for rollout in scored)))
    if len(names) < 2:
        return {}
    values = np.stack([_within(_numbers([rollout.scores[name] for rollout in scored]), group_of) for name in names], 1)
    weights = np.linalg.lstsq(values, rewards, rcond=None)[0]
    shares = weights * (values.T @ rewards) / float(rewards @ rewards)
    figures = {f"share/{name}": float(share) for name, share in zip(names, shares, strict=True)}
    if right is not None:
        truth = _within(right, group_of)
        figures |= {f"held_out/{name}": _correlation(values[:, place], truth) for place, name in enumerate(names)}
    return figures


def _together(labels: Labels, values: Array) -> Labels:
    """Strata in which both are equal."""
    places: dict[tuple[int, float], int] = {}
    pairs = zip(labels.tolist(), values.tolist(), strict=True)
    return np.array([places.setdefault(pair, len(places)) for pair in pairs], dtype=np.int64)


def _within(values: Array, strata: Labels) -> Array:
    """Deviations from the mean of each stratum. strata: labels from 0, none left out."""
    means = np.bincount(strata, weights=values) / np.bincount(strata)
    return np.asarray(values - means[strata], dtype=np.float64)


def _correlation(left: Array, right: Array) -> float:
    """Of deviations; 0 where one of them is flat."""
    size = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / size if size > _FLAT else 0.0


def _numbers(values: Sequence[float | None]) -> Array:
    return np.array(values, dtype=np.float64)
