"""`etude show RUN --why`: what became of every rollout of a training, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

from etude.errors import ConfigError

if TYPE_CHECKING:
    from etude.store.records import Run
    from etude.store.store import Store
    from etude.training.ledger import Ledger


def print_why(console: Console, store: Store, run: Run, step: int | None) -> None:
    """One line a step, their sum, and what each column means. Raises ConfigError for a run that trains no rollouts."""
    from etude.training.config import parse_config
    from etude.training.ledger import FATES, ledgers_of

    if run.kind != "train":
        raise ConfigError(f"{run.id} is a run of kind {run.kind}; --why is for train runs, which learn from rollouts")
    ledgers = ledgers_of(store, run.id, parse_config(run.config).learning.advantage)
    if step is not None:
        ledgers = {number: ledger for number, ledger in ledgers.items() if number == step}
    met = [fate for fate in FATES if fate == "trained" or any(ledger.fates[fate] for ledger in ledgers.values())]
    columns = ["trained", *(fate for fate in met if fate != "trained")]
    titles = ["step", "sampled", *(name.replace("_", " ") for name in columns), "cut off", "waiting"]
    table = Table(*(Column(title, justify="right") for title in titles), "faults", box=None, pad_edge=False)
    for number, ledger in ledgers.items():
        waiting = "" if ledger.waiting is None else str(ledger.waiting)
        counts = [ledger.sampled, *(ledger.fates[name] for name in columns), ledger.truncated]
        table.add_row(str(number), *map(str, counts), waiting, _faults([ledger]))
    rows = list(ledgers.values())
    if len(rows) > 1:
        table.add_section()
        sums = [sum(row.sampled for row in rows), *(sum(row.fates[name] for row in rows) for name in columns)]
        table.add_row("all", *map(str, sums), str(sum(row.truncated for row in rows)), "", _faults(rows))
    console.print(f"[bold]{run.id}[/bold]  {run.kind} of {run.environment} with {run.model}: {run.status}")
    console.print(table)
    for name in columns:
        console.print(f"[dim]{name.replace('_', ' ')}: {FATES[name]}[/dim]")
    console.print(
        "[dim]cut off: of those with a reward, ended by a limit of tokens; they count as trained or not[/dim]"
    )
    console.print("[dim]waiting: finished, and decided on in a later step[/dim]")


def _faults(ledgers: Iterable[Ledger]) -> str:
    where: Counter[str] = Counter()
    for ledger in ledgers:
        where.update(ledger.faults)
    return ", ".join(f"{name} {count}" for name, count in where.most_common())
