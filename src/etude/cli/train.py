"""`etude train` and `etude sft`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from etude.errors import ConfigError

if TYPE_CHECKING:
    from etude.store.records import RunKind
    from etude.training.config import RunConfig

ConfigPath = Annotated[
    Path | None,
    typer.Argument(help="A YAML file, or a recipe's name (email_search). Leave it out to set all fields as KEY=VALUE."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Fields that differ from the file, e.g. training.steps=20."),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Check everything, print the resolved configuration and estimates, run nothing."),
]
Fields = Annotated[bool, typer.Option("--fields", help="List every field of the configuration and stop.")]
Resume = Annotated[
    str | None,
    typer.Option(help="Go on with an interrupted or cancelled run: its id, a unique beginning, or 'last'."),
]
Workspace = Annotated[str, typer.Option(help="With --resume: the folder of the store.")]


def register(app: typer.Typer) -> None:
    app.command("sft")(sft_command)
    app.command("train")(train_command)


def train_command(
    config: ConfigPath = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    fields: Fields = False,
    resume: Resume = None,
    workspace: Workspace = ".etude",
) -> None:
    """Train a model on its own attempts: play, grade, compare within groups, update.

    Progress is one line a step: mean reward ± deviation, turns, tokens, what was dropped and why. Every step writes a
    checkpoint; after Ctrl-C, a crash or a power cut, [cyan]--resume last[/cyan] goes on as if nothing had happened.

    Examples:

      etude train email_search --dry-run

      etude train email_search training.steps=20 learning.lr=1e-4 seed=1

      etude train --resume last
    """
    _command("train", config, overrides, dry_run, fields, resume, workspace)


def sft_command(
    config: ConfigPath = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    fields: Fields = False,
    resume: Resume = None,
    workspace: Workspace = ".etude",
) -> None:
    """Warm start: imitate traces (conversations with tool calls) before reinforcement.

    Use it where the model makes no valid tool call yet, so that all rewards are equal. Traces come from a JSONL, or
    from the rollouts of an earlier run that were rewarded well.

    Examples:

      etude sft email_search sft.traces=traces.jsonl sft.epochs=2

      etude eval email_search eval.policy=guided eval.split=train

      etude sft email_search sft.traces=run:last sft.min_reward=1
    """
    _command("sft", config, overrides, dry_run, fields, resume, workspace)


def _command(
    kind: RunKind,
    path: Path | None,
    overrides: list[str] | None,
    dry_run: bool,
    fields: bool,
    resume: str | None,
    workspace: str,
) -> None:
    console = Console()
    if fields:
        show_fields(console)
        return
    from etude.cli.display import Display
    from etude.training import run

    config = read_or_resumed(kind, path, overrides, resume, workspace)
    if dry_run:
        show_estimate(console, config, kind)
        return
    work = run.sft if kind == "sft" else run.train
    with Display(console) as display:
        result = work(config, observer=display, resume=resume)
    console.print(f"done: {result.run_id}  (etude show {result.run_id})")
    if result.model is not None:
        console.print(f"weights: {result.model}  (model.name=run:{result.run_id})")


def show_fields(console: Console) -> None:
    from etude.training.config import describe_fields

    table = Table("field", "default", "meaning", box=None, pad_edge=False)
    for name, default, description in describe_fields():
        table.add_row(f"[cyan]{name}[/cyan]", default, description)
    console.print(table)


def read_or_resumed(
    kind: RunKind, path: Path | None, overrides: list[str] | None, resume: str | None, workspace: str
) -> RunConfig:
    """As `read_config`; with --resume a stand-in that says only in which workspace the saved configuration is."""
    if resume is None:
        return read_config(kind, path, overrides)
    if path is not None or overrides:
        raise ConfigError("--resume goes on with the saved configuration: give no file and no KEY=VALUE with it")
    return read_config(kind, None, [f"workspace={workspace}", "environment.entry=resumed", "model.name=resumed"])


def read_config(kind: RunKind, path: Path | None, overrides: list[str] | None) -> RunConfig:
    """The configuration that a command line names. Raises ConfigError, also where it names none."""
    from etude.training.config import load_config

    changes = list(overrides or [])
    if path is not None and "=" in str(path):  # no file, only overrides
        path, changes = None, [str(path), *changes]
    if path is None and not changes:
        raise ConfigError(f"name a configuration file, e.g. `etude {kind} email_search` (see --help)")
    return load_config(path, changes)


def show_estimate(console: Console, config: RunConfig, kind: RunKind) -> None:
    """What `--dry-run` prints; the configuration first, then the estimates. Raises what would stop the run."""
    from etude.training.estimate import dry_run as estimate

    lines, text = estimate(config, kind), config.to_yaml()
    if console.is_terminal:
        console.print(Syntax(text, "yaml", background_color="default"))
    else:
        console.out(text, highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in lines:
        table.add_row(name, value)
    console.print(table)
