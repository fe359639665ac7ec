"""Building the mail database: from files of mail to one finished SQLite file, or to nothing at all."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from etude.errors import ConfigError, StorageError
from etude.recipes.email_search.database import FINISH, SCHEMA, MailDatabase, schema_version
from etude.recipes.email_search.mail import Mail, Read, Skipped
from etude.recipes.email_search.sources import detect_form, read_mails

OnProgress = Callable[[int, float], None]

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Filters:
    """What is worth importing; the defaults are ART·E's. None lifts a limit.

    max_body: characters. max_recipients: different addresses over to, cc and bcc. drop_duplicates: of mails with the
    same subject, body and sender, only the first is kept.
    """

    max_body: int | None = 5000
    max_recipients: int | None = 30
    drop_duplicates: bool = True


@dataclass(frozen=True, slots=True)
class ImportReport:
    """mails: now in the database. dropped: how many were left out, by reason."""

    mails: int
    dropped: Mapping[str, int]
    seconds: float


def import_mail(
    files: Sequence[Path],
    database: Path,
    *,
    filters: Filters | None = None,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> ImportReport:
    """Build `database` from all files, in their order; it appears only when it is complete.

    on_progress(mails so far, share of the work from 0 to 1) is called every thousand mails. Raises ConfigError if the
    database exists and `force` does not replace it, DataError (file and line) for broken input, StorageError if it
    cannot be written; in each case what was there before stays as it was.
    """
    started = time.monotonic()
    for file in files:
        detect_form(file)
    if database.exists():
        _check_replaceable(database, files, force)
    unfinished = database.with_name(f".{database.name}.{os.getpid()}.unfinished")
    keep = _Keep(filters or Filters())
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
                _build(connection, files, keep, on_progress or (lambda mails, share: None))
            _sync(unfinished)
            unfinished.replace(database)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync(database.parent)
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"{database} was not built: {error}. What was there before is unchanged.") from error
    return ImportReport(keep.mails, dict(keep.dropped), time.monotonic() - started)


def _build(connection: sqlite3.Connection, files: Sequence[Path], keep: _Keep, on_progress: OnProgress) -> None:
    # A crash leaves only the unfinished file, so a journal would protect nothing.
    connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {SCHEMA}")
    connection.execute("BEGIN")
    for number, file in enumerate(files):
        mails = _kept(read_mails(file), keep, lambda share, done=number: (done + share) / len(files), on_progress)
        while batch := list(islice(mails, _BATCH)):
            _insert(connection, batch, first_id=keep.mails - len(batch) + 1)
        connection.execute("INSERT INTO sources VALUES (?, ?)", (str(file), _sha256(file)))
    connection.execute("COMMIT")
    connection.executescript(FINISH)
    on_progress(keep.mails, 1.0)


def _kept(
    reads: Iterator[Read], keep: _Keep, overall: Callable[[float], float], on_progress: OnProgress
) -> Iterator[Mail]:
    for number, read in enumerate(reads):
        if number % _BATCH == 0:
            on_progress(keep.mails, overall(read.share))
        if isinstance(read.mail, Skipped):
            keep.dropped[read.mail.reason] += 1
        elif keep(read.mail):
            yield read.mail


class _Keep:
    """Decides mail by mail what is kept, and counts the rest by reason."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters
        self._ids: set[str] = set()
        self._contents: set[bytes] = set()
        self.mails = 0
        self.dropped: Counter[str] = Counter()

    def __call__(self, mail: Mail) -> bool:
        reason = self._reason(mail)
        if reason:
            self.dropped[reason] += 1
        else:
            self.mails += 1
        return not reason

    def _reason(self, mail: Mail) -> str:
        filters = self._filters
        if mail.message_id in self._ids:
            return "message id seen before"
        if filters.max_body is not None and len(mail.body) > filters.max_body:
            return f"body over {filters.max_body} characters"
        if filters.max_recipients is not None and len({*mail.to, *mail.cc, *mail.bcc}) > filters.max_recipients:
            return f"more than {filters.max_recipients} recipients"
        content = hashlib.sha256("\0".join((mail.subject, mail.body, mail.sender)).encode("utf-8", "replace")).digest()
        if filters.drop_duplicates and content in self._contents:
            return "same subject, body and sender as a mail before"
        self._ids.add(mail.message_id)
        self._contents.add(content)
        return ""


def _insert(connection: sqlite3.Connection, mails: Sequence[Mail], first_id: int) -> None:
    """first_id: emails.id of the first of them; recipients hold the same id, or they would always be empty."""
    numbered = list(enumerate(mails, start=first_id))
    connection.executemany(
        "INSERT INTO emails (id, message_id, subject, from_address, date, body, file_name)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (email_id, mail.message_id, mail.subject, mail.sender, mail.date, mail.body, mail.file_name)
            for email_id, mail in numbered
        ),
    )
    connection.executemany(
        "INSERT INTO recipients (email_id, recipient_address, recipient_type) VALUES (?, ?, ?)",
        (
            (email_id, address, kind)
            for email_id, mail in numbered
            for kind, addresses in mail.recipients.items()
            for address in addresses
        ),
    )


def _check_replaceable(database: Path, files: Sequence[Path], force: bool) -> None:
    schema_version(database)  # not even --force replaces a file that is no mail database
    if force:
        return
    held = MailDatabase(database).stats(inboxes=0)
    same = {digest for _, digest in held.sources} & {_sha256(file) for file in files}
    what = "the same mail" if same else ", ".join(path for path, _ in held.sources)
    raise ConfigError(
        f"{database} exists already, with {held.mails} mails imported from {what}: "
        "add --force to replace it, or name another file with --db"
    )


def _sha256(path: Path) -> str:
    """Digest of a file's bytes; of a folder, the names of the files in it (a Maildir gives each mail its own name)."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    names = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
