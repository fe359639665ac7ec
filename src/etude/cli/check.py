"""`etude check`: whether an environment can be trained on, before anything is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from etude.cli.train import ConfigPath, Overrides, read_config
from etude.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from etude.evaluation.checks.report import CheckReport, Finding

FAILED = 1  # exit code where something failed; errors have their own (`etude.errors`)
STYLES = {"fail": "bold red", "warn": "yellow"}


def register(app: typer.Typer) -> None:
    app.command("check")(check_command)


def check_command(
    config: ConfigPath = None,
    overrides: Overrides = None,
    scenarios: Annotated[int, typer.Option(help="How many scenarios are played, evenly spread.", min=1)] = 8,
    split: Annotated[str, typer.Option(help="Which scenarios.")] = "train",
    reference: Annotated[
        str | None, typer.Option(help="The scenario's field that holds the right answer, where its name does not say.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Also check this model's chat template (its tokenizer is loaded, no weights).")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK=REASON", help="Silence a check, and say why: attack.idk='abstaining is wanted'."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the whole report to this file.")] = None,
) -> None:
    """Find out what an environment rewards, before a model does.

    Plays right answers, and some hundred attempts that should earn little: empty, stuffed, injected, listed, repeated.
    Also: does the grader agree with itself, do tools answer within their budgets, does anything leak between splits or
    into the prompt. Exit code 0: nothing failed; 1: something did; others: it could not be checked.

    Examples:

      etude check email_search

      etude check config.yaml --reference city --scenarios 20 --json check.json

      etude check environment.py:environment --allow attack.idk="abstaining is wanted"
    """
    from etude.cli.display import Bars
    from etude.environment.environment import load_environment
    from etude.evaluation.checks.run import check_environment

    console = Console()
    allowed = _reasons(allow or [])
    entry, changes = str(config) if config is not None else "", list(overrides or [])
    if ":" in entry and "=" not in entry and not Path(entry).exists():  # the environment itself, without a file
        config, changes = None, [f"environment.entry={entry}", *changes]
    # The model that is trained is not looked at, so a configuration need not name one.
    resolved = read_config("eval", config, ["model.name=tiny-random", *changes] if config or changes else changes)
    environment = load_environment(resolved.environment.entry, resolved.environment.args)
    tokenizer = None
    if model is not None:
        from etude.evaluation.checks.template import load_tokenizer

        tokenizer = load_tokenizer(model)
    with Bars(console, keep=True) as progress:
        report = check_environment(
            environment,
            split=split,
            scenarios=scenarios,
            reference=reference,
            tokenizer=tokenizer,
            chat=resolved.model.chat,
            allow=allowed,
            progress=progress,
        )
    if json_file is not None:
        _write(json_file, report)
    show_report(console, report)
    if report.failures:
        raise typer.Exit(FAILED)


def _reasons(allow: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in allow:
        name, separator, reason = each.partition("=")
        if not separator or not name.strip() or not reason.strip():
            raise ConfigError(
                f"cannot read --allow {each!r}: write CHECK=REASON, e.g. attack.idk='abstaining is wanted'"
            )
        found[name.strip()] = reason.strip()
    return found


def _write(path: Path, report: CheckReport) -> None:
    text = json.dumps(report.to_json(), indent=2, ensure_ascii=False, default=str)
    try:
        path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def show_report(console: Console, report: CheckReport) -> None:
    console.print(
        f"[bold]{escape(report.environment)}[/bold]: {report.scenarios} scenarios of {report.split}, "
        f"{report.attempts} attempts graded"
    )
    gold, wrong = ("-" if each is None else f"{each:.3f}" for each in (report.gold_reward, report.wrong_reward))
    console.print(f"right answers: {escape(report.gold)}; they earn {gold}, wrong answers {wrong}")
    for finding in report.findings:
        _show(console, finding)
    if not report.findings:
        console.print(f"[green]nothing found[/green] ({', '.join(report.checks)})")
        return
    silenced = sum(bool(each.allowed) for each in report.findings)
    tail = f", {silenced} allowed" if silenced else ""
    console.print(f"\n{len(report.failures)} failed, {len(report.warnings)} warnings{tail}")


def _show(console: Console, finding: Finding) -> None:
    style = "dim" if finding.allowed else STYLES[finding.severity]
    word = "allowed" if finding.allowed else finding.severity
    share = f" ({finding.seen} of {finding.of} scenarios)" if finding.of else ""
    console.print(
        f"\n[{style}]{word}[/] [bold]{finding.check}[/bold]: {_plain(finding.message)}{share}", soft_wrap=True
    )
    if finding.allowed:
        console.print(f"  allowed: {_plain(finding.allowed)}", soft_wrap=True)
        return
    if finding.scenario:
        console.print(f"  scenario {_plain(finding.scenario)}", soft_wrap=True)
    for name, value in finding.evidence.items():
        if value not in (None, "", {}):
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            console.print(f"  [dim]{name}:[/dim] {_plain(text)}", soft_wrap=True, highlight=False)
    console.print(f"  [cyan]{_plain(finding.advice)}[/cyan]", soft_wrap=True)


def _plain(text: str) -> str:
    """Text of attempts, on one line and without what a terminal would obey."""
    return escape("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))
