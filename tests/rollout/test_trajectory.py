"""TrajectoryBuilder: parallel arrays, the prefix invariant, and each sampled token an action exactly once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rollout.trajectory import Row, Trajectory, TrajectoryBuilder

TOKENS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
# One turn: what the prompt adds, what is sampled, and where the template rewrites what was held (None: nowhere).
TURNS = st.lists(st.tuples(TOKENS, TOKENS, st.none() | st.integers(0, 10)), min_size=1, max_size=6)


def play(turns: list[tuple[list[int], list[int], int | None]]) -> tuple[Trajectory, int]:
    """The trajectory, with a logprob of -(1 + i) for the i-th sampled token of all, and the forks that must be."""
    builder, sampled, forks = TrajectoryBuilder(), 0, 0
    for number, (added, sample, rewritten_at) in enumerate(turns):
        held = builder.held
        prompt = held + added
        if rewritten_at is not None and held:
            prompt[rewritten_at % len(held)] = 99 + number
            forks += 1
        builder.extend_prompt(prompt)
        assert builder.held == prompt
        logprobs = [-(1.0 + sampled + i) for i in range(len(sample))]
        builder.append_sample(sample, logprobs, [number] * len(sample))
        assert builder.held == prompt + sample
        sampled += len(sample)
    return builder.build(), forks


@given(TURNS)
def test_each_sampled_token_is_an_action_exactly_once_even_over_forks(turns: list) -> None:
    trajectory, forks = play(turns)
    assert trajectory.forks == forks
    assert len(trajectory.rows) == forks + 1
    actions = [
        (float(row.logprobs[i]), int(row.tokens[i]), int(row.turn[i]), int(row.version[i]))
        for row in trajectory.rows
        for i in np.flatnonzero(row.action_mask)
    ]
    wanted = [(number, token) for number, (_, sample, _) in enumerate(turns) for token in sample]
    assert actions == [(-(1.0 + i), token, number, number) for i, (number, token) in enumerate(wanted)]
    assert trajectory.num_actions == len(wanted)


@given(TURNS)
def test_arrays_are_parallel_and_nothing_but_actions_has_a_logprob(turns: list) -> None:
    trajectory, _ = play(turns)
    for row in trajectory.rows:
        assert {len(array) for array in row.arrays().values()} == {len(row)}
        assert np.array_equal(np.isfinite(row.logprobs), row.action_mask)
        assert np.array_equal(row.version >= 0, row.action_mask)
        assert (np.diff(row.turn) >= 0).all()
        assert (row.tokens.dtype, row.action_mask.dtype, row.logprobs.dtype) == (np.int32, np.bool_, np.float32)
        assert (row.version.dtype, row.turn.dtype) == (np.int32, np.int16)
    assert trajectory.num_tokens == sum(len(row) for row in trajectory.rows)
    assert trajectory.oldest_version == 0


@given(TURNS)
def test_the_tokens_of_every_prompt_and_sample_are_in_one_row(turns: list) -> None:
    builder = TrajectoryBuilder()
    seen: list[list[int]] = []
    for number, (added, sample, rewritten_at) in enumerate(turns):
        prompt = builder.held + added
        if rewritten_at is not None:
            prompt[rewritten_at % len(prompt)] = 99 + number
        builder.extend_prompt(prompt)
        builder.append_sample(sample, [-1.0] * len(sample), [0] * len(sample))
        seen.append(prompt + sample)
    rows = [row.tokens.tolist() for row in builder.build().rows]
    assert all(any(row[: len(tokens)] == tokens for row in rows) for tokens in seen)


def test_golden_two_turns() -> None:
    builder = TrajectoryBuilder()
    builder.extend_prompt([1, 2])
    builder.append_sample([3, 4], [-0.5, -0.25], [7, 8])
    builder.extend_prompt([1, 2, 3, 4, 5])
    builder.append_sample([6], [-1.0], [9])
    (row,) = builder.build(drift=2).rows
    nan = float("nan")
    assert row == Row(
        tokens=np.array([1, 2, 3, 4, 5, 6]),
        action_mask=np.array([False, False, True, True, False, True]),
        logprobs=np.array([nan, nan, -0.5, -0.25, nan, -1.0]),
        version=np.array([-1, -1, 7, 8, -1, 9]),
        turn=np.array([0, 0, 0, 0, 1, 1]),
    )
    assert builder.build(drift=2).oldest_version == 7
    assert builder.build(drift=2).drift == 2


def test_a_shorter_prompt_is_a_broken_prefix() -> None:
    builder = TrajectoryBuilder()
    builder.extend_prompt([1, 2])
    builder.append_sample([3], [-1.0], [0])
    builder.extend_prompt([1, 2])
    trajectory = builder.build()
    assert trajectory.forks == 1
    assert Counter(len(row) for row in trajectory.rows) == {3: 1, 2: 1}


def test_a_prompt_from_which_nothing_was_sampled_is_replaced_without_a_fork() -> None:
    builder = TrajectoryBuilder()
    builder.extend_prompt([1, 2])
    builder.extend_prompt([5])
    builder.append_sample([3], [-1.0], [0])
    trajectory = builder.build()
    assert trajectory.forks == 0
    assert [row.tokens.tolist() for row in trajectory.rows] == [[5, 3]]


def test_what_is_held_cannot_be_changed_from_outside() -> None:
    builder = TrajectoryBuilder()
    builder.extend_prompt([1, 2])
    builder.held.append(3)
    assert builder.held == [1, 2]


def test_nothing_sampled_has_no_version() -> None:
    assert TrajectoryBuilder().build() == Trajectory(rows=())
    builder = TrajectoryBuilder()
    builder.extend_prompt([1])
    assert builder.build().oldest_version is None
    assert builder.build().num_actions == 0


@pytest.mark.parametrize(
    ("tokens", "logprobs", "versions", "message"),
    [
        ([1, 2], [-1.0], [0, 0], "lengths differ: 2 tokens, 1 logprobs, 2 versions"),
        ([1], [float("nan")], [0], "turn 0: sampled tokens need finite logprobs"),
        ([1], [float("-inf")], [0], r"found logprobs \[-inf\]"),
        ([1], [-1.0], [-1], r"versions \[-1\]"),
    ],
)
def test_samples_that_cannot_be_are_refused(
    tokens: list[int], logprobs: list[float], versions: list[int], message: str
) -> None:
    builder = TrajectoryBuilder()
    builder.extend_prompt([1])
    with pytest.raises(ValueError, match=message):
        builder.append_sample(tokens, logprobs, versions)
    assert builder.held == [1]


def test_order_of_prompt_and_sample_is_checked() -> None:
    with pytest.raises(ValueError, match="before any prompt"):
        TrajectoryBuilder().append_sample([1], [-1.0], [0])
    with pytest.raises(ValueError, match="at least one token"):
        TrajectoryBuilder().extend_prompt([])


def test_rows_compare_by_value_and_refuse_arrays_of_other_lengths() -> None:
    builder = TrajectoryBuilder()
    builder.extend_prompt([1, 2])
    builder.append_sample([3], [-1.0], [0])
    (row,) = builder.build().rows
    assert row == builder.build().rows[0]
    assert row != replace(row, tokens=row.tokens + 1)
    with pytest.raises(ValueError, match="of one length"):
        replace(row, turn=row.turn[:-1])
