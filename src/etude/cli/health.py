"""`etude health`: what the rules say of a run, while it goes on or afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from etude.errors import ConfigError

if TYPE_CHECKING:
    from etude.store.records import Run
    from etude.training.config import HealthConfig
    from etude.training.health.watch import Health

STYLES = {"info": "dim", "warn": "yellow", "error": "red"}


def register(app: typer.Typer) -> None:
    app.command("health")(health_command)


def health_command(
    run: Annotated[str, typer.Argument(help="Id of a train run, its unique beginning, or 'last'.")] = "last",
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RULE.THRESHOLD=VALUE]...",
            help="Thresholds that differ from those the run was watched with, or held_out=METRIC.",
        ),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and their thresholds, and stop.")] = False,
    workspace: Annotated[str, typer.Option(help="Folder of the store.")] = ".etude",
) -> None:
    """Look for what went wrong in a training: each alert with its evidence, and what to do.

    Figures come from the run's steps; those that it did not write down are computed from its saved rollouts. Alerts do
    not change the exit code: it is 0 where the run could be looked at.

    Examples:

      etude health last

      etude health last turns_rising.rise=1 held_out=sources_correct

      etude health --rules
    """
    from etude.store.store import Store
    from etude.training.health.watch import health_of

    console = Console()
    if rules:
        show_rules(console)
        return
    store = Store.open(Path(workspace))
    info = store.find_run(run, kinds=["train"] if run == "last" else None)
    if info.kind != "train":
        raise ConfigError(f"{info.id} is a run of kind {info.kind}; health is looked for in train runs")
    health = health_of(store, info.id, _changed(info, changes or []))
    _show(console, info, health)


def show_rules(console: Console) -> None:
    from etude.training.health.rules import RULES

    table = Table("rule", "looks for", "threshold", "default", "meaning", box=None, pad_edge=False)
    for rule in RULES.values():
        named = [rule.name, rule.looks_for]
        for name, threshold in rule.thresholds.items():
            table.add_row(*named, name, f"{threshold.default:g}", threshold.meaning)
            named = ["", ""]
    console.print(table)


def _changed(run: Run, changes: list[str]) -> HealthConfig | None:
    """The run's own settings with these changes; None where there are none. Raises ConfigError."""
    from etude.training.config import parse_config

    if not changes:
        return None
    config = parse_config(run.config)
    section = config.health.model_dump()
    for change in changes:
        key, separator, text = change.partition("=")
        rule, dot, name = key.partition(".")
        if separator and key == "held_out":
            section["held_out"] = text or None
        elif separator and dot and rule and name:
            section["thresholds"].setdefault(rule, {})[name] = _number(change, text)
        else:
            raise ConfigError(f"cannot read {change!r}: write RULE.THRESHOLD=VALUE or held_out=METRIC")
    return parse_config({**config.model_dump(), "health": section}).health


def _number(change: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"cannot read {change!r}: {text!r} is not a number") from None


def _show(console: Console, run: Run, health: Health) -> None:
    console.print(f"[bold]{run.id}[/bold]  {run.kind} of {run.environment} with {run.model}: {run.status}")
    if health.unseen:
        console.print(
            f"[yellow]{health.unseen} of {health.steps} steps have no figures of their rollouts, which were not kept: "
            "rules of outputs, calls, length and faults do not see them[/yellow]"
        )
    if not health.alerts:
        console.print(f"no alert in {health.steps} steps")
        return
    table = Table(Column("step", justify="right"), "rule", "what was seen", "evidence", "what to do", show_lines=True)
    for alert in health.alerts:
        name = f"[{STYLES[alert.level]}]{alert.rule}[/]"
        still = "\n(still so)" if alert is _last(health, alert.rule) and alert.rule in health.active else ""
        table.add_row(
            str(alert.step), name + still, escape(alert.message), escape(_figures(alert.evidence)), escape(alert.advice)
        )
    console.print(table)


def _last(health: Health, rule: str) -> object:
    return [alert for alert in health.alerts if alert.rule == rule][-1]


def _figures(evidence: Mapping[str, float]) -> str:
    return "\n".join(f"{name} {value:.3g}" for name, value in evidence.items())
