"""What a step's rollouts say, by hand: outputs, calls, ends, ages, and what the differences in reward go with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rollouts import group, rollout, row

from etude.environment.calls import Fault
from etude.rollout.group import Group
from etude.rollout.outcome import Stop
from etude.rollout.rollout import CallRecord, Rollout
from etude.rollout.trajectory import Row, Trajectory
from etude.training.health.figures import step_figures


def sampled(*tokens: int, version: int = 0) -> Row:
    """A prompt of one token, then what was sampled."""
    count = len(tokens)
    return Row(
        tokens=np.array([99, *tokens], np.int32),
        action_mask=np.array([False] + [True] * count),
        logprobs=np.array([np.nan] + [-1.0] * count, np.float32),
        version=np.array([-1] + [version] * count, np.int32),
        turn=np.zeros(count + 1, np.int16),
    )


def attempt(reward: float | None = 0.0, *rows: Row, **fields: Any) -> Rollout:
    made = rows or (row(2, 2),)
    fields.setdefault("completion_tokens", Trajectory(made).num_actions)
    fields.setdefault("turns", 1)
    return rollout(reward, *made, **fields)


def figures(*groups: Group, version: int = 0, held_out: str | None = "right", dropped: Any = ()) -> dict[str, float]:
    found = step_figures(groups, dropped, version, held_out)
    assert all(name.startswith("health/") for name in found)
    return {name.removeprefix("health/"): value for name, value in found.items()}


def test_outputs_of_different_scenarios_are_compared() -> None:
    one, other = sampled(1, 2, 3), sampled(1, 2, 4)  # trigrams with edges: .12 123 23. and .12 124 24.
    found = figures(group(attempt(0.0, one)), group(attempt(1.0, other), number=1))
    assert found["distinct"] == pytest.approx(5 / 6)
    assert found["sameness"] == pytest.approx(1 / 5)
    same = figures(group(attempt(0.0, one), attempt(0.0, other)), group(attempt(1.0, one), attempt(0.0, other)))
    assert same["sameness"] == 1.0
    assert "sameness" not in figures(group(attempt(0.0, one), attempt(0.0, one)))


def test_an_output_of_one_token_has_a_trigram_too() -> None:
    assert figures(group(attempt(0.0, sampled(1))), group(attempt(0.0, sampled(2))))["sameness"] == 0.0


def call(name: str, **arguments: Any) -> CallRecord:
    return CallRecord(0, "c", name, arguments, "", "ok")


def test_calls_that_repeat_an_earlier_one_of_their_attempt() -> None:
    first = attempt(0.0, calls=(call("search", a=1, b=2), call("search", b=2, a=1), call("read", a=1)))
    second = attempt(0.0, calls=(call("search", a=1, b=2),))  # another attempt: no repetition
    found = figures(group(first, second))
    assert (found["duplicate_calls"], found["top_tool"], found["tools"]) == (1 / 4, 3 / 4, 2)
    assert "top_tool" not in figures(group(attempt(0.0)))


def test_how_attempts_end() -> None:
    found = figures(
        group(
            attempt(0.0, stop=Stop.OUT_OF_TURNS, turns=6, parse_failures={"no_call": 2}),
            attempt(0.0, stop=Stop.OUT_OF_CALLS),
            attempt(0.0, stop=Stop.TRUNCATED, turns=2),
            attempt(1.0),
        )
    )
    assert (found["at_cap"], found["truncated"], found["parse_failures"]) == (0.5, 0.25, 0.2)
    assert (found["reward_min"], found["reward_max"]) == (0.0, 1.0)


def test_ages_are_versions_behind_the_weights_that_learn() -> None:
    found = figures(group(attempt(0.0, sampled(1, 2, version=3), sampled(3, version=5))), version=5)
    assert (found["age_mean"], found["age_max"]) == (pytest.approx(4 / 3), 2)


def test_faults_count_by_place_those_of_dropped_groups_too() -> None:
    broken = attempt(None, fault=Fault("grader:x", "exception", "no"))
    kept = group(attempt(0.0), attempt(1.0))
    kept.faulted.append(attempt(None))
    found = figures(kept, dropped=[group(broken, attempt(None))])
    assert {name: value for name, value in found.items() if name.startswith("fault/")} == {
        "fault/grader:x": 1, "fault/tool:search": 2
    }  # fmt: skip
    assert found["tries"] == 5


def test_a_step_without_scored_rollouts_has_only_its_faults() -> None:
    assert figures(group(attempt(None)), dropped=[]) == {"tries": 1, "fault/tool:search": 1}


def graded(reward: float, tokens: int, right: float, **scores: float) -> Rollout:
    return attempt(reward, completion_tokens=tokens, metrics={"right": right}, scores=scores)


def test_length_counts_among_attempts_that_are_equally_right() -> None:
    """Right attempts are longer here and paid for being right: length explains nothing of it."""
    fair = group(*(graded(right, 10 + 10 * right, right) for right in (0, 0, 0, 0, 1, 1, 1, 1)))
    assert figures(fair)["length_share"] == 0.0
    assert figures(fair)["length_correlation"] == pytest.approx(1.0)
    assert figures(fair, held_out=None)["length_share"] == pytest.approx(1.0)
    paid = group(*(graded(tokens / 10, tokens, 0.0) for tokens in range(10, 18)))
    assert figures(paid)["length_share"] == pytest.approx(1.0)
    short = group(*(graded(-tokens, tokens, 0.0) for tokens in range(10, 18)))
    assert figures(short)["length_share"] == pytest.approx(-1.0)


def test_few_or_equal_rewards_say_nothing() -> None:
    few = group(*(graded(tokens, tokens, 0.0, a=tokens, b=0.0) for tokens in range(7)))
    equal = group(*(graded(0.5, tokens, 0.0, a=tokens, b=0.0) for tokens in range(8)))
    for found in (figures(few), figures(equal)):
        assert not [name for name in found if name.startswith(("length", "share/"))]


@given(
    weights=st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)),
    scores=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=8, max_size=16),
)
def test_shares_of_a_weighted_sum_add_up_to_one(weights: tuple[float, float], scores: list[tuple[int, int]]) -> None:
    made = group(*(graded(weights[0] * a + weights[1] * b, 5, float(a > 2), a=a, b=b) for a, b in scores))
    found = figures(made)
    if np.var(made.rewards) < 1e-9:
        assert "share/a" not in found
        return
    assert found["share/a"] + found["share/b"] == pytest.approx(1.0, abs=1e-6)
    assert abs(found["held_out/a"]) <= 1 + 1e-9


def test_shares_are_those_of_variances_where_scores_are_independent() -> None:
    made = group(*(graded(a + 0.5 * b, 5, a, a=a, b=b) for a in (0.0, 1.0) for b in (0.0, 1.0) for _ in range(2)))
    found = figures(made)
    assert (found["share/a"], found["share/b"]) == (pytest.approx(0.8), pytest.approx(0.2))
    assert (found["held_out/a"], found["held_out/b"]) == (pytest.approx(1.0), pytest.approx(0.0))
    lone = group(*(graded(a, 5, a, a=a) for a in (0.0, 1.0) for _ in range(4)))
    assert "share/a" not in figures(lone)
