"""`etude eval` and `etude regrade`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from etude.cli.train import ConfigPath, DryRun, Fields, Overrides, read_config, show_estimate, show_fields
from etude.errors import TrainingError

if TYPE_CHECKING:
    from etude.evaluation.statistics import Interval


def register(app: typer.Typer) -> None:
    app.command("eval")(eval_command)
    app.command("regrade")(regrade_command)


def eval_command(
    config: ConfigPath = None, overrides: Overrides = None, dry_run: DryRun = False, fields: Fields = False
) -> None:
    """Measure a model (or a scripted policy) on scenarios: every score and metric with its 95 % interval.

    Attempts are greedy and one a scenario unless [cyan]eval.temperature[/cyan] and [cyan]eval.attempts[/cyan] say
    otherwise; with more attempts you also get pass@k. Rollouts are kept: [cyan]etude show RUN --rollouts[/cyan].

    Examples:

      etude eval email_search model.name=run:last

      etude eval email_search eval.policy=scripted eval.split=validation
    """
    console = Console()
    if fields:
        show_fields(console)
        return
    from etude.cli.display import Display
    from etude.evaluation.run_eval import evaluate

    resolved = read_config("eval", config, overrides)
    if dry_run:
        show_estimate(console, resolved, "eval")
        return
    with Display(console) as display:
        result = evaluate(resolved, observer=display)
    console.print(figures_table(result.figures, result.intervals))
    console.print(f"done: {result.run_id}  (etude show {result.run_id} --rollouts)")


def figures_table(figures: Mapping[str, float], intervals: Mapping[str, Interval]) -> Table:
    table = Table("figure", "value", "95 % interval", box=None, pad_edge=False)
    for name, value in figures.items():
        interval = intervals.get("reward" if name == "reward/mean" else name)
        table.add_row(name, f"{value:.4g}", f"{interval.low:.4g} to {interval.high:.4g}" if interval else "")
    return table


def regrade_command(
    run: Annotated[str, typer.Argument(help="Run whose rollouts are graded again: id, unique beginning, or 'last'.")],
    workspace: Annotated[str, typer.Option(help="Folder of the store.")] = ".etude",
) -> None:
    """Recompute rewards over saved rollouts with the environment's rubric as it is now: no model, no tools.

    Change your grader, regrade yesterday's run, and see what would have been rewarded. The old rewards are kept.

    Example:

      etude regrade last
    """
    from etude.cli.display import Display
    from etude.evaluation.regrade import regrade
    from etude.store.store import Store

    console = Console()
    with Display(console) as display:
        result = regrade(Store.open(Path(workspace)), run, observer=display)
    console.print(
        f"{result.graded} rollouts graded again, {result.changed} rewards changed, {result.faults} grader faults\n"
        f"mean reward {result.old_mean:.4f} -> {result.new_mean:.4f} over the {result.compared} that have both  "
        f"(recorded as {result.run_id})"
    )
    if result.faults:
        raise TrainingError(f"{result.faults} of {result.graded} rollouts could not be graded; their faults are above")
