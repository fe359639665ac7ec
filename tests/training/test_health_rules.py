"""The rules on histories made by hand: what each fires on, what it leaves alone, and that an alert is told once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.errors import ConfigError
from etude.training.config import parse_config
from etude.training.health.history import Moment
from etude.training.health.rule import Alert
from etude.training.health.rules import CLEAR_AFTER, RULES, Monitor

Series = float | Callable[[int], float | None]
STEPS = 24


def ramp(first: float, last: float) -> Callable[[int], float]:
    """From the first step to the last."""
    return lambda step: first + (last - first) * (step - 1) / (STEPS - 1)


# A run that learns: every rule is silent on it. Names are those of a step's figures.
GOOD: Mapping[str, Series] = {
    "reward/mean": ramp(0.2, 0.8),
    "reward/std_in_group": 0.4,
    "metric/answer_correct": ramp(0.15, 0.8),
    "metric/hallucinated": ramp(0.4, 0.1),
    "groups/trained": 8.0,
    "groups/zero_variance": 1.0,
    "turns": ramp(3.0, 4.0),
    "tool_calls": ramp(3.0, 4.0),
    "tokens/completion": 200.0,
    "trajectory/drift": 0.1,
    "trajectory/forks": 0.0,
    "ledger/sampled": 64.0,
    "ledger/stale": 0.0,
    "learner/behaviour_k3": 0.01,
    "learner/ratio_max": 1.8,
    "learner/clip_low": 0.01,
    "learner/clip_high": 0.01,
    "learner/gap_mean": 1e-3,
    "health/tries": 66.0,
    "health/fault/tool:search": 1.0,
    "health/reward_min": 0.0,
    "health/reward_max": 1.0,
    "health/distinct": ramp(0.8, 0.5),
    "health/sameness": ramp(0.1, 0.3),
    "health/duplicate_calls": 0.05,
    "health/top_tool": 0.5,
    "health/tools": 3.0,
    "health/at_cap": 0.05,
    "health/truncated": 0.02,
    "health/parse_failures": ramp(0.2, 0.02),
    "health/length_share": 0.02,
    "health/share/correct": 0.9,
    "health/held_out/correct": 0.95,
    "health/share/form": 0.1,
    "health/held_out/form": 0.1,
    "score/correct": ramp(0.15, 0.8),
    "score/form": 0.9,
}

STUCK: Mapping[str, Series] = {"metric/answer_correct": 0.5, "reward/mean": 0.5, "turns": 3.0}  # it learns nothing

# What goes wrong, by the rule that it is meant for; over GOOD.
BAD: Mapping[str, tuple[dict[str, Any], str]] = {
    "reward_spread": ({"groups/zero_variance": 8.0, "reward/mean": 0.3}, "100% of the groups"),
    "held_out": ({"metric/answer_correct": 0.15, "turns": 3.0}, "answer_correct of the same attempts"),
    "length_paid": ({"health/length_share": 0.5, "tokens/completion": ramp(100, 400)}, "longer attempts are paid"),
    "component_dominates": (
        {"health/share/form": 0.95, "health/share/correct": 0.05},
        "95% of the differences in reward come from form",
    ),
    "turns_rising": (
        {"turns": ramp(3.0, 6.0), "metric/answer_correct": 0.5, "reward/mean": 0.5},
        "from 3.26 to 4.57, answer_correct by +0.00",
    ),
    "hallucination": (
        {"metric/hallucinated": 0.8, "metric/answer_correct": 0.2, "reward/mean": 0.2, "turns": 3.0},
        "80% now",
    ),
    "parse_failures": ({**STUCK, "health/parse_failures": 0.2}, "parse failures a turn"),
    "truncated": ({**STUCK, "health/truncated": 0.4}, "limit of tokens"),
    "outputs_converging": ({"health/sameness": 0.9, "health/distinct": ramp(0.8, 0.1)}, "90% alike"),
    "duplicate_calls": ({"health/duplicate_calls": ramp(0.1, 0.6)}, "repeat an earlier one"),
    "one_tool": ({"health/top_tool": 0.97}, "go to one tool"),
    "calls_at_cap": ({**STUCK, "health/at_cap": ramp(0.1, 0.9)}, "limit of turns or calls"),
    "staleness": ({"ledger/stale": 16.0}, "80 of the last 320"),
    "drift": ({"trajectory/drift": 9.0}, "4.5% of the sampled tokens"),
    "engine_gap": ({"learner/gap_mean": 0.1}, "by 0.1 on average"),
    "policy_shift": ({"learner/behaviour_k3": 0.4, "learner/ratio_max": 30.0}, "KL to the policy"),
    "faults": ({"health/fault/tool:search": 12.0}, "in the last 3 steps, of 198 tries: tool:search 36"),
}


def moments(figures: Mapping[str, Series], steps: int = STEPS) -> list[Moment]:
    made = []
    for step in range(1, steps + 1):
        values = {name: value(step) if callable(value) else value for name, value in figures.items()}
        made.append(Moment(step, values))
    return made


def alerts(figures: Mapping[str, Series], **thresholds: dict[str, float]) -> list[Alert]:
    monitor = Monitor("answer_correct", thresholds)
    return [alert for moment in moments(figures) for alert in monitor.see(moment)]


def test_every_rule_has_a_bad_run_here() -> None:
    assert BAD.keys() == RULES.keys()


def test_a_run_that_learns_raises_nothing() -> None:
    assert alerts(GOOD) == []


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_fires_with_evidence_and_advice_and_alone(rule: str) -> None:
    changes, said = BAD[rule]
    found = alerts({**GOOD, **changes})
    assert {alert.rule for alert in found} == {rule}
    assert said in found[0].message
    assert found[0].evidence
    assert all(math.isfinite(value) for value in found[0].evidence.values())
    assert found[0].advice == RULES[rule].advice
    assert found[0].step >= RULES[rule].thresholds["steps"].default


@pytest.mark.parametrize("rule", RULES)
def test_a_bad_beginning_of_a_few_steps_raises_nothing(rule: str) -> None:
    changes, _ = BAD[rule]
    monitor = Monitor("answer_correct")
    few = int(RULES[rule].thresholds["steps"].default) - 1
    assert [alert for moment in moments({**GOOD, **changes}, few) for alert in monitor.see(moment)] == []


@pytest.mark.parametrize("rule", RULES)
def test_one_odd_step_raises_nothing(rule: str) -> None:
    """A window's median is what counts. (Faults and stale rollouts are sums: theirs are put at half the threshold.)"""
    if rule in ("faults", "staleness"):
        pytest.skip("sums over the window, by design")
    changes, _ = BAD[rule]
    odd = moments({**GOOD, **changes})
    monitor = Monitor("answer_correct")
    steps = [odd[each.step - 1] if each.step == 20 else each for each in moments(GOOD)]
    assert [alert for moment in steps for alert in monitor.see(moment)] == []


def test_a_run_that_solved_its_scenarios_is_well() -> None:
    solved = {"groups/zero_variance": 8.0, "reward/mean": 1.0}
    assert "reward_spread" not in {alert.rule for alert in alerts({**GOOD, **solved})}


def test_rewards_that_were_never_different_are_not_a_solved_run() -> None:
    flat = {"groups/zero_variance": 8.0, "reward/mean": 0.5, "health/reward_min": 0.5, "health/reward_max": 0.5}
    assert "reward_spread" in {alert.rule for alert in alerts({**GOOD, **flat})}


def test_more_turns_are_well_where_more_is_right() -> None:
    assert alerts({**GOOD, "turns": ramp(2.0, 5.0)}) == []


@pytest.mark.parametrize("rule", ["parse_failures", "truncated", "calls_at_cap"])
def test_failures_are_well_where_more_is_right_all_the_same(rule: str) -> None:
    changes = {name: value for name, value in BAD[rule][0].items() if name not in STUCK}
    assert alerts({**GOOD, **changes}) == []


def test_without_a_held_out_metric_another_score_must_fall() -> None:
    figures = {name: value for name, value in GOOD.items() if "held_out" not in name and "answer_correct" not in name}
    assert alerts({**figures, "turns": 3.0}) == []
    paid = {"health/share/form": 0.95, "score/correct": ramp(0.5, 0.2), "turns": 3.0}
    assert [alert.rule for alert in alerts({**figures, **paid})] == ["component_dominates"]


def test_a_short_reward_is_told_as_such() -> None:
    (alert,) = alerts({**GOOD, "health/length_share": -0.5})
    assert "shorter attempts are paid" in alert.message


def validated(points: Mapping[int, float], count: float = 100.0) -> list[Moment]:
    steps = moments({**GOOD, "metric/answer_correct": ramp(0.2, 0.8)})
    return [
        Moment(0, {}, {"metric/answer_correct": 0.2, "rollouts/scored": count}),
        *(
            Moment(
                each.step,
                each.figures,
                {"metric/answer_correct": points[each.step], "rollouts/scored": count} if each.step in points else None,
            )
            for each in steps
        ),
    ]


@pytest.mark.parametrize(
    ("points", "count", "fires"),
    [
        ({5: 0.4, 10: 0.6, 15: 0.5, 20: 0.3}, 200.0, True),
        ({5: 0.4, 10: 0.6, 15: 0.5, 20: 0.3}, 10.0, False),
        ({5: 0.4, 10: 0.6, 15: 0.62, 20: 0.6}, 200.0, False),
        ({5: 0.4, 10: 0.6, 15: 0.7, 20: 0.8}, 200.0, False),
    ],
    ids=["it falls", "too few scenarios to tell", "it stays", "it rises"],
)
def test_validation_falls_while_train_rises(points: dict[int, float], count: float, fires: bool) -> None:
    monitor = Monitor("answer_correct")
    found = [alert for moment in validated(points, count) for alert in monitor.see(moment)]
    assert [alert.rule for alert in found] == (["held_out"] if fires else [])


def test_an_alert_is_told_once_until_it_clears() -> None:
    def stale(step: int) -> float:
        return 16.0 if step <= 8 or step == 12 or step >= 20 else 0.0

    # The window of five still holds stale ones at step 12; by step 19 it has been empty for CLEAR_AFTER steps.
    found = alerts({**GOOD, "ledger/stale": stale}, staleness={"window": 1})
    assert [alert.step for alert in found] == [5, 12, 20]
    flicker = alerts({**GOOD, "ledger/stale": lambda step: 16.0 * (step % CLEAR_AFTER == 0)}, staleness={"window": 1})
    assert [alert.step for alert in flicker] == [6]


def test_a_monitor_that_is_shown_a_run_again_says_the_same() -> None:
    changes = {**BAD["faults"][0], **BAD["truncated"][0]}
    steps = moments({**GOOD, **changes})
    whole, first, second = Monitor("answer_correct"), Monitor("answer_correct"), Monitor("answer_correct")
    told = [alert for moment in steps for alert in whole.see(moment)]
    before = [alert for moment in steps[:11] for alert in first.see(moment)]
    for moment in steps[:11]:
        second.see(moment)
    assert before + [alert for moment in steps[11:] for alert in second.see(moment)] == told


NAMES = [*GOOD, "learner/reference_kl", "health/fault/grader:x", "health/age_max"]
number = st.one_of(
    st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 1), st.integers(-3, 70).map(float)
)
figures = st.dictionaries(st.sampled_from(NAMES), number, max_size=len(NAMES))


@given(
    steps=st.lists(st.tuples(figures, st.one_of(st.none(), figures)), max_size=40),
    held_out=st.sampled_from(["answer_correct", "other", None]),
)
@settings(max_examples=150, deadline=None)
def test_no_history_breaks_a_rule(steps: list[tuple[dict[str, Any], Any]], held_out: str | None) -> None:
    """Figures that are missing, not a number or impossible are left out, and never a reason to stop a run."""
    monitor = Monitor(held_out)
    told = []
    for step, (values, validation) in enumerate(steps):
        told += monitor.see(Moment(step, values, validation))
    assert {alert.rule for alert in told} <= RULES.keys()


def config(**health: Any) -> Any:
    return parse_config({"environment": {"entry": "x"}, "model": {"name": "tiny-random"}, "health": health})


@pytest.mark.parametrize(
    ("health", "said"),
    [
        ({"pause_on": ["turns"]}, "there is no health rule 'turns' (there are: reward_spread, held_out,"),
        ({"thresholds": {"all": {}}}, "there is no health rule 'all'"),
        ({"thresholds": {"faults": {"rate": 0.1}}}, "faults has no threshold 'rate' (it has: steps, window, share,"),
        ({"thresholds": {"faults": {"window": 2.5}}}, "faults.window is 2.5: give a whole number"),
        ({"thresholds": {"faults": {"window": 0}}}, "faults.window is 0.0: give a whole number"),
        ({"pauses": []}, "there are: enabled, held_out, pause_on, thresholds"),
    ],
)
def test_an_unknown_rule_or_threshold_is_refused_with_those_there_are(health: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**health)
    assert said in str(error.value)


def test_thresholds_can_be_changed() -> None:
    assert config(pause_on=["all"], thresholds={"faults": {"share": 0.2}}).health.thresholds["faults"]["share"] == 0.2
    changes = BAD["duplicate_calls"][0]
    assert alerts({**GOOD, **changes}, duplicate_calls={"share": 0.7}) == []


def test_every_threshold_is_explained() -> None:
    for rule in RULES.values():
        assert rule.looks_for
        assert rule.advice.endswith(".")
        assert {"steps", "window"} <= rule.thresholds.keys()
        assert all(threshold.meaning for threshold in rule.thresholds.values())
