"""`etude demo`: see on this machine, in ten minutes, a model get better at using tools."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Column, Table

if TYPE_CHECKING:
    from etude.evaluation.compare import Comparison
    from etude.recipes.email_demo.demo import Demo
    from etude.rollout.rollout import Rollout
    from etude.store.store import Store

PLOT_FILE = "demo.png"
# What the table shows: (figure, in words, share in % or plain, which way is better: 1 up, -1 down, 0 neither).
ROWS = (
    ("answer_correct", "right", "%", 1),
    ("answer_correct_seen", "  … questions worded as in training", "%", 1),
    ("answer_correct_unseen", "  … worded as never before", "%", 1),
    ("hallucination_rate", "wrong, among attempted answers", "%", -1),
    ("returned_i_dont_know", '"I don\'t know"', "%", 0),
    ("ever_found_right_email", "search showed the right mail", "%", 1),
    ("ever_read_right_email", "right mail was read", "%", 1),
    ("sources_precision", "sources named: precision", "%", 1),
    ("sources_recall", "sources named: recall", "%", 1),
    ("turns", "turns", "", 0),
    ("tokens", "tokens written", "", 0),
)


def register(app: typer.Typer) -> None:
    app.command("demo")(demo_command)


def demo_command(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Fields that differ from the demo's, e.g. seed=1."),
    ] = None,
) -> None:
    """See a model learn to use tools, here and now: two CPU cores, no GPU, about ten minutes.

    The bundled model (2.3 million weights) answers questions about the mail of a company that is made up: it searches,
    reads, answers. It is measured, trained on its own attempts by their reward alone, and measured again on the same
    questions, which nothing else touches. Stop it with Ctrl-C; the same command goes on.

    Leaves in .etude: demo.json (all figures), demo.png (the curve), and every rollout in the store.

    Examples:

      etude demo

      etude demo seed=1 workspace=.etude-1
    """
    from etude.cli.display import Display
    from etude.recipes.email_demo.demo import run_demo
    from etude.training.config import load_config

    console = Console()
    config = load_config("email_demo", overrides or [])
    with Display(console) as display:
        demo = run_demo(config, observer=display, say=lambda text: console.print(f"\n[bold]{escape(text)}[/bold]"))
    show_demo(console, demo)


def show_demo(console: Console, demo: Demo) -> None:
    from etude.cli.display import duration
    from etude.plots.learning_curve import read_curve, save_curve, terminal_curve
    from etude.store.store import Store

    workspace = Path(demo.config.workspace)
    with Store.open(workspace) as store:
        console.print("\n[bold]What it became[/bold]")
        console.print(comparison_table(demo.comparison))
        gained, lost = changed_scenarios(store, demo)
        console.print(f"\nIt gained {len(gained)} questions and lost {len(lost)}.")
        if gained:
            console.print(side_by_side(store, demo, gained[0]))
        curve = read_curve(store, demo.runs["train"])
        title = f"Laptop demo: {len(curve.steps)} steps on this CPU, seed {demo.config.seed}"
        if find_spec("matplotlib") is not None:
            save_curve(curve, workspace / PLOT_FILE, title)
        else:
            console.print(
                f"no {PLOT_FILE}: drawing needs matplotlib (pip install 'etude-rft\\[plots]')", style="yellow"
            )
    console.print("\nMean reward of the rollouts that it trained on, over five steps")
    console.print("\n".join(terminal_curve(curve.smoothed())), highlight=False)
    console.print(
        f"\n{demo.config.training.steps} steps, {demo.rollouts} rollouts, {duration(demo.wall_s)} of training and "
        f"measuring; kept: step {demo.best_step}, chosen on validation.\n"
    )
    _print_ways_on(console, demo, workspace)


def comparison_table(comparison: Comparison) -> Table:
    """Before, after, and the change with its 95 % interval; coloured where the interval leaves 0 out."""
    table = Table(
        f"{comparison.scenarios} questions",
        Column("before", justify="right"),
        Column("after", justify="right"),
        Column("change", justify="right"),
        Column("95 % interval", justify="right"),
        box=None,
        pad_edge=False,
    )
    for name, words, unit, better in ROWS:
        if name not in comparison.difference:
            continue
        change = comparison.difference[name]
        scale, digits = (100.0, 1) if unit else (1.0, 2)
        sure = better and not change.low <= 0 <= change.high
        style = ("green" if change.estimate * better > 0 else "red") if sure else ""
        values = [f"{scale * side[name]:.{digits}f} {unit}".strip() for side in (comparison.before, comparison.after)]
        ends = f"{scale * change.low:+.{digits}f} to {scale * change.high:+.{digits}f}"
        table.add_row(words, *values, f"{scale * change.estimate:+.{digits}f}", ends, style=style)
    return table


def changed_scenarios(store: Store, demo: Demo) -> tuple[list[str], list[str]]:
    """Ids of scenarios that were wrong before and right after, and of those the other way round. First those in which
    both sides searched and read, and of those the shortest: they are the ones to look at."""
    sides = [{row.scenario_id: row for row in store.rollouts(demo.runs[stage])} for stage in ("before", "after")]
    before, after = sides
    shared = sorted(
        (name for name in before if name in after),
        key=lambda name: (min(before[name].turns, after[name].turns) < 3, before[name].turns + after[name].turns, name),
    )
    right = [{name: rows[name].metrics.get("answer_correct") == 1.0 for name in shared} for rows in sides]
    gained = [name for name in shared if not right[0][name] and right[1][name]]
    return gained, [name for name in shared if right[0][name] and not right[1][name]]


def side_by_side(store: Store, demo: Demo, scenario: str) -> Table:
    """The same question, before and after."""
    saved = [next(store.iter_rollouts(demo.runs[stage], scenario=scenario)) for stage in ("before", "after")]
    question, answer = saved[0].scenario["question"], saved[0].scenario["answer"]
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.title = f"{escape(question)}\n[dim]right: {escape(answer or 'the mail does not say')}[/dim]"
    titled = zip(saved, ("before", "after"), strict=True)
    grid.add_row(*(Panel(attempt_text(one.rollout), title=title) for one, title in titled))
    return grid


def attempt_text(rollout: Rollout) -> str:
    """An attempt as a reader would tell it: each call, and what it gave."""
    lines = []
    for call in rollout.calls:
        arguments = ", ".join(
            " ".join(value) if isinstance(value, list) else str(value) for value in call.arguments.values()
        )
        lines.append(f"[bold cyan]{escape(call.name)}[/]  {escape(arguments)}")
        if call.output and (rollout.answer is None or call is not rollout.calls[-1]):  # the answer's echo says nothing
            lines.append(f"[dim]{escape(call.output)}[/dim]")
    verdict = "right" if rollout.metrics.get("answer_correct") == 1.0 else "not right"
    return "\n".join([*lines, f"[bold]{verdict}[/bold], {rollout.turns} turns"])


def _print_ways_on(console: Console, demo: Demo, workspace: Path) -> None:
    where = "" if str(workspace) == ".etude" else f" --workspace {workspace}"
    trained, after = demo.runs["train"], demo.runs["after"]
    console.print(
        f"[bold]{workspace / 'demo.json'}[/bold] has all figures, [bold]{workspace / PLOT_FILE}[/bold] the curve.\n"
        "To look further:"
    )
    for command, words in (
        (f"etude show {trained}{where}", "the training, step by step"),
        (f"etude show {after} --rollouts{where}", "its attempts after training"),
        (f"etude show {trained} --rollouts --step 1{where}", "what it tried in the first step"),
        ("etude demo seed=1", "the same with other chances"),
        ("etude init my_agent", "your own tools and grader, trained the same way"),
    ):
        console.print(f"  [cyan]{command}[/cyan]\n      {words}", soft_wrap=True)
