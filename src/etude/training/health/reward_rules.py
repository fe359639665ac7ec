"""Rules of what is paid: is there anything to learn from, and is it what was meant?"""

from __future__ import annotations

import math

from etude.training.health.history import History, early, late, windows
from etude.training.health.rule import STEPS, WINDOW, Finding, Limits, Rule, Threshold

REWARD, DEVIATION = "reward/mean", "reward/std_in_group"


def _spread(history: History, at: Limits) -> Finding | None:
    groups, flat = history.values("groups/trained"), history.values("groups/zero_variance")
    if len(groups) < at.count("steps"):
        return None
    window = at.count("window")
    share = late([none / max(1.0, all_of) for none, all_of in zip(flat, groups, strict=True)], window)
    top, bottom = (
        max(history.values("health/reward_max"), default=0.0),
        min(history.values("health/reward_min"), default=0.0),
    )
    mean = late(history.values(REWARD), window) if history.values(REWARD) else 0.0
    solved = top > bottom and mean >= top - at["solved"] * (top - bottom)
    if share < at["share"] or solved:
        return None
    return Finding(
        f"{share:.0%} of the groups have rewards that are all equal, at a mean of {mean:.3g} where up to {top:.3g} was "
        "reached: almost nothing is trained",
        {
            "zero_variance_share": share,
            "reward": mean,
            "highest_reward": top,
            "deviation": late(history.values(DEVIATION), window),
        },
    )


def _held_out(history: History, at: Limits) -> Finding | None:
    return _held_out_in_train(history, at) or _held_out_in_validation(history, at)


def _held_out_in_train(history: History, at: Limits) -> Finding | None:
    """The grader pays more and more, and the held-out metric of the same attempts does not follow."""
    rewards, truth = history.values(REWARD), history.values(history.truth)
    if len(truth) < at.count("steps") or len(truth) != len(rewards):
        return None
    window = at.count("window")
    paid = (late(rewards, window) - early(rewards, window)) / _range(history)
    true = late(truth, window) - early(truth, window)
    best = max(windows(truth, window))
    fell = best - late(truth, window)
    at_best = windows(rewards, window)[windows(truth, window).index(best)]
    still_paid = late(rewards, window) >= at_best
    if not (paid >= at["rise"] and true <= at["flat"]) and not (fell >= at["fall"] and still_paid):
        return None
    return Finding(
        f"the train reward went from {early(rewards, window):.3g} to {late(rewards, window):.3g}, {history.held_out} "
        f"of the same attempts from {early(truth, window):.3g} (best {best:.3g}) to {late(truth, window):.3g}",
        {"reward_rise": paid, "held_out_rise": true, "held_out_fall": fell},
    )


def _held_out_in_validation(history: History, at: Limits) -> Finding | None:
    """Validation falls below its best, by more than its own noise, while the train reward did not fall since."""
    rewards = history.values(REWARD)
    for name in dict.fromkeys([history.truth or REWARD, REWARD]):
        points = history.validated(name)
        if len(points) < 3:
            continue
        best_step, best = max(points, key=lambda point: point[1])
        _, now = points[-1]
        fall = best - now
        noise = 2 * math.sqrt(2) * _error(history, name)
        before = [m.figures.get(REWARD) for m in history.moments if 0 < m.step <= max(1, best_step)]
        then = [value for value in before if value is not None][-at.count("window") :]
        paid = late(rewards, at.count("window")) - (sum(then) / len(then)) if then and rewards else 0.0
        if fall >= max(at["fall"], noise) and paid >= 0:
            return Finding(
                f"{name} of the validation fell from {best:.3g} (step {best_step}) to {now:.3g}, while the train "
                f"reward rose by {paid:.3g}",
                {"validation_fall": fall, "noise": noise, "best_step": best_step, "train_rise": paid},
            )
    return None


def _error(history: History, name: str) -> float:
    """Standard error of the last validation's figure; of a share where it is the held-out metric."""
    figures = [moment.validation for moment in history.moments if moment.validation is not None][-1]
    count = figures.get("rollouts/scored") or 1.0
    if name == REWARD:
        return (figures.get("reward/std") or 0.0) / math.sqrt(count)
    share = min(max(figures.get(name) or 0.0, 1 / count), 1 - 1 / count) if count > 1 else 0.5
    return math.sqrt(share * (1 - share) / count)


def _length(history: History, at: Limits) -> Finding | None:
    shares, tokens = history.values("health/length_share"), history.values("tokens/completion")
    if len(shares) < at.count("steps"):
        return None
    window = at.count("window")
    share, began, now = late(shares, window), early(tokens, window), late(tokens, window)
    if abs(share) < at["share"]:
        return None
    kind = "longer" if share > 0 else "shorter"
    return Finding(
        f"{abs(share):.0%} of the differences in reward within groups go with length alone ({kind} attempts are paid "
        f"more, whether right or not); {began:.3g} tokens a rollout at the beginning, {now:.3g} now",
        {"length_share": share, "tokens_early": began, "tokens": now},
    )


def _component(history: History, at: Limits) -> Finding | None:
    window = at.count("window")
    names = {
        name for moment in history.moments[-window:] for name in moment.figures if name.startswith("health/share/")
    }
    for figure in sorted(names):
        name, shares = figure.removeprefix("health/share/"), history.values(figure)
        if len(shares) < at.count("steps") or late(shares, window) < at["share"]:
            continue
        truth = history.values(f"health/held_out/{name}")
        follows = late(truth, window) if truth else None
        others = {other: values for other in _scores(history) - {name} if (values := history.values(f"score/{other}"))}
        falling = {
            other for other, values in others.items() if late(values, window) < early(values, window) - at["fall"]
        }
        if follows is not None and follows < at["follows"]:
            why = f"and it hardly goes with {history.held_out} (correlation {follows:.2f})"
        elif follows is None and falling:
            why = f"and {', '.join(sorted(falling))} fell meanwhile"
        else:
            continue
        evidence = {"share": late(shares, window)} | ({} if follows is None else {"held_out_correlation": follows})
        return Finding(f"{late(shares, window):.0%} of the differences in reward come from {name}, {why}", evidence)
    return None


def _scores(history: History) -> set[str]:
    return {name.removeprefix("score/") for name in history.moments[-1].figures if name.startswith("score/")}


def _range(history: History) -> float:
    """Between the lowest and the highest reward of any attempt so far; 1 where all were equal."""
    top, bottom = history.values("health/reward_max"), history.values("health/reward_min")
    return (max(top) - min(bottom)) or 1.0 if top and bottom else 1.0


REWARD_RULES = (
    Rule(
        "reward_spread",
        "rewards within groups become equal before the best was reached",
        "Play more rollouts a group, take easier or more varied scenarios, make the reward finer (partial credit), or "
        "lower learning.lr if it collapsed. If all attempts fail, warm start first (etude sft).",
        {
            "steps": Threshold(5, STEPS.meaning),
            "window": WINDOW,
            "share": Threshold(0.9, "share of groups without variance"),
            "solved": Threshold(0.05, "silent where the mean is this near to the best reward, as a share of the range"),
        },
        _spread,
        "error",
    ),
    Rule(
        "held_out",
        "train reward up while the held-out metric or the validation is not",
        "The grader pays for something else than being right: read the best-rewarded rollouts (etude show RUN "
        "--rollouts) and look for what they share. Check that the reference is not in the prompt or a tool's output, "
        "and that text cannot be stuffed (etude check). Mend the grader and start again from weights before this step.",
        {
            "steps": STEPS,
            "window": WINDOW,
            "rise": Threshold(0.15, "rise of the train reward, as a share of the range of rewards"),
            "flat": Threshold(0.05, "rise of the held-out metric up to which it counts as none"),
            "fall": Threshold(0.1, "fall below its best that counts while the train reward goes on"),
        },
        _held_out,
        "error",
    ),
    Rule(
        "length_paid",
        "reward that goes with length, among attempts that are equally right",
        "Take out of the reward what grows with text or calls (keywords, turns), or charge for tokens "
        "(Rubric.penalties). If attempts are cut off, raise max_tokens_per_turn.",
        {
            "steps": STEPS,
            "window": WINDOW,
            "share": Threshold(0.25, "part of the reward's variance within groups that length accounts for"),
        },
        _length,
    ),
    Rule(
        "component_dominates",
        "one score of the rubric decides the reward, and it is not being right",
        "Lower its weight, or make it a gate (Rubric.gates), which cannot buy back a wrong answer.",
        {
            "steps": STEPS,
            "window": WINDOW,
            "share": Threshold(0.8, "part of the reward's variance within groups that the score accounts for"),
            "follows": Threshold(0.3, "its correlation with the held-out metric below which it is beside the point"),
            "fall": Threshold(0.05, "without a held-out metric: fall of another score that counts"),
        },
        _component,
    ),
)
