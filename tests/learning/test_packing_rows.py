"""Rows and micro-batches: what is refused, what packing keeps, and that its plan is one and the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import TrainingError
from etude.learning.packing import UNKNOWN_VERSION, pack, plan_micro_batches
from etude.learning.rows import TrainingRow


def row(length: int, trajectory: int = 0, *, actions: tuple[int, ...] = (), **fields: Any) -> TrainingRow:
    mask = np.zeros(length, dtype=bool)
    mask[list(actions) or [length - 1]] = True
    values: dict[str, Any] = {
        "tokens": np.arange(length, dtype=np.int32),
        "action_mask": mask,
        "logp_rollout": np.where(mask, -np.arange(length, dtype=np.float32), np.nan).astype(np.float32),
        "advantage": 1.0,
        "trajectory": trajectory,
    }
    return TrainingRow(**values | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"action_mask": np.array([True, False, True])}, "first token is marked as an action"),
        ({"action_mask": np.zeros(3, dtype=bool)}, "no action token"),
        ({"action_mask": np.array([0, 0, 1])}, "must be bool, not int64"),
        ({"tokens": np.zeros(4, dtype=np.int32)}, "equally long"),
        ({"tokens": np.zeros((3, 1), dtype=np.int32)}, "one-dimensional"),
        ({"version": np.zeros(2, dtype=np.int32)}, "equally long"),
        ({"advantage": float("nan")}, "advantage is nan"),
    ],
)
def test_rows_that_cannot_be_trained_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        row(3, trajectory=17, **fields)
    assert "trajectory 17" in str(caught.value)


sizes = st.lists(st.integers(2, 12), min_size=1, max_size=15)


@given(sizes, st.integers(8, 30), st.booleans())
def test_a_plan_holds_every_row_once_within_the_limit(lengths: list[int], limit: int, together: bool) -> None:
    rows = [row(length, trajectory=index // 3) for index, length in enumerate(lengths)]
    plan = plan_micro_batches(rows, limit, keep_trajectories=together)
    assert sorted(index for batch in plan for index in batch) == list(range(len(rows)))
    assert plan == plan_micro_batches(rows, limit, keep_trajectories=together)
    for batch in plan:
        units = {rows[index].trajectory if together else index for index in batch}
        assert sum(lengths[index] for index in batch) <= limit or len(units) == 1
        if together:
            assert all((other in batch) == (rows[other].trajectory in units) for other in range(len(rows)))


def test_first_fit_decreasing() -> None:
    rows = [row(length) for length in (3, 9, 4, 6, 8)]
    assert plan_micro_batches(rows, 12) == [[0, 1], [2, 4], [3]]


def test_a_row_over_the_limit_has_its_own_micro_batch_or_is_refused() -> None:
    rows = [row(4), row(40, trajectory=5), row(4)]
    assert plan_micro_batches(rows, 16) == [[1], [0, 2]]
    with pytest.raises(TrainingError, match=r"row of trajectory 5: 40 tokens do not fit a micro-batch of 16; raise"):
        plan_micro_batches(rows, 16, oversize="refuse")
    parts = [row(10, trajectory=8), row(10, trajectory=8)]
    with pytest.raises(TrainingError, match="rows of trajectory 8: 20 tokens"):
        plan_micro_batches(parts, 16, keep_trajectories=True, oversize="refuse")


def test_packing_by_hand() -> None:
    rows = [
        row(4, 7, actions=(1, 3), version=np.array([-1, 5, -1, 6], dtype=np.int32)),
        row(3, 9, actions=(2,), advantage=-0.5),
    ]
    packed = pack(rows, np.array([0.25, 0.5]))
    assert packed.tokens.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert packed.lengths == (4, 3)
    assert packed.targets.tolist() == [1, 3, 6]
    assert packed.sources.tolist() == [0, 2, 5]
    assert packed.logp_rollout.tolist() == [-1.0, -3.0, -2.0]
    assert packed.advantages.tolist() == [1.0, 1.0, -0.5]
    assert packed.weights.tolist() == [0.25, 0.25, 0.5]
    assert packed.trajectory.tolist() == [7, 7, 9]
    assert packed.row.tolist() == [0, 0, 1]
    assert packed.version.tolist() == [5, 6, UNKNOWN_VERSION]


@given(st.lists(st.tuples(st.integers(2, 12), st.integers(0, 2**16)), min_size=1, max_size=6))
def test_packing_gives_back_every_row(shapes: list[tuple[int, int]]) -> None:
    rows = []
    for index, (length, bits) in enumerate(shapes):
        actions = tuple(place for place in range(1, length) if bits >> place & 1)
        rows.append(row(length, trajectory=index, actions=actions, advantage=float(index)))
    packed = pack(rows, np.arange(len(rows), dtype=np.float64))
    for index, (part, member) in enumerate(zip(packed.tokens.split(packed.lengths), rows, strict=True)):
        np.testing.assert_array_equal(part.numpy(), member.tokens)
        mine = packed.row == index
        start = sum(packed.lengths[:index])
        np.testing.assert_array_equal(packed.targets[mine].numpy() - start, np.flatnonzero(member.action_mask))
        np.testing.assert_array_equal(packed.logp_rollout[mine].numpy(), member.logp_rollout[member.action_mask])
        assert (packed.sources[mine] >= start).all()
        assert set(packed.weights[mine].tolist()) == {float(index)} == set(packed.advantages[mine].tolist())


def test_weights_are_one_for_each_row() -> None:
    with pytest.raises(ValueError, match="1 rows but 2 weights"):
        pack([row(3)], np.ones(2))
