"""Trajectories: the exact tokens of a rollout, and which of them the model sampled.

The next prompt is the held tokens plus the rendering of only the new messages; held tokens are never rendered
again. So a trajectory is one row, or more where a template broke its own prefix (each break is a counted fork).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Row:
    """One training sequence: parallel arrays of length n.

    tokens: int32. action_mask: bool, true exactly where the token was sampled *in this row's own turn*.
    logprobs: float32, natural log under the sampling temperature; NaN where the mask is false, so that a token
    that was not sampled can never be trained silently. version: int32 policy version that sampled the token, -1
    elsewhere. turn: int16, the assistant turn (from 0) that the token belongs to; prompt and tool tokens belong to
    the turn that they precede.
    """

    tokens: NDArray[np.int32]
    action_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    version: NDArray[np.int32]
    turn: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Rows in order. forks: how often the prefix broke. drift: tokens in which re-rendering the conversation with the
    model's own template differs from what was sampled and held (None: not measured)."""

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
        """The tokens of the current row, so far. The next prompt must start with them."""
        return self._tokens

    def extend_prompt(self, prompt: Sequence[int]) -> None:
        """Set the next whole prompt. Its new tokens are observations. Starts a new row where the prefix broke."""
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
        """Add one sampled turn (its stop token included, if it was sampled)."""
        if not len(tokens) == len(logprobs) == len(versions):
            raise ValueError(f"lengths differ: {len(tokens)} tokens, {len(logprobs)} logprobs, {len(versions)} versions")
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
