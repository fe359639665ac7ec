"""Did it learn: reward by step, and the share of validation scenarios that were right, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etude.errors import ConfigError
from etude.evaluation.statistics import wilson_interval
from etude.plots.drawing import figure_of, save_figure
from etude.store.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTHED_STEPS = 5
INK, REWARD, VALIDATION = "#444444", "#3b6fb6", "#c8553d"


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """steps, reward, deviation: of each training step, the mean reward and the deviation between its rollouts.
    validated: (step, share right, how many scenarios) of each validation; empty where none says what is right."""

    steps: tuple[int, ...]
    reward: tuple[float, ...]
    deviation: tuple[float, ...]
    validated: tuple[tuple[int, float, int], ...]

    def smoothed(self) -> list[float]:
        """The mean reward of the last SMOOTHED_STEPS steps, at each step."""
        return [
            float(np.mean(self.reward[max(0, end - SMOOTHED_STEPS) : end])) for end in range(1, len(self.steps) + 1)
        ]


def read_curve(store: Store, run: str) -> LearningCurve:
    """The curve of a training run, as far as it has come. Raises ConfigError for a run without a step."""
    steps = [step for step in store.steps(run) if step.metrics.get("reward/mean") is not None]
    if not steps:
        raise ConfigError(f"run {run} has no training step with a reward, so there is no curve to draw")
    validated = []
    for event in store.events(run):
        figures = event.data.get("metrics", {}) if event.type == "validation" else {}
        if "metric/answer_correct" in figures:
            count = int(figures["rollouts/scored"])
            validated.append((event.step or 0, float(figures["metric/answer_correct"]), count))
    return LearningCurve(
        tuple(step.step for step in steps),
        tuple(float(step.metrics["reward/mean"] or 0.0) for step in steps),
        tuple(float(step.metrics.get("reward/std") or 0.0) for step in steps),
        tuple(validated),
    )


def save_curve(curve: LearningCurve, file: Path, title: str) -> None:
    """Draw it; the name's ending (.png, .svg) says as what. Raises ConfigError without matplotlib, StorageError."""
    save_figure(draw_curve(curve, title), file)


def draw_curve(curve: LearningCurve, title: str) -> Figure:
    """Reward above, validation below, over the same steps. Raises ConfigError without matplotlib."""
    figure = figure_of(7.0, 5.0)
    from matplotlib.ticker import MaxNLocator

    above, below = figure.subplots(2, 1, sharex=True) if curve.validated else (figure.subplots(), None)
    mean, spread = np.array(curve.reward), np.array(curve.deviation)
    above.fill_between(curve.steps, mean - spread, mean + spread, color=REWARD, alpha=0.12, lw=0, label="± deviation")
    above.plot(curve.steps, mean, ".", color=REWARD, alpha=0.6, label="step")
    above.plot(curve.steps, curve.smoothed(), color=REWARD, label=f"mean of {SMOOTHED_STEPS} steps")
    above.set_ylabel("reward of the rollouts\nit trains on (sampled)")
    above.legend(frameon=False, ncols=3, loc="upper left", fontsize="small")
    above.set_ylim(top=float((mean + spread).max()) * 1.15)
    if below is not None:
        steps = [step for step, _, _ in curve.validated]
        intervals = [wilson_interval(round(share * count), count) for _, share, count in curve.validated]
        shares = np.array([interval.estimate for interval in intervals])
        ends = np.array([[one.estimate - one.low, one.high - one.estimate] for one in intervals]).T
        below.errorbar(steps, 100 * shares, yerr=100 * ends, fmt="o-", color=VALIDATION, capsize=3)
        below.set_ylabel("validation: right, %\n(95 % interval)")
    (above if below is None else below).set_xlabel("training step")
    figure.axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(title, fontsize="medium", color=INK)
    return figure


def terminal_curve(values: Sequence[float], height: int = 8, width: int = 60) -> list[str]:
    """Lines of text, the top one first: a column for each value, filled in eighths of a line, with an axis on the left.

    values: finite, at least one; where there are more than `width`, neighbours are averaged.
    """
    if not values or not np.isfinite(values).all():
        raise ValueError("a curve needs at least one value, and all finite")
    columns = [float(part.mean()) for part in np.array_split(np.asarray(values, float), min(width, len(values)))]
    low, high = min(0.0, *columns), max(columns)
    scale = (high - low) or 1.0
    wide = max(1, width // len(columns))
    eighths = [round((value - low) / scale * height * 8) for value in columns]
    lines = []
    for row in range(height, 0, -1):
        cells = (min(8, max(0, count - (row - 1) * 8)) for count in eighths)
        label = {height: f"{high:6.2f}", 1: f"{low:6.2f}"}.get(row, "")
        lines.append(f"{label:>6} │" + "".join(" ▁▂▃▄▅▆▇█"[cell] * wide for cell in cells))
    return lines
