"""`etude mail`: build the mail database, and look at the mail as the agent sees it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from etude.errors import ConfigError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""The mail that the e-mail search agent works on.

    [bold]Start here[/bold]

      etude mail import mail.jsonl.xz         build .etude/mail/enron.db

      etude mail stats                        whose inboxes are in it

      etude mail search --inbox ME flight     what the agent's search would find

      etude mail read --inbox ME MESSAGE_ID   what it would read""",
)

DEFAULT_DATABASE = Path(".etude/mail/enron.db")

Database = Annotated[Path, typer.Option("--db", help="The mail database.")]
Inbox = Annotated[str, typer.Option("--inbox", help="Address of the person whose mail it is.")]
AsOf = Annotated[
    datetime | None, typer.Option("--as-of", formats=["%Y-%m-%d"], help="Last visible day; by default, all are.")
]


@app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(help="JSON lines (.jsonl, .jsonl.xz), mbox files or Maildir folders.")],
    db: Database = DEFAULT_DATABASE,
    force: Annotated[bool, typer.Option("--force", help="Replace the database if it exists.")] = False,
    max_body: Annotated[int, typer.Option(help="Leave out longer mails, in characters; 0 keeps all.")] = 5000,
    max_recipients: Annotated[int, typer.Option(help="Leave out mails to more people; 0 keeps all.")] = 30,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep mails with the same subject, body and sender.")
    ] = False,
) -> None:
    """Build the searchable mail from one or more files. It appears when it is complete, or not at all.

    A line of JSON holds message_id, date (ISO 8601), subject, from, to, cc, bcc, body, file_name.

    Example:

      etude mail import mail.jsonl.xz --force
    """
    from etude.recipes.email_search.importing import Filters, import_mail

    console = Console()
    filters = Filters(max_body or None, max_recipients or None, drop_duplicates=not keep_duplicates)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("importing", total=1.0)

        def show(mails: int, share: float) -> None:
            progress.update(task, completed=share, description=f"{mails} mails" if share < 1.0 else "indexing")

        report = import_mail(files, db, filters=filters, force=force, on_progress=show)
    console.print(f"{report.mails} mails in {db}, {report.seconds:.1f} s")
    for reason, count in sorted(report.dropped.items()):
        console.print(f"  {count} left out: {reason}")


@app.command("search")
def search_command(
    keywords: Annotated[list[str], typer.Argument(help="All must occur in subject or body.")],
    inbox: Inbox,
    db: Database = DEFAULT_DATABASE,
    as_of: AsOf = None,
    from_addr: Annotated[str | None, typer.Option("--from", help="Only from this address.")] = None,
    to_addr: Annotated[str | None, typer.Option("--to", help="Only to this address.")] = None,
    after: Annotated[
        datetime | None, typer.Option("--after", formats=["%Y-%m-%d"], help="Sent on this day or later.")
    ] = None,
    before: Annotated[
        datetime | None, typer.Option("--before", formats=["%Y-%m-%d"], help="Sent before this day.")
    ] = None,
    limit: Annotated[int, typer.Option("--max", min=1, help="How many to show.")] = 10,
) -> None:
    """Search an inbox exactly as the agent's search_emails does: best match first.

    Example:

      etude mail search --inbox ann@example.com --as-of 2001-05-31 meeting friday
    """
    from etude.recipes.email_search.database import MailDatabase, match_expression

    if match_expression(keywords) is None:
        raise ConfigError("nothing to search for: give at least one word or number")
    hits = MailDatabase(db).search(
        keywords,
        inbox=inbox,
        visible_until=_day(as_of),
        from_addr=from_addr,
        to_addr=to_addr,
        sent_after=_day(after),
        sent_before=_day(before),
        limit=limit,
    )
    console = Console(soft_wrap=True)
    if not hits:
        console.print(f"nothing in the inbox of {inbox} holds all of: {' '.join(keywords)}", markup=False)
    for hit in hits:
        console.print(f"{hit.message_id}\n    {hit.snippet}", markup=False, highlight=False)


@app.command("read")
def read_command(
    message_id: Annotated[str, typer.Argument(help="As `etude mail search` shows it, in quotes.")],
    inbox: Inbox,
    db: Database = DEFAULT_DATABASE,
    as_of: AsOf = None,
) -> None:
    """Print one mail exactly as the agent reads it.

    Example:

      etude mail read --inbox ann@example.com "<1234.thyme@example>"
    """
    from etude.recipes.email_search.database import MailDatabase
    from etude.recipes.email_search.tools import as_text

    mail = MailDatabase(db).read(message_id, inbox=inbox, visible_until=_day(as_of))
    if mail is None:
        raise ConfigError(f"the inbox of {inbox} holds no mail {message_id} until {_day(as_of) or 'today'}")
    Console(soft_wrap=True).print(as_text(mail), markup=False, highlight=False)


@app.command("stats")
def stats_command(
    db: Database = DEFAULT_DATABASE,
    inboxes: Annotated[int, typer.Option(min=0, help="How many addresses to list.")] = 30,
) -> None:
    """How many mails there are, from when to when, from which files, and whose.

    Example:

      etude mail stats --inboxes 10
    """
    from etude.recipes.email_search.database import MailDatabase

    console = Console()
    stats = MailDatabase(db).stats(inboxes)
    console.print(f"{stats.mails} mails in {db}, {stats.first[:10]} to {stats.last[:10]}")
    for path, digest in stats.sources:
        console.print(f"  from {escape(path)} (SHA-256 {digest[:12]}…)")
    table = Table("address", "mails", box=None, pad_edge=False)
    for address, mails in stats.inboxes:
        table.add_row(escape(address), str(mails))
    console.print(table)


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.date().isoformat()
