"""Rows into micro-batches, without padding: how they are cut is a matter of memory and never of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from etude.errors import TrainingError
from etude.learning.config import Oversize
from etude.learning.rows import TrainingRow

UNKNOWN_VERSION = -1


@dataclass(frozen=True, slots=True, eq=False)
class PackedBatch:
    """One micro-batch: its rows' tokens end to end, and everything else at the action tokens only, in order.

    lengths: the rows' lengths; they sum to `tokens`. targets: indexes into `tokens` of the action tokens.
    sources: indexes of the positions that predict them, always in the same row. weights: the loss's weight of each
    action token over the *global* batch. advantages: one for each action token. trajectory, row: which one an action
    token belongs to (`row` counts within the micro-batch). version: -1 where it is not known.
    """

    tokens: Int[Tensor, "tokens"]
    lengths: tuple[int, ...]
    targets: Int[Tensor, "actions"]
    sources: Int[Tensor, "actions"]
    logp_rollout: Float[Tensor, "actions"]
    advantages: Float[Tensor, "actions"]
    weights: Float[Tensor, "actions"]
    trajectory: Int[Tensor, "actions"]
    row: Int[Tensor, "actions"]
    version: Int[Tensor, "actions"]


def plan_micro_batches(
    rows: Sequence[TrainingRow], max_tokens: int, *, keep_trajectories: bool = False, oversize: Oversize = "own"
) -> list[list[int]]:
    """Indexes of rows for each micro-batch of at most `max_tokens` tokens, by first-fit decreasing.

    The same rows give the same plan. keep_trajectories: rows of one trajectory stay together, which a ratio over the
    whole trajectory needs. What is longer than `max_tokens` by itself gets a micro-batch of its own, or with
    oversize="refuse" raises TrainingError.
    """
    units: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        units.setdefault(row.trajectory if keep_trajectories else index, []).append(index)
    sized = [(sum(len(rows[index]) for index in unit), unit) for unit in units.values()]
    sized.sort(key=lambda item: -item[0])  # stable: equal sizes keep their order

    plan: list[list[int]] = []
    room: list[int] = []
    for size, unit in sized:
        if size > max_tokens and oversize == "refuse":
            what = "rows of trajectory" if len(unit) > 1 else "row of trajectory"
            raise TrainingError(
                f"{what} {rows[unit[0]].trajectory}: {size} tokens do not fit a micro-batch of {max_tokens}; "
                "raise learner.max_tokens_per_microbatch, lower the environment's max_tokens, or set learner.oversize "
                "to 'own'"
            )
        place = next((number for number, free in enumerate(room) if free >= size), None)
        if place is None:
            plan.append([])
            room.append(max_tokens)
            place = len(plan) - 1
        plan[place] += unit
        room[place] -= size
    return [sorted(indexes) for indexes in plan]


def pack(rows: Sequence[TrainingRow], weights: NDArray[np.float64], device: torch.device | str = "cpu") -> PackedBatch:
    """One micro-batch of `rows`. weights: shape [rows], what each action token of a row weighs in the loss."""
    if len(rows) != len(weights):
        raise ValueError(f"{len(rows)} rows but {len(weights)} weights")
    counts = np.asarray([row.num_actions for row in rows])
    starts = np.cumsum([0, *(len(row) for row in rows[:-1])])
    targets = np.concatenate([start + np.flatnonzero(row.action_mask) for start, row in zip(starts, rows, strict=True)])

    def integers(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(device)

    def floats(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(device)

    return PackedBatch(
        tokens=integers(np.concatenate([row.tokens for row in rows])),
        lengths=tuple(len(row) for row in rows),
        targets=integers(targets),
        sources=integers(targets - 1),
        logp_rollout=floats(np.concatenate([row.logp_rollout[row.action_mask] for row in rows])),
        advantages=floats(np.repeat([row.advantage for row in rows], counts)),
        weights=floats(np.repeat(weights, counts)),
        trajectory=integers(np.repeat([row.trajectory for row in rows], counts)),
        row=integers(np.repeat(np.arange(len(rows)), counts)),
        version=integers(np.concatenate([_versions(row) for row in rows])),
    )


def _versions(row: TrainingRow) -> np.ndarray:
    if row.version is None:
        return np.full(row.num_actions, UNKNOWN_VERSION)
    return row.version[row.action_mask]
