"""The mail database: SQLite with FTS5, and the two questions that the agent may ask of it.

Every question names an inbox and the last visible day: mail of another inbox or of a later day does not exist.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from etude.errors import ConfigError, StorageError
from etude.recipes.email_search.mail import Mail

APPLICATION_ID = 0x6D61696C  # "mail": tells a database of ours from any other SQLite file
SCHEMA_VERSION = 1
SNIPPET_WORDS = 15

# The full-text index keeps no copy of the text (content='emails'). It is filled by one 'rebuild' after the last mail
# is in, and a finished database is only ever replaced as a whole, so there are no triggers that could leave stale rows.
SCHEMA = f"""
CREATE TABLE emails (
    id INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    subject TEXT NOT NULL,
    from_address TEXT NOT NULL,
    date TEXT NOT NULL,
    body TEXT NOT NULL,
    file_name TEXT NOT NULL
);
CREATE TABLE recipients (
    email_id INTEGER NOT NULL REFERENCES emails (id),
    recipient_address TEXT NOT NULL,
    recipient_type TEXT NOT NULL CHECK (recipient_type IN ('to', 'cc', 'bcc'))
);
CREATE TABLE sources (path TEXT NOT NULL, sha256 TEXT NOT NULL);
CREATE VIRTUAL TABLE emails_fts USING fts5 (
    subject, body, content = 'emails', content_rowid = 'id', tokenize = 'porter unicode61'
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

# After the last mail: an index that grows with the table costs more than one built at the end.
FINISH = """
CREATE INDEX emails_by_sender ON emails (from_address, id);
CREATE INDEX recipients_by_email ON recipients (email_id);
CREATE INDEX recipients_by_address ON recipients (recipient_address, email_id);
INSERT INTO emails_fts (emails_fts) VALUES ('rebuild');
INSERT INTO emails_fts (emails_fts) VALUES ('optimize');
ANALYZE;
"""

_VISIBLE = """
    (e.from_address = :inbox OR EXISTS (
        SELECT 1 FROM recipients r WHERE r.email_id = e.id AND r.recipient_address = :inbox))
    AND (:visible_until IS NULL OR substr(e.date, 1, 10) <= :visible_until)
"""

# Two steps, because SQLite would make a snippet of every match before it sorts.
_SEARCH = f"""
WITH best AS (
    SELECT e.id, e.message_id, e.date, bm25(emails_fts) AS score
    FROM emails_fts JOIN emails e ON e.id = emails_fts.rowid
    WHERE emails_fts MATCH :match AND {_VISIBLE}
      AND (:from_addr IS NULL OR e.from_address = :from_addr)
      AND (:to_addr IS NULL OR EXISTS (
          SELECT 1 FROM recipients r WHERE r.email_id = e.id AND r.recipient_address = :to_addr))
      AND (:sent_after IS NULL OR substr(e.date, 1, 10) >= :sent_after)
      AND (:sent_before IS NULL OR substr(e.date, 1, 10) < :sent_before)
    ORDER BY score, e.date DESC, e.id
    LIMIT :limit
)
SELECT best.message_id, snippet(emails_fts, -1, '', '', ' ... ', :snippet_words), best.date
FROM best JOIN emails_fts ON emails_fts.rowid = best.id
WHERE emails_fts MATCH :match
ORDER BY best.score, best.date DESC, best.id
"""

_READ = f"""
SELECT e.id, e.message_id, e.date, e.subject, e.from_address, e.body, e.file_name
FROM emails e WHERE e.message_id = :message_id AND {_VISIBLE}
"""

_RECIPIENTS = "SELECT recipient_address, recipient_type FROM recipients WHERE email_id = ? ORDER BY rowid"

_FULLEST = """
SELECT address, count(*) AS mails FROM (
    SELECT from_address AS address, id FROM emails
    UNION SELECT recipient_address, email_id FROM recipients
) GROUP BY address ORDER BY mails DESC, address LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class Hit:
    """date: of the mail, as `Mail.date`."""

    message_id: str
    snippet: str
    date: str


@dataclass(frozen=True, slots=True)
class MailStats:
    """inboxes: (address, mails from or to it), fullest first. sources: (file, SHA-256) that were imported."""

    mails: int
    first: str
    last: str
    inboxes: tuple[tuple[str, int], ...]
    sources: tuple[tuple[str, str], ...]


def match_expression(keywords: Sequence[str]) -> str | None:
    """The FTS5 expression "all of these": each keyword is a quoted phrase, so nothing in it is an operator.

    None if no keyword holds a letter or a digit (the index knows nothing else).
    """
    phrases = [sqlite_text(keyword).replace('"', '""') for keyword in keywords if re.search(r"[^\W_]", keyword)]
    return " ".join(f'"{phrase}"' for phrase in phrases) or None


class MailDatabase:
    """A finished database, opened for reading only. Every question opens a connection of its own (under a millisecond),
    because tools run in threads of their own, which come and go.

    busy_timeout_s: how long to wait for somebody else's lock. Raises ConfigError if there is no such database or it is
    of another version, StorageError if it cannot be opened. Afterwards every failure of the
    database is a `sqlite3.Error`: a fault of the environment, never the model's mistake.
    """

    def __init__(self, path: str | Path, *, busy_timeout_s: float = 5.0) -> None:
        self.path = Path(path)
        self.busy_timeout_s = busy_timeout_s
        if not self.path.is_file():
            raise ConfigError(
                f"no mail database {self.path}: build it with `etude mail import FILE.jsonl.xz --db {self.path}`"
            )
        version = schema_version(self.path, busy_timeout_s)
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"{self.path} is not a mail database of version {SCHEMA_VERSION} (found {version}): "
                f"build it again with `etude mail import FILE.jsonl.xz --db {self.path} --force`"
            )

    def search(
        self,
        keywords: Sequence[str],
        *,
        inbox: str,
        visible_until: str | None,
        from_addr: str | None = None,
        to_addr: str | None = None,
        sent_after: str | None = None,
        sent_before: str | None = None,
        limit: int = 10,
        snippet_words: int = SNIPPET_WORDS,
    ) -> list[Hit]:
        """Mails of the inbox that hold all keywords (stemmed), best bm25 first, newest first among equals.

        Days are `YYYY-MM-DD` and compare with the first ten characters of a mail's date: sent_after and
        visible_until are inclusive, sent_before is exclusive; visible_until None is for a person who sees everything.
        snippet_words: length of each hit's snippet, 1 to 64.
        """
        match = match_expression(keywords)
        if match is None:
            return []
        values = {
            "match": match,
            "inbox": inbox.lower(),
            "visible_until": visible_until,
            "from_addr": _address(from_addr),
            "to_addr": _address(to_addr),
            "sent_after": sent_after,
            "sent_before": sent_before,
            "limit": limit,
            "snippet_words": snippet_words,
        }
        with self._connect() as connection:
            rows = connection.execute(_SEARCH, values).fetchall()
        return [Hit(message_id, " ".join(snippet.split()), date) for message_id, snippet, date in rows]

    def read(self, message_id: str, *, inbox: str, visible_until: str | None) -> Mail | None:
        """The mail, or None if it is unknown, of another inbox, or dated after visible_until."""
        values = {"message_id": sqlite_text(message_id), "inbox": inbox.lower(), "visible_until": visible_until}
        with self._connect() as connection:
            row = connection.execute(_READ, values).fetchone()
            if row is None:
                return None
            row_id, found_id, date, subject, sender, body, file_name = row
            recipients = connection.execute(_RECIPIENTS, (row_id,)).fetchall()
        to, cc, bcc = (
            tuple(address for address, kind in recipients if kind == wanted) for wanted in ("to", "cc", "bcc")
        )
        return Mail(found_id, date, subject, sender, to, cc, bcc, body, file_name)

    def mails_with(self, word: str) -> int:
        """How many mails of the whole database hold the word (stemmed)."""
        match = match_expression([word])
        if match is None:
            return 0
        query = "SELECT count(*) FROM emails_fts WHERE emails_fts MATCH ?"
        with self._connect() as connection:
            return int(connection.execute(query, (match,)).fetchone()[0])

    def unknown_ids(self, message_ids: Iterable[Sequence[str]]) -> list[list[str]]:
        """Of each group of message ids, those that no mail of the whole database has."""
        query = "SELECT 1 FROM emails WHERE message_id = ?"
        with self._connect() as connection:
            return [
                [each for each in group if connection.execute(query, (sqlite_text(each),)).fetchone() is None]
                for group in message_ids
            ]

    def stats(self, inboxes: int = 30) -> MailStats:
        """Counts for a person; `inboxes` bounds how many addresses are listed."""
        with self._connect() as connection:
            mails, first, last = connection.execute("SELECT count(*), min(date), max(date) FROM emails").fetchone()
            fullest = connection.execute(_FULLEST, (inboxes,)).fetchall()
            sources = connection.execute("SELECT path, sha256 FROM sources ORDER BY rowid").fetchall()
        return MailStats(mails, first or "", last or "", tuple(fullest), tuple(sources))

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with closing(_open(self.path, self.busy_timeout_s)) as connection:
            yield connection


def schema_version(path: Path, busy_timeout_s: float = 5.0) -> int:
    """The schema version of a mail database. Raises ConfigError for any other file, StorageError if that is locked."""
    try:
        with closing(_open(path, busy_timeout_s)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError as error:
        raise StorageError(f"{path} cannot be opened: {error}") from error
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"{path} is no mail database ({error}): name another file") from error
    if application != APPLICATION_ID:
        raise ConfigError(f"{path} is no mail database, but another SQLite file: name another file")
    return int(version)


def _open(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=busy_timeout_s)


def _address(address: str | None) -> str | None:
    return None if address is None else sqlite_text(address).strip().lower()


def sqlite_text(text: str) -> str:
    """The text as SQLite can hold it: FTS5 stops at NUL, and a lone surrogate is no UTF-8."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
