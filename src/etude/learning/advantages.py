"""Advantages of the rollouts of one group: how much better each was than the others at the same scenario."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from etude.errors import ConfigError

AdvantageKind = Literal["mean", "grpo", "rloo"]

_STD_EPSILON = 1e-6


def group_advantages(rewards: Sequence[float], kind: AdvantageKind = "mean") -> NDArray[np.float64]:
    """The advantage of each rollout of a group, shape [rollouts], in the order of `rewards`.

    kind: "mean" R - mean(R) (Dr.GRPO, arXiv:2503.20783); "grpo" (R - mean(R)) / (std(R) + 1e-6) with the unbiased
    deviation (arXiv:2402.03300); "rloo" R - mean of the others' (arXiv:2402.14740).

    A group of one, or of equal rewards, teaches nothing: its advantages are exactly 0. Pass scored rollouts only;
    a faulted one has no reward and must not enter the mean, the deviation or a count.

    Raises TypeError for a reward that is not a number (None above all), ValueError for one that is not finite,
    ConfigError for an unknown kind.
    """
    if kind not in get_args(AdvantageKind):
        raise ConfigError(f"unknown advantage {kind!r}; choose one of {', '.join(get_args(AdvantageKind))}")
    values = _as_array(rewards)
    if not has_variance(values.tolist()):
        return np.zeros_like(values)
    centred = values - values.mean()
    if kind == "grpo":
        return centred / (values.std(ddof=1) + _STD_EPSILON)
    if kind == "rloo":
        return centred * (len(values) / (len(values) - 1))
    return centred


def has_variance(rewards: Sequence[float], tolerance: float = 0.0) -> bool:
    """Whether a group's rewards differ by more than `tolerance`, so that it can teach anything.

    Raises TypeError and ValueError as `group_advantages` does.
    """
    values = _as_array(rewards)
    return bool(len(values) > 1 and values.max() - values.min() > tolerance)


def _as_array(rewards: Sequence[float]) -> NDArray[np.float64]:
    for index, reward in enumerate(rewards):
        if isinstance(reward, bool | np.bool_) or not isinstance(reward, Real):
            raise TypeError(
                f"reward {index} is {reward!r}, not a number: only scored rollouts have an advantage; leave others out"
            )
        if not math.isfinite(reward):
            raise ValueError(f"reward {index} is {reward!r}: a reward must be finite")
    return np.asarray(rewards, dtype=np.float64)
