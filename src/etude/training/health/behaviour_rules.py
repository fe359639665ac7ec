"""Rules of what the model does: turns, calls, failures, and outputs that become one."""

from __future__ import annotations

from etude.training.health.history import History, early, late
from etude.training.health.rule import STEPS, WINDOW, Finding, Limits, Rule, Threshold

BETTER = Threshold(0.1, "rise of the held-out metric that excuses it")
SLOW_STEPS = Threshold(20, STEPS.meaning)  # of what may take a while to fall


def _turns(history: History, at: Limits) -> Finding | None:
    turns, truth = history.values("turns"), history.values(history.truth)
    if len(turns) < at.count("steps"):
        return None
    window = at.count("window")
    began, now = early(turns, window), late(turns, window)
    better = _better(history, window)
    if now - began < at["rise"] or now < began * at["factor"] or better >= at["better"]:
        return None
    said = f", {history.held_out} by {better:+.2f}" if truth else ""
    return Finding(
        f"turns a rollout went from {began:.2f} to {now:.2f}{said}",
        {"turns_early": began, "turns": now, "held_out_rise": better},
    )


def _hallucination(history: History, at: Limits) -> Finding | None:
    """Wrong answers, of those that were tried; of all attempts where no metric says which were right."""
    wrong, truth = history.values("metric/hallucinated"), history.values(history.truth)
    if len(wrong) < at.count("steps"):
        return None
    if late(wrong, at.count("window")) < at["attempts"]:
        return None
    if len(truth) == len(wrong):
        wrong = [bad / (bad + good) if bad + good else 0.0 for bad, good in zip(wrong, truth, strict=True)]
    return _not_falling("hallucinated, of answers given", wrong, history, at)


def _parse_failures(history: History, at: Limits) -> Finding | None:
    return _not_falling("parse failures a turn", history.values("health/parse_failures"), history, at)


def _truncated(history: History, at: Limits) -> Finding | None:
    return _not_falling("cut off by a limit of tokens", history.values("health/truncated"), history, at)


def _not_falling(what: str, shares: list[float], history: History, at: Limits) -> Finding | None:
    """A model that becomes right more often is learning in spite of them."""
    if len(shares) < at.count("steps"):
        return None
    window = at.count("window")
    began, now, better = early(shares, window), late(shares, window), _better(history, window)
    if now < at["share"] or now < began * (1 - at["fall"]) or better >= at["better"]:
        return None
    evidence = {"early": began, "now": now, "held_out_rise": better}
    return Finding(f"{what}: {began:.0%} at the beginning, {now:.0%} now", evidence)


def _better(history: History, window: int) -> float:
    """By how much the held-out metric rose; 0 where there is none."""
    truth = history.values(history.truth)
    return late(truth, window) - early(truth, window) if truth else 0.0


def _converging(history: History, at: Limits) -> Finding | None:
    same, distinct = history.values("health/sameness"), history.values("health/distinct")
    if min(len(same), len(distinct)) < at.count("steps"):
        return None
    window = at.count("window")
    alike, began, now = late(same, window), early(distinct, window), late(distinct, window)
    if alike < at["sameness"] or now > began * at["distinct"]:
        return None
    return Finding(
        f"attempts at different scenarios are {alike:.0%} alike, and distinct trigrams fell from {began:.0%} to "
        f"{now:.0%}",
        {"sameness": alike, "distinct_early": began, "distinct": now},
    )


def _risen(history: History, figure: str, at: Limits) -> tuple[float, float] | None:
    """A share at the beginning and now, where it is large and has grown."""
    shares = history.values(figure)
    if len(shares) < at.count("steps"):
        return None
    began, now = early(shares, at.count("window")), late(shares, at.count("window"))
    return (began, now) if now >= at["share"] and now >= began + at["rise"] else None


def _duplicates(history: History, at: Limits) -> Finding | None:
    risen = _risen(history, "health/duplicate_calls", at)
    if risen is None:
        return None
    began, now = risen
    return Finding(
        f"{now:.0%} of the calls repeat an earlier one of their attempt, arguments too ({began:.0%} at the beginning)",
        {"duplicate_calls_early": began, "duplicate_calls": now},
    )


def _one_tool(history: History, at: Limits) -> Finding | None:
    shares, calls, tools = (history.values(name) for name in ("health/top_tool", "tool_calls", "health/tools"))
    if min(len(shares), len(calls)) < at.count("steps") or max(tools) < 2:
        return None
    window = at.count("window")
    share, count = late(shares, window), late(calls, window)
    if share < at["share"] or count < at["calls"]:
        return None
    return Finding(
        f"{share:.0%} of {count:.1f} calls a rollout go to one tool, over and over", {"top_tool": share, "calls": count}
    )


def _at_cap(history: History, at: Limits) -> Finding | None:
    risen = _risen(history, "health/at_cap", at)
    if risen is None or _better(history, at.count("window")) >= at["better"]:
        return None
    began, now = risen
    return Finding(
        f"{now:.0%} of the rollouts end at the limit of turns or calls ({began:.0%} at the beginning)",
        {"at_cap_early": began, "at_cap": now},
    )


BEHAVIOUR_RULES = (
    Rule(
        "turns_rising",
        "more turns without being right more often",
        "The reward pays for wandering: take out what grows with turns or calls, or charge for turns "
        "(Rubric.penalties, {'turns': ...}); lower max_turns.",
        {
            "steps": STEPS,
            "window": WINDOW,
            "rise": Threshold(0.75, "turns more than at the beginning"),
            "factor": Threshold(1.4, "times the turns of the beginning"),
            "better": BETTER,
        },
        _turns,
    ),
    Rule(
        "hallucination",
        "wrong answers that do not become fewer",
        'Charge more for a wrong answer than for none, pay a little for "I don\'t know", and check that the grader '
        "tells right from wrong (etude check).",
        {
            "steps": SLOW_STEPS,
            "window": WINDOW,
            "share": Threshold(0.2, "wrong answers, of those that were given"),
            "attempts": Threshold(0.05, "wrong answers, of all attempts: below it there are too few to tell"),
            "fall": Threshold(0.1, "fall, as a share of the beginning, that counts as becoming fewer"),
            "better": BETTER,
        },
        _hallucination,
    ),
    Rule(
        "parse_failures",
        "tool calls that cannot be read, and do not become fewer",
        "Warm start on traces first (etude sft); check that model.chat is the model's own format; charge for parse "
        "failures (Rubric.penalties).",
        {
            "steps": SLOW_STEPS,
            "window": WINDOW,
            "share": Threshold(0.1, "failures a turn"),
            "fall": Threshold(0.25, "fall, as a share of the beginning, that counts as becoming fewer"),
            "better": BETTER,
        },
        _parse_failures,
    ),
    Rule(
        "truncated",
        "attempts cut off by a limit of tokens, and not fewer of them",
        "Raise limits.max_tokens_per_turn or max_tokens, or charge for tokens; look whether the model repeats itself.",
        {
            "steps": SLOW_STEPS,
            "window": WINDOW,
            "share": Threshold(0.2, "share of rollouts"),
            "fall": Threshold(0.1, "fall, as a share of the beginning, that counts as becoming fewer"),
            "better": BETTER,
        },
        _truncated,
    ),
    Rule(
        "outputs_converging",
        "the same output whatever the scenario",
        "The grader accepts one answer for many scenarios, or training collapsed: read a few rollouts of different "
        "scenarios; mend the grader, lower learning.lr, or hold the policy to its start (learning.loss_overrides: kl).",
        {
            "steps": STEPS,
            "window": WINDOW,
            "sameness": Threshold(0.6, "mean overlap of the trigrams of attempts at different scenarios"),
            "distinct": Threshold(0.5, "distinct trigrams now, as a share of the beginning's"),
        },
        _converging,
    ),
    Rule(
        "duplicate_calls",
        "calls that repeat an earlier call of the same attempt",
        "Nothing is learnt from a second look: take out what pays for calls, or charge for them; answer a repeated "
        "call with a hint in the tool.",
        {
            "steps": STEPS,
            "window": WINDOW,
            "share": Threshold(0.4, "share of calls"),
            "rise": Threshold(0.15, "rise since the beginning"),
        },
        _duplicates,
    ),
    Rule(
        "one_tool",
        "one tool called for ever",
        "Attempts do not come to an end: take out what pays for calls, pay for ending, or lower max_turns.",
        {
            "steps": STEPS,
            "window": WINDOW,
            "share": Threshold(0.85, "share of calls that go to one tool, where there are others"),
            "calls": Threshold(2.5, "calls a rollout"),
        },
        _one_tool,
    ),
    Rule(
        "calls_at_cap",
        "attempts that end at the limit of turns or calls",
        "If right attempts need more, raise max_turns or max_tool_calls; if not, the reward pays for calls or turns.",
        {
            "steps": STEPS,
            "window": WINDOW,
            "share": Threshold(0.5, "share of rollouts"),
            "rise": Threshold(0.25, "rise since the beginning"),
            "better": BETTER,
        },
        _at_cap,
    ),
)
