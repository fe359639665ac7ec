"""From rollouts to the figures of a step or an evaluation: plain means over what was scored, faults counted apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from etude.rollout.group import Group
from etude.rollout.outcome import Outcome
from etude.rollout.rollout import Rollout


def summarize(rollouts: Sequence[Rollout], faulted: Iterable[Rollout] = ()) -> dict[str, float]:
    """Means over scored rollouts (a rollout without reward enters none of them); counts of every outcome and stop.

    faulted: earlier tries that were replaced; they count as faults and nowhere else."""
    scored = [rollout for rollout in rollouts if rollout.reward is not None]
    figures: dict[str, float] = {"rollouts/scored": len(scored), "rollouts/all": len(rollouts)}
    outcomes = Counter(rollout.outcome for rollout in [*rollouts, *faulted])
    for outcome in Outcome:
        figures[f"outcome/{outcome.value}"] = outcomes[outcome]
    for stop, count in sorted(Counter(rollout.stop.value for rollout in rollouts).items()):
        figures[f"stop/{stop}"] = count
    failures: Counter[str] = Counter()
    for rollout in rollouts:
        failures.update(rollout.parse_failures)
    for kind, count in sorted(failures.items()):
        figures[f"parse_failure/{kind}"] = count
    if not scored:
        return figures
    rewards = np.array([rollout.reward for rollout in scored], dtype=np.float64)
    figures["reward/mean"] = float(rewards.mean())
    figures["reward/std"] = float(rewards.std(ddof=1)) if len(rewards) > 1 else 0.0
    figures |= _means(scored)
    return figures


def _means(scored: Sequence[Rollout]) -> dict[str, float]:
    named: dict[str, list[float]] = defaultdict(list)
    for rollout in scored:
        named["turns"].append(rollout.turns)
        named["tool_calls"].append(len(rollout.calls))
        named["tokens/prompt"].append(rollout.prompt_tokens)
        named["tokens/completion"].append(rollout.completion_tokens)
        named["time/rollout_s"].append(rollout.wall_s)
        named["time/tool_s"].append(rollout.tool_s)
        named["trajectory/forks"].append(rollout.trajectory.forks)
        if rollout.trajectory.drift is not None:
            named["trajectory/drift"].append(rollout.trajectory.drift)
        for name, value in rollout.scores.items():
            named[f"score/{name}"].append(value)
        for name, value in rollout.metrics.items():
            named[f"metric/{name}"].append(value)
    return {name: float(np.mean(values)) for name, values in named.items()}


def group_figures(groups: Sequence[Group]) -> dict[str, float]:
    """How much the groups can teach: the mean deviation within a group, and how many have none."""
    deviations = [float(np.std(group.rewards, ddof=1)) for group in groups if len(group.rewards) > 1]
    return {
        "groups/trained": len(groups),
        "groups/zero_variance": sum(not group.has_variance for group in groups),
        "reward/std_in_group": float(np.mean(deviations)) if deviations else 0.0,
    }
