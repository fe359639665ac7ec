"""Rules of the machinery: what is too old, what moves too far, what differs between engine and learner, what breaks."""

from __future__ import annotations

from etude.training.health.history import History, late
from etude.training.health.rule import STEPS, WINDOW, Finding, Limits, Rule, Threshold

FEW_STEPS = Threshold(5, STEPS.meaning)


def _staleness(history: History, at: Limits) -> Finding | None:
    if len(history.values("ledger/sampled")) < at.count("steps"):
        return None
    window = at.count("window")
    sums = history.totals("ledger/", window)
    share = sums.get("stale", 0.0) / max(1.0, sums["sampled"])
    if share < at["share"]:
        return None
    return Finding(
        f"{sums['stale']:.0f} of the last {sums['sampled']:.0f} rollouts were thrown away because they were older than "
        "sampling.staleness allows",
        {"stale_share": share, "stale": sums["stale"], "sampled": sums["sampled"]},
    )


def _drift(history: History, at: Limits) -> Finding | None:
    """Tokens and forks per sampled token: 1 in 100 is 1 % of what is trained."""
    drift, tokens, forks = (
        history.values(name) for name in ("trajectory/drift", "tokens/completion", "trajectory/forks")
    )
    if len(tokens) < at.count("steps"):
        return None
    window = at.count("window")
    share = late(drift, window) / max(1.0, late(tokens, window)) if drift else 0.0
    forked = late(forks, window) if forks else 0.0
    if share < at["share"] and forked < at["forks"]:
        return None
    return Finding(
        f"rendering the conversations anew differs in {share:.1%} of the sampled tokens; {forked:.2f} broken prefixes "
        "a rollout",
        {"drift_share": share, "forks": forked},
    )


def _engine_gap(history: History, at: Limits) -> Finding | None:
    gaps = history.values("learner/gap_mean")
    if len(gaps) < at.count("steps") or (gap := late(gaps, at.count("window"))) < at["gap"]:
        return None
    return Finding(
        f"the learner's log-probabilities differ from the engine's by {gap:.3g} on average before anything was learnt",
        {"gap_mean": gap},
    )


def _policy_shift(history: History, at: Limits) -> Finding | None:
    """Medians: one step with a long tail is nothing, half of them are."""
    found, evidence = [], {}
    for name, figure, what in (
        ("kl", "learner/behaviour_k3", "KL to the policy that sampled"),
        ("ratio", "learner/ratio_max", "largest importance ratio"),
        ("reference_kl", "learner/reference_kl", "KL to the reference"),
    ):
        values = history.values(figure)
        if len(values) >= at.count("steps") and (now := late(values, at.count("window"))) >= at[name]:
            found.append(f"{what} {now:.3g}")
            evidence[name] = now
    low, high = history.values("learner/clip_low"), history.values("learner/clip_high")
    clipped = [left + right for left, right in zip(low, high, strict=False)]
    if len(clipped) >= at.count("steps") and (now := late(clipped, at.count("window"))) >= at["clipped"]:
        found.append(f"{now:.0%} of the tokens clipped")
        evidence["clipped"] = now
    return Finding(f"a step moves the policy far: {', '.join(found)}", evidence) if found else None


def _faults(history: History, at: Limits) -> Finding | None:
    window = at.count("window")
    if len(history.values("health/tries")) < at.count("steps"):
        return None
    tries = history.totals("health/tries", window).get("", 0.0)
    faults = history.totals("health/fault/", window)
    often = {
        where: count
        for where, count in faults.items()
        if count >= at["count"] and count / max(1.0, tries) >= at["share"]
    }
    if not often:
        return None
    told = ", ".join(f"{where} {count:.0f}" for where, count in sorted(often.items(), key=lambda item: -item[1]))
    steps = min(window, len(history.values("health/tries")))
    return Finding(f"faults in the last {steps} steps, of {tries:.0f} tries: {told}", {"tries": tries, **often})


MACHINERY_RULES = (
    Rule(
        "staleness",
        "rollouts thrown away because they are too old",
        "Find what makes some rollouts slow (a tool's time: etude show RUN --rollouts), give it a time limit, or raise "
        "sampling.staleness by one.",
        {"steps": FEW_STEPS, "window": WINDOW, "share": Threshold(0.1, "share of the sampled rollouts")},
        _staleness,
    ),
    Rule(
        "drift",
        "a chat format that does not give back what was sampled",
        "Etude trains the exact tokens, so the run is sound; what serves the model later will render other tokens. Use "
        "the model's own template (model.chat: template), or another chat format; forks also cost prefills.",
        {
            "steps": FEW_STEPS,
            "window": WINDOW,
            "share": Threshold(0.02, "tokens of drift, per sampled token"),
            "forks": Threshold(0.2, "broken prefixes a rollout"),
        },
        _drift,
    ),
    Rule(
        "engine_gap",
        "engine and learner that disagree on the same weights",
        "Use float32 on both sides, or loss_overrides {anchor: old, behaviour: tis}; a gap that grows is a fault of "
        "weights or cache: report it.",
        {
            "steps": FEW_STEPS,
            "window": WINDOW,
            "gap": Threshold(0.05, "mean difference of log-probabilities, in nats"),
        },
        _engine_gap,
    ),
    Rule(
        "policy_shift",
        "steps that move the policy too far: tails of KL and of importance ratios",
        "Lower learning.lr, or sampling.staleness; warm up (learning.warmup_steps).",
        {
            "steps": Threshold(3, STEPS.meaning),
            "window": WINDOW,
            "kl": Threshold(0.25, "KL(behaviour || now), k3, in nats a token"),
            "ratio": Threshold(20.0, "largest importance ratio of a step"),
            "clipped": Threshold(0.4, "share of tokens that the clip cut"),
            "reference_kl": Threshold(1.0, "KL to the reference, in nats a token"),
        },
        _policy_shift,
        "error",
    ),
    Rule(
        "faults",
        "a tool, the environment or a grader that breaks",
        "Read the fault (etude show RUN) and mend it: faulted attempts are replaced, never scored, so what the model "
        "sees is biased towards where nothing breaks.",
        {
            "steps": Threshold(3, STEPS.meaning),
            "window": WINDOW,
            "share": Threshold(0.05, "share of tries that fault at one place"),
            "count": Threshold(5, "faults at one place"),
        },
        _faults,
    ),
)
