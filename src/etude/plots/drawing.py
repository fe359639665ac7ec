"""What all figures share: matplotlib, which is an extra, and how they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etude.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_of(width: float, height: float) -> Figure:
    """An empty figure, in inches. Raises ConfigError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("drawing needs matplotlib: pip install 'etude-rft[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, file: Path) -> None:
    """The name's ending (.png, .svg) says as what. Raises StorageError."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=144)
    except OSError as error:
        raise StorageError(f"cannot write {file}: {error.strerror or error}") from error
