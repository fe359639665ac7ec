"""Trajectories: the exact tokens of a rollout, and which of them the model sampled.

The next prompt is the held tokens plus the rendering of only the new messages; held tokens are never rendered
again. So a trajectory is one row, or more where a template broke its own prefix (each break is a counted fork).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One training sequence: parallel arrays of length n.

    tokens: int32. action_mask: bool, true exactly where the token was sampled *in this row's own turn*.
    logprobs: float32, natural log under the sampling temperature; NaN where the mask is false, so that a token
    that was not sampled can never be trained silently. version: int32 policy version that sampled the token, -1
    elsewhere. turn: int16, the assistant turn (from 0) that the token belongs to; prompt and tool tokens belong to
    the turn that they precede. Rows are equal where all arrays are (NaN equals NaN). Raises ValueError for arrays of
    different lengths.
    """

    tokens: NDArray[np.int32]
    action_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    version: NDArray[np.int32]
    turn: NDArray[np.int16]

    def __post_init__(self) -> None:
        lengths = {name: array.shape for name, array in self.arrays().items()}
        if set(lengths.values()) != {(len(self.tokens),)}:
            raise ValueError(f"the arrays of a row must be one-dimensional and of one length, not {lengths}")

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return all(np.array_equal(mine[name], theirs[name], equal_nan=name == "logprobs") for name in mine)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The parallel arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Rows in order. forks: how often the prefix broke. drift: tokens in which re-rendering the conversation differs
    from what was sampled and held, as `etude.rollout.drift` defines it (None: not measured)."""

    rows: tuple[Row, ...]
    forks: int = 0
    drift: int | None = None

    @property
    def num_tokens(self) -> int:
        return sum(len(row) for row in self.rows)

    @property
    def num_actions(self) -> int:
        return int(sum(int(row.action_mask.sum()) for row in self.rows))

    @property
    def oldest_version(self) -> int | None:
        """The lowest policy version among sampled tokens; None where nothing was sampled."""
        versions = [int(row.version[row.action_mask].min()) for row in self.rows if row.action_mask.any()]
        return min(versions) if versions else None


class TrajectoryBuilder:
    """Grows a trajectory turn by turn and checks the prefix invariant at run time."""

    def __init__(self) -> None:
        self._done: list[Row] = []
        self._tokens: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self._version: list[int] = []
        self._turn: list[int] = []
        self._next_turn = 0

    @property
    def held(self) -> list[int]:
        """A copy of the tokens of the current row, so far. The next prompt must start with them."""
        return list(self._tokens)

    def extend_prompt(self, prompt: Sequence[int]) -> None:
        """Set the next whole prompt. Its new tokens are observations.

        Where it does not start with what is held, a new row starts: a fork, in which nothing of earlier turns is an
        action again. A row in which nothing was sampled is replaced instead. Raises ValueError for an empty prompt.
        """
        if not prompt:
            raise ValueError("a prompt must hold at least one token")
        held = len(self._tokens)
        if list(prompt[:held]) != self._tokens:
            self._close_row()
            held = 0
        new = [int(token) for token in prompt[held:]]
        self._tokens += new
        self._mask += [False] * len(new)
        self._logprobs += [float("nan")] * len(new)
        self._version += [-1] * len(new)
        self._turn += [self._next_turn] * len(new)

    def append_sample(self, tokens: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]) -> None:
        """Add one sampled turn (its stop token included, if it was sampled). Raises ValueError for lengths that
        differ, for a logprob that is not finite (an engine that went wrong), and before the first prompt."""
        if not len(tokens) == len(logprobs) == len(versions):
            raise ValueError(
                f"lengths differ: {len(tokens)} tokens, {len(logprobs)} logprobs, {len(versions)} versions"
            )
        if not self._tokens:
            raise ValueError("a turn was sampled before any prompt was set")
        wrong = [value for value in logprobs if not math.isfinite(value)]
        if wrong or any(version < 0 for version in versions):
            raise ValueError(
                f"turn {self._next_turn}: sampled tokens need finite logprobs and versions from 0; found "
                f"logprobs {wrong[:3]}, versions {sorted(set(versions))}"
            )
        self._tokens += [int(token) for token in tokens]
        self._mask += [True] * len(tokens)
        self._logprobs += [float(value) for value in logprobs]
        self._version += [int(version) for version in versions]
        self._turn += [self._next_turn] * len(tokens)
        self._next_turn += 1

    def build(self, drift: int | None = None) -> Trajectory:
        rows = [*self._done, *([self._row()] if self._tokens else [])]
        return Trajectory(rows=tuple(rows), forks=len(self._done), drift=drift)

    def _close_row(self) -> None:
        if any(self._mask):
            self._done.append(self._row())
        self._tokens, self._mask, self._logprobs, self._version, self._turn = [], [], [], [], []

    def _row(self) -> Row:
        return Row(
            tokens=np.asarray(self._tokens, dtype=np.int32),
            action_mask=np.asarray(self._mask, dtype=np.bool_),
            logprobs=np.asarray(self._logprobs, dtype=np.float32),
            version=np.asarray(self._version, dtype=np.int32),
            turn=np.asarray(self._turn, dtype=np.int16),
        )
