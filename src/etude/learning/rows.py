"""What the learner learns from: one packed training sequence, without its model or its conversation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRow:
    """Parallel arrays of length n, and what belongs to the row as a whole.

    tokens: int32. action_mask: bool, true where the token is trained; the first token cannot be, for nothing predicts
    it. logp_rollout: float32, the engine's natural log-probability of each action token under the sampling
    temperature; elsewhere it is never read (NaN by convention). Rows for supervised training have NaN everywhere.
    advantage: broadcast to the row's action tokens. trajectory: an id that the rows of one trajectory share.
    version: int32 policy version that sampled each action token; None says that all were sampled by the version that
    is being trained.

    Raises ValueError for arrays that do not fit together and for a row without actions.
    """

    tokens: NDArray[np.int32]
    action_mask: NDArray[np.bool_]
    logp_rollout: NDArray[np.float32]
    advantage: float
    trajectory: int
    version: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        arrays = {"tokens": self.tokens, "action_mask": self.action_mask, "logp_rollout": self.logp_rollout}
        if self.version is not None:
            arrays["version"] = self.version
        shapes = {name: array.shape for name, array in arrays.items()}
        where = f"row of trajectory {self.trajectory}"
        if any(shape != (len(self.tokens),) for shape in shapes.values()):
            raise ValueError(f"{where}: arrays must be one-dimensional and equally long, got {shapes}")
        if self.action_mask.dtype != np.bool_:
            raise ValueError(f"{where}: action_mask must be bool, not {self.action_mask.dtype}")
        if not self.action_mask.any():
            raise ValueError(f"{where} has no action token: there is nothing to train in it, leave it out")
        if self.action_mask[0]:
            raise ValueError(f"{where}: its first token is marked as an action, but no token predicts it")
        if not np.isfinite(self.advantage):
            raise ValueError(f"{where}: its advantage is {self.advantage}")

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def num_actions(self) -> int:
        return int(self.action_mask.sum())
