"""The learning curve, from a store to a picture and to lines of text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import ConfigError, StorageError
from etude.plots.learning_curve import LearningCurve, draw_curve, read_curve, save_curve, terminal_curve
from etude.store.store import Store

CURVE = LearningCurve((1, 2, 3, 4, 5, 6), (0.0, 0.5, 1.0, 0.5, 0.5, 2.0), (0.1,) * 6, ((0, 0.25, 40), (6, 0.5, 40)))


def test_it_is_read_from_the_store(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    run = store.create_run("train", name="", environment="e", model="m", config={})
    with pytest.raises(ConfigError, match="no training step"):
        read_curve(store, run)
    store.add_step(run, 1, {"reward/mean": 0.25, "reward/std": 0.5})
    store.add_step(run, 2, {"reward/mean": 0.75})
    figures = {"metric/answer_correct": 0.5, "rollouts/scored": 8}
    for step, kind in ((2, "validation"), (1, "message")):
        store.add_event(run, "x", level="info", type=kind, step=step, data={"metrics": figures})
    assert read_curve(store, run) == LearningCurve((1, 2), (0.25, 0.75), (0.5, 0.0), ((2, 0.5, 8),))


def test_smoothing_is_over_the_last_five_steps_there_are() -> None:
    assert CURVE.smoothed() == pytest.approx([0.0, 0.25, 0.5, 0.5, 0.5, 0.9])


def test_a_picture_has_labels_and_the_validations_intervals(tmp_path: Path) -> None:
    figure = draw_curve(CURVE, "A run")
    above, below = figure.axes
    assert "reward" in above.get_ylabel()
    assert below.get_xlabel() == "training step"
    ends = below.containers[0].lines[2][0].get_segments()  # the bars of the intervals
    assert all(
        low < share * 100 < high for (_, share, _), ((_, low), (_, high)) in zip(CURVE.validated, ends, strict=True)
    )
    save_curve(CURVE, tmp_path / "new" / "curve.png", "A run")
    assert (tmp_path / "new" / "curve.png").read_bytes().startswith(b"\x89PNG")
    without = draw_curve(LearningCurve((1,), (0.5,), (0.0,), ()), "A run")
    assert len(without.axes) == 1


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"curve\.png"):
        save_curve(CURVE, tmp_path / "file" / "curve.png", "A run")


def test_lines_of_text_rise_with_the_values() -> None:
    lines = terminal_curve([0.0, 0.5, 1.0], height=2, width=3)
    assert lines == ["  1.00 │  █", "  0.00 │ ██"]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=200), st.integers(1, 12), st.integers(1, 80))
def test_every_curve_fits_its_box(values: list[float], height: int, width: int) -> None:
    lines = terminal_curve(values, height, width)
    assert len(lines) == height
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= width + 8


def test_no_values_are_no_curve() -> None:
    for values in ([], [np.nan]):
        with pytest.raises(ValueError):
            terminal_curve(values)
