"""Shows a run while it goes on: a live line at a terminal, plain lines elsewhere (logs, pipes)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from etude.training.events import Event, Note, RolloutsDone, RunStarted, StepDone, Validated
from etude.training.ledger import FATES, PREFIX

STYLES = {"info": "dim", "warn": "yellow", "error": "red"}


def duration(seconds: float) -> str:
    """3725 -> "1h02m"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class Bars:
    """A bar for each part of some work; at a terminal only. keep: a part that is done stays until the end. Used as a
    context manager."""

    def __init__(self, console: Console, *, keep: bool = False) -> None:
        self._keep = keep
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, part: str, done: int, total: int) -> None:
        if part not in self._tasks:
            self._tasks[part] = self._progress.add_task(part, total=total)
        self._progress.update(self._tasks[part], completed=done, total=total)
        if done >= total and not self._keep:
            self._progress.remove_task(self._tasks.pop(part))


class Display:
    """An observer of a run (`etude.training.events.Observer`), used as a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = Bars(console)
        self._told: set[str] = set()
        self._first_step = 0
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        self._bars.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bars.__exit__(kind, error, tb)

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._first_step, self._started = event.first_step, time.monotonic()
                resumed = f", resumed at step {event.first_step}" if event.first_step else ""
                self.console.print(f"[bold]{event.kind}[/bold] {event.run_id}{resumed}")
            case RolloutsDone():
                self._bars(f"{event.phase} rollouts", event.done, event.total)
            case StepDone():
                self.console.print(self._step_line(event))
            case Validated():
                figures = "  ".join(_figures(event.metrics, self.console.width))
                self.console.print(f"  [bold]{event.split}[/bold] at step {event.step}: {figures}")
            case Note():
                self._tell(event)

    def _tell(self, note: Note) -> None:
        """Once each: a grader that breaks breaks a thousand times, and the step's line counts how often."""
        if note.message not in self._told:
            self._told.add(note.message)
            text = f"[{STYLES[note.level]}]{note.level}: {escape(note.message)}[/]"
            self.console.print(text, soft_wrap=True)  # paths and commands stay whole
        if note.type == "stopped":
            self.console.show_cursor()  # the process ends now, without what leaving the display would do

    def _step_line(self, event: StepDone) -> str:
        per_step = (time.monotonic() - self._started) / max(1, event.step - self._first_step)
        left = duration(per_step * (event.steps - event.step))
        parts = [f"step {event.step}/{event.steps}", *_figures(event.metrics, self.console.width)]
        return "  ".join([*parts, *_lost(event.metrics), f"[dim]{left} left[/dim]"])


# What says whether it learns: (metric, label, format). Where the line has room, also whether all is well inside.
_SHOWN = (
    ("metric/answer_correct", "right", ".1%"),
    ("metric/hallucinated", "wrong", ".1%"),
    ("turns", "turns", ".2f"),
)
_INSIDE = (
    ("tokens/completion", "tokens", ".0f"),
    ("trajectory/drift", "drift", ".2f"),
    ("learner/gap_mean", "engine gap", ".1e"),
    ("time/step_s", "s", ".1f"),
    ("memory/peak_gib", "GiB", ".2f"),
)
_WIDE = 130


def _figures(metrics: Mapping[str, float], width: int) -> list[str]:
    parts = []
    if "reward/mean" in metrics:
        parts.append(f"reward {metrics['reward/mean']:.2f} ± {metrics.get('reward/std', 0.0):.2f}")
    elif "learner/loss" in metrics:
        parts.append(f"loss {metrics['learner/loss']:.4f}")
    shown = (*_SHOWN, *_INSIDE) if width >= _WIDE else _SHOWN
    return parts + [f"{label} {metrics[key]:{form}}" for key, label, form in shown if key in metrics]


def _lost(metrics: Mapping[str, float]) -> list[str]:
    """How many of the rollouts moved the weights, and what became of the others; nothing where all did."""
    counts = {fate: int(metrics.get(f"{PREFIX}{fate}", 0)) for fate in FATES}
    trained, sampled = counts.pop("trained"), int(metrics.get(f"{PREFIX}sampled", 0))
    if trained == sampled:
        return []
    lost = ", ".join(f"{fate.replace('_', ' ')} {count}" for fate, count in counts.items() if count)
    return [f"[yellow]trained {trained} of {sampled} ({lost})[/yellow]"]
