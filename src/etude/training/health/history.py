"""What rules look at: the figures of every step so far, and of the validations. Plain numbers, in order of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Moment:
    """A step and, where one was made after it, its validation. Step 0 has no figures: nothing was trained yet."""

    step: int
    figures: Figures = field(default_factory=dict)
    validation: Figures | None = None


@dataclass(slots=True)
class History:
    """held_out: the metric that says whether an attempt was right, None where there is none."""

    held_out: str | None = None
    moments: list[Moment] = field(default_factory=list)

    @property
    def truth(self) -> str | None:
        """The held-out metric's name among a step's figures."""
        return None if self.held_out is None else f"metric/{self.held_out}"

    def values(self, name: str | None) -> list[float]:
        """A figure over the steps that have it as a finite number."""
        if name is None:
            return []
        return _finite([moment.figures.get(name) for moment in self.moments])

    def totals(self, prefix: str, window: int) -> dict[str, float]:
        """Sums over the last `window` steps of the figures that begin so, without the prefix."""
        found: dict[str, float] = {}
        for moment in self.moments[-window:]:
            for name, value in moment.figures.items():
                if name.startswith(prefix) and value is not None:
                    found[name.removeprefix(prefix)] = found.get(name.removeprefix(prefix), 0.0) + value
        return found

    def validated(self, name: str) -> list[tuple[int, float]]:
        """(step, figure) of every validation that has it."""
        return [
            (moment.step, value)
            for moment in self.moments
            if moment.validation is not None and (value := moment.validation.get(name)) is not None
        ]


def early(values: Sequence[float], window: int) -> float:
    """The median of the first `window`: one odd step does not move it. Give at least one value."""
    return median(values[:window])


def late(values: Sequence[float], window: int) -> float:
    """The median of the last `window`."""
    return median(values[-window:])


def windows(values: Sequence[float], window: int) -> list[float]:
    """The median of every `window` values in a row, in order; none where there are fewer."""
    return [median(values[start : start + window]) for start in range(len(values) - window + 1)]


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
