"""The command line. Heavy imports (torch, transformers) happen inside commands, so that --help answers at once."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from etude.cli.baseline import register as register_baseline
from etude.cli.check import register as register_check
from etude.cli.demo import register as register_demo
from etude.cli.evaluate import register as register_evaluate
from etude.cli.health import register as register_health
from etude.cli.init import register as register_init
from etude.cli.inspect import register as register_inspect
from etude.cli.mail import app as mail_app
from etude.cli.train import register as register_train
from etude.errors import EtudeError, RunCancelled


class _Commands(TyperGroup):
    """Ctrl-C before there is a run, or in a command without one, ends as it does in a run: with exit code 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise RunCancelled("stopped") from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""Train a small open-weight model to use [bold]your[/bold] tools.

    Etude plays your agent many times, grades every attempt and moves the weights toward the attempts that went well.

    [bold]See it learn[/bold] (two CPU cores, ten minutes):  etude demo

    [bold]On real mail, in four commands[/bold]

      etude mail import mail.jsonl.xz            build the searchable mail
      etude eval  email_search              measure the model as it is
      etude train email_search --dry-run    what would run, how long, how much memory
      etude train email_search              train it; Ctrl-C stops, --resume goes on

    Every field of a configuration can be set on the command line: [cyan]training.steps=20 learning.lr=1e-4[/cyan]
    ([cyan]etude train --fields[/cyan] lists them all).""",
)
register_demo(app)
register_init(app)
register_baseline(app)
register_check(app)
register_train(app)
register_evaluate(app)
register_inspect(app)
register_health(app)
app.add_typer(mail_app, name="mail")


def main() -> None:
    """Entry point: errors that Etude raises on purpose become one message and their own exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # workers would only warn about forks
    try:
        app()
    except RunCancelled as error:
        Console(stderr=True).print(f"[yellow]{escape(str(error))}[/yellow]")
        sys.stdout.flush()
        os._exit(error.exit_code)  # a thread may be in the middle of a forward pass: do not wait for it
    except KeyboardInterrupt:  # before a command had begun
        sys.exit(RunCancelled.exit_code)
    except EtudeError as error:
        Console(stderr=True, soft_wrap=True).print(f"[red]error:[/red] {escape(str(error))}")
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `etude show ... | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
