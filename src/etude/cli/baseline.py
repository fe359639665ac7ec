"""`etude baseline`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from etude.cli.evaluate import figures_table
from etude.cli.train import (
    ConfigPath,
    DryRun,
    Fields,
    Overrides,
    Workspace,
    read_or_resumed,
    show_estimate,
    show_fields,
)

PLOT_FILE = "variance.png"


def register(app: typer.Typer) -> None:
    app.command("baseline")(baseline_command)


def baseline_command(
    config: ConfigPath = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    fields: Fields = False,
    resume: Annotated[
        str | None, typer.Option(help="Go on with a baseline that was stopped: its id, a unique beginning, or 'last'.")
    ] = None,
    workspace: Workspace = ".etude",
) -> None:
    """Know before you train: several attempts at each scenario, and what they say.

    Mean and best of k, how many scenarios teach nothing because all attempts end alike (now, and predicted for twice
    and four times as many), what broke, and what follows. Draws the variance plot. Any model, or an endpoint.

    Examples:

      etude baseline email_demo

      etude baseline email_search baseline.scenarios=50 baseline.attempts=4

      etude baseline --resume last
    """
    console = Console()
    if fields:
        show_fields(console)
        return
    from etude.cli.display import Display
    from etude.evaluation.baseline import baseline
    from etude.plots.variance_plot import save_variance

    resolved = read_or_resumed("baseline", config, overrides, resume, workspace)
    if dry_run:
        show_estimate(console, resolved, "baseline")
        return
    with Display(console) as display:
        result = baseline(resolved, observer=display, resume=resume)
    console.print(figures_table(result.figures, result.intervals))
    file = result.folder / PLOT_FILE
    save_variance(result.attempts, file, f"{result.run_id}: mean, deviation and best of each scenario")
    console.print("\n[bold]What follows[/bold]")
    for finding in result.findings:
        console.print(f"- {escape(finding.seen)}.\n  [bold]{escape(finding.advice)}[/bold]")
    console.print(f"\nvariance plot: {file}")
    console.print(f"done: {result.run_id}  (etude show {result.run_id} --rollouts)")
