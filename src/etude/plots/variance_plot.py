"""The variance plot: which scenarios have something to teach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etude.evaluation.baseline_figures import Attempts
from etude.evaluation.variance import has_variance
from etude.plots.drawing import figure_of, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIES, ALIKE, BEST = "#3b6fb6", "#b9c4d0", "#c8553d"


def draw_variance(attempts: Sequence[Attempts], title: str) -> Figure:
    """x: scenarios, sorted by mean reward; bar: mean; whisker: ± the deviation between attempts; cross: the best one.
    Scenarios whose attempts all end alike are grey. Raises ConfigError without matplotlib."""
    graded = sorted((each for each in attempts if each.rewards), key=lambda each: (each.mean, each.best, each.scenario))
    places = np.arange(len(graded))
    means = np.array([each.mean for each in graded])
    colours = [VARIES if has_variance(each.rewards) else ALIKE for each in graded]
    figure = figure_of(8.0, 4.0)
    axes = figure.subplots()
    axes.bar(places, means, width=0.9, color=colours)
    axes.errorbar(places, means, yerr=[each.deviation for each in graded], fmt="none", ecolor="#444444", elinewidth=0.8)
    axes.plot(places, [each.best for each in graded], "x", color=BEST, markersize=4)
    most = max((len(each.rewards) for each in graded), default=0)
    axes.set_xlabel(f"{len(graded)} scenarios, by mean reward of up to {most} attempts")
    axes.set_ylabel("reward")
    handles = [
        axes.bar([0], [0], color=VARIES, label="mean, attempts differ"),
        axes.bar([0], [0], color=ALIKE, label="mean, attempts all alike"),
        *axes.plot([], [], "x", color=BEST, label="best attempt"),
        axes.errorbar([], [], yerr=[], fmt="none", ecolor="#444444", label="± deviation"),
    ]
    axes.legend(handles=handles, frameon=False, ncols=4, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1))
    figure.suptitle(title, fontsize="medium")
    return figure


def save_variance(attempts: Sequence[Attempts], file: Path, title: str) -> None:
    """Draw it; the name's ending (.png, .svg) says as what. Raises ConfigError without matplotlib, StorageError."""
    save_figure(draw_variance(attempts, title), file)
