"""`etude runs`, `etude show` and `etude models`: what there is, and what happened in it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Column, Table

from etude.errors import ConfigError

if TYPE_CHECKING:
    from etude.rollout.rollout import Rollout
    from etude.store.records import Run
    from etude.store.store import Store

Workspace = Annotated[str, typer.Option(help="Folder of the store.")]
STATUS_STYLE = {"succeeded": "green", "failed": "red", "cancelled": "yellow", "interrupted": "yellow"}
SHOWN_STEPS = 20
SHOWN_EVENTS = 10
TRACE_SHOWN = 14  # characters of a trace id: enough to name it with --rollout


def register(app: typer.Typer) -> None:
    app.command("runs")(runs_command)
    app.command("show")(show_command)
    app.command("models")(models_command)


def runs_command(workspace: Workspace = ".etude") -> None:
    """List the runs of this workspace, newest first.

    Example:

      etude runs --workspace .etude
    """
    from etude.store.store import Store

    table = Table(
        Column("run", no_wrap=True),
        "environment",
        "model",
        "status",
        "started",
        "steps",
        "name",
        box=None,
        pad_edge=False,
    )
    store = Store.open(Path(workspace))
    for run in store.runs():
        style = STATUS_STYLE.get(run.status, "cyan")
        started = datetime.fromtimestamp(run.created).strftime("%Y-%m-%d %H:%M")
        steps = str(len(store.steps(run.id)) or "")
        table.add_row(
            run.id, run.environment, run.model, f"[{style}]{run.status}[/{style}]", started, steps, escape(run.name)
        )
    Console().print(table)


def show_command(
    run: Annotated[str, typer.Argument(help="Id of a run, its unique beginning, or 'last'.")] = "last",
    rollouts: Annotated[bool, typer.Option("--rollouts", help="List its rollouts instead of its steps.")] = False,
    rollout: Annotated[
        str | None, typer.Option(help="Read one rollout whole: its trace id or its unique beginning.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="What became of the rollouts of each step: trained, or why not.")
    ] = False,
    step: Annotated[int | None, typer.Option(help="Only rollouts of this step.")] = None,
    limit: Annotated[int, typer.Option(help="How many rollouts to list.")] = 40,
    workspace: Workspace = ".etude",
) -> None:
    """Show what happened in a run: its steps, its rollouts, or one rollout word for word.

    Examples:

      etude show last

      etude show last --rollouts --step 12

      etude show last --rollout trace_3f

      etude show last --why
    """
    from etude.store.store import Store

    console = Console()
    store = Store.open(Path(workspace))
    info = store.find_run(run)
    if rollout is not None:
        _print_rollout(console, store.find_rollout(info.id, rollout).rollout)
    elif rollouts:
        _print_rollouts(console, store, info, step, limit)
    elif why:
        from etude.cli.why import print_why

        print_why(console, store, info, step)
    else:
        _print_run(console, store, info)


def _print_run(console: Console, store: Store, run: Run) -> None:
    console.print(f"[bold]{run.id}[/bold]  {run.kind} of {run.environment} with {run.model}: {run.status}")
    if run.error:
        console.print(f"[red]{escape(run.error)}[/red]")
    steps = store.steps(run.id)
    columns = ["reward/mean", "reward/std_in_group", "metric/answer_correct", "turns", "learner/loss", "time/step_s"]
    columns = [name for name in columns if any(name in step.metrics for step in steps)]
    table = Table("step", *columns, box=None, pad_edge=False)
    for each in steps[-SHOWN_STEPS:]:
        values = [f"{each.metrics[name]:.4g}" if name in each.metrics else "" for name in columns]
        table.add_row(str(each.step), *values)
    if len(steps) > SHOWN_STEPS:
        console.print(f"(the last {SHOWN_STEPS} of {len(steps)} steps)")
    console.print(table)
    for event in store.events(run.id)[-SHOWN_EVENTS:]:
        if event.type != "validation":
            console.print(f"[dim]{event.level}: {escape(event.message)}[/dim]")


def _print_rollouts(console: Console, store: Store, run: Run, step: int | None, limit: int) -> None:
    table = Table(
        Column("trace", no_wrap=True),
        "step",
        "phase",
        "scenario",
        "outcome",
        "stop",
        "reward",
        "turns",
        "tokens",
        box=None,
    )
    for row in store.rollouts(run.id, step=step, limit=limit):
        reward = "" if row.reward is None else f"{row.reward:.3f}"
        tokens = str(row.completion_tokens)
        table.add_row(
            row.trace_id[:TRACE_SHOWN], str(row.step), row.phase, row.scenario_id, row.outcome, row.stop, reward,
            str(row.turns), tokens,
        )  # fmt: skip
    console.print(table)


def _print_rollout(console: Console, rollout: Rollout) -> None:
    for message in rollout.messages:
        title = message.role if not message.name else f"{message.role}: {message.name}"
        console.print(Panel(escape(message.content), title=title, title_align="left"))
    reward = "no reward" if rollout.reward is None else f"reward {rollout.reward:.3f}"
    console.print(f"[bold]{rollout.outcome}[/bold] ({rollout.stop}), {reward}, {rollout.turns} turns")
    if rollout.fault is not None:
        console.print(f"[red]{escape(f'{rollout.fault.where} {rollout.fault.kind}: {rollout.fault.message}')}[/red]")
    for name, value in {**rollout.scores, **rollout.metrics}.items():
        console.print(f"  {name} {value:.4g}")


def models_command(workspace: Workspace = ".etude") -> None:
    """List models that work here without a download: installed, cached, and made by your own runs.

    Each name can be given as [cyan]model.name[/cyan].

    Example:

      etude models
    """
    from etude.model.load import installed_models
    from etude.store.store import Store
    from etude.training.checkpoints import Checkpoints
    from etude.training.runtime import run_folder

    table = Table("model.name", "what it is", box=None, pad_edge=False)
    table.add_row("etude-demo", "comes with Etude; plays the recipe email_demo")
    table.add_row("tiny-random", "a toy with random weights, for trying things")
    for model in installed_models():
        table.add_row(escape(model.name), f"{model.kind}, {model.size / 2**20:.0f} MB")
    if Path(workspace).is_dir():
        store = Store.open(Path(workspace))
        for run in store.runs():
            try:
                best = Checkpoints(run_folder(store, run.id) / "checkpoints").chosen()
            except ConfigError:
                continue
            if best is not None:
                table.add_row(f"run:{run.id}", f"step {best.step} of {run.environment}")
    Console().print(table)
