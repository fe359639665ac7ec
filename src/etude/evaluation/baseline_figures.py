"""From the attempts of a baseline to what they say: pure, from rollouts that were played and graded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from etude.evaluation.run_eval import pass_at_all, success
from etude.evaluation.statistics import Interval, bootstrap_mean, powers_of_two
from etude.evaluation.variance import expected_best, has_variance, zero_variance_share
from etude.rollout.group import Group

# From where on a finding is told; shares of scenarios or of attempts, and differences of the mean.
MANY_FAULTS, MOSTLY_ALIKE, LITTLE_TO_GAIN, NEARLY_SOLVED, WORTH_MORE_ATTEMPTS = 0.05, 0.6, 0.05, 0.95, 0.1


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts at one scenario that were graded. right: whether each was right; None where nothing says what is.
    missing: attempts that broke, whatever the model did; they are in no mean."""

    scenario: str
    rewards: tuple[float, ...]
    right: tuple[bool, ...] | None
    missing: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.rewards))

    @property
    def deviation(self) -> float:
        """Between the attempts; 0 where there is one."""
        return float(np.std(self.rewards, ddof=1)) if len(self.rewards) > 1 else 0.0

    @property
    def best(self) -> float:
        return max(self.rewards)


@dataclass(frozen=True, slots=True)
class Finding:
    """What follows from a baseline: what was seen, with its figures, and what to do."""

    name: str
    seen: str
    advice: str


def attempts_of(group: Group) -> Attempts:
    scored = group.scored
    right = [success(rollout) for rollout in scored]
    known = None if any(one is None for one in right) else tuple(bool(one) for one in right)
    rewards = tuple(rollout.reward for rollout in scored if rollout.reward is not None)
    return Attempts(group.ticket.scenario.id, rewards, known, len(group.rollouts) - len(scored))


def baseline_figures(
    attempts: Sequence[Attempts], planned: int, seed: int
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Figures, and intervals of those that have one. planned: attempts that were wanted at each scenario.

    `best@k/reward` (and `pass@k`, where something says what is right) go up to the attempts that every scenario has.
    `zero_variance/...`: the share of scenarios whose attempts all ended alike, on correctness and on reward (equal
    within REWARD_TOLERANCE); `.../xN`: predicted for N attempts (90 % interval), on correctness.
    """
    graded = [each for each in attempts if each.rewards]
    figures: dict[str, float] = {
        "attempts/planned": planned * len(attempts),
        "attempts/scored": sum(len(each.rewards) for each in attempts),
        "attempts/missing": sum(each.missing for each in attempts),
        "scenarios/all": len(attempts),
        "scenarios/graded": len(graded),
    }
    intervals: dict[str, Interval] = {}
    if not graded:
        return figures, intervals
    figures["reward/mean_of_scenarios"] = float(np.mean([each.mean for each in graded]))
    if len(graded) > 1:
        intervals["reward/mean_of_scenarios"] = bootstrap_mean([each.mean for each in graded], seed=seed)
    for k in powers_of_two(min(len(each.rewards) for each in graded)):
        figures[f"best@{k}/reward"] = float(np.mean([expected_best(each.rewards, k) for each in graded]))
    several = [each for each in graded if len(each.rewards) > 1]
    if several:
        figures["zero_variance/reward"] = float(np.mean([not has_variance(each.rewards) for each in several]))
    _correctness(graded, several, planned, seed, figures, intervals)
    return figures, intervals


def _correctness(
    graded: Sequence[Attempts],
    several: Sequence[Attempts],
    planned: int,
    seed: int,
    figures: dict[str, float],
    intervals: dict[str, Interval],
) -> None:
    counts = [(len(each.right), sum(each.right)) for each in graded if each.right is not None]
    if len(counts) < len(graded):
        return
    figures |= pass_at_all({each.scenario: each.right for each in graded if each.right is not None})
    if not several:
        return
    figures["zero_variance/correctness"] = float(np.mean([len(set(each.right or ())) == 1 for each in several]))
    figures["zero_variance/all_right"] = float(np.mean([all(each.right or ()) for each in several]))
    figures["zero_variance/all_wrong"] = float(np.mean([not any(each.right or ()) for each in several]))
    for factor in (2, 4):
        if len(counts) > 1:
            name = f"zero_variance/correctness/x{factor * planned}"
            intervals[name] = zero_variance_share(counts, factor * planned, seed=seed)
            figures[name] = intervals[name].estimate


def findings(figures: Mapping[str, float], intervals: Mapping[str, Interval], planned: int) -> list[Finding]:
    """What follows, most pressing first; never empty."""
    told = _broken(figures)
    kind = "correctness" if "zero_variance/correctness" in figures else "reward"
    mean = figures.get("pass@1", figures.get("reward/mean_of_scenarios", 0.0))
    best_name = max((name for name in figures if name.startswith("pass@")), key=_k, default="")
    best_name = best_name or max((name for name in figures if name.startswith("best@")), key=_k, default="")
    best, k = (figures[best_name], _k(best_name)) if best_name else (mean, 1)
    alike = figures.get(f"zero_variance/{kind}")
    if alike is None:
        return told or [
            Finding("one_attempt", "there is one attempt at each scenario", "make several: eval.attempts=8")
        ]
    what = "right" if kind == "correctness" else "mean reward"
    if figures.get("pass@1", 1.0) == 0.0 or (best <= 0.0 and alike == 1.0):
        return [*told, Finding("all_zero", f"no attempt of {figures['attempts/scored']:.0f} was rewarded as right",
                               "reinforcement has nothing to build on: warm start first (etude sft), or give scenarios "
                               "that are easier, or credit for partial success")]  # fmt: skip
    if kind == "correctness" and mean >= NEARLY_SOLVED:
        return [
            *told,
            Finding("solved", f"{mean:.1%} of the attempts are right", "use it as it is, or give it harder scenarios"),
        ]
    if best - mean < LITTLE_TO_GAIN:
        told.append(Finding("little_to_gain", f"the best of {k} attempts is {_value(best, kind)}, one attempt "
                            f"{_value(mean, kind)}", "the model does not know a better way: a better prompt, tools or "
                            "a warm start would have to show it one"))  # fmt: skip
    if alike >= MOSTLY_ALIKE:
        told.append(_few_vary(figures, intervals, planned, kind, alike))
    if not told or told[-1].name == "faults":
        told.append(Finding("worth_training", f"one attempt is {_value(mean, kind)} ({what}), the best of {k} "
                            f"{_value(best, kind)}, and {1 - alike:.0%} of the scenarios have attempts that differ",
                            "reinforcement has something to learn from: etude train"))  # fmt: skip
    return told


def _broken(figures: Mapping[str, float]) -> list[Finding]:
    missing, planned = figures["attempts/missing"], figures["attempts/planned"]
    if missing <= MANY_FAULTS * planned:
        return []
    return [Finding("faults", f"{missing:.0f} of {planned:.0f} attempts broke (a tool, the environment or the grader), "
                    "and are in no mean", "read them first: etude show RUN --rollouts")]  # fmt: skip


def _few_vary(
    figures: Mapping[str, float], intervals: Mapping[str, Interval], planned: int, kind: str, alike: float
) -> Finding:
    seen = f"in {alike:.0%} of the scenarios all {planned} attempts end alike ({kind}), which teaches nothing"
    predicted = [f"zero_variance/correctness/x{factor * planned}" for factor in (2, 4)]
    if kind == "reward" or predicted[-1] not in intervals:
        return Finding("few_vary", seen, "make more attempts a group, or give other scenarios")
    ranges = [
        f"{intervals[name].low:.0%} to {intervals[name].high:.0%} with {name.split('x')[-1]}" for name in predicted
    ]
    seen += f"; predicted: {', '.join(ranges)}"
    if alike - intervals[predicted[-1]].estimate >= WORTH_MORE_ATTEMPTS:
        return Finding("few_vary", seen, "more attempts a group help: sampling.rollouts_per_group")
    harder = figures["zero_variance/all_right"] > figures["zero_variance/all_wrong"]
    return Finding(
        "few_vary", seen, f"more attempts would hardly help: give {'harder' if harder else 'easier'} scenarios"
    )


def _k(name: str) -> int:
    return int(name.partition("@")[2].partition("/")[0])


def _value(value: float, kind: str) -> str:
    return f"{value:.1%}" if kind == "correctness" else f"{value:.3f}"
