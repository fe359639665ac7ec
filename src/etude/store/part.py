"""What the parts of the store share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from etude.errors import StorageError
from etude.store.database import Database


class StorePart:
    """The methods over one table. `Store` is all parts together, over one file and one clock."""

    def __init__(self, db: Database, clock: Callable[[], float]) -> None:
        self._db = db
        self._clock = clock


def require_run(connection: sqlite3.Connection, run: str) -> sqlite3.Row:
    """The run's row. Raises StorageError where there is none."""
    row: sqlite3.Row | None = connection.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone()
    if row is None:
        raise StorageError(f"no run {run!r} in the store: list the runs, and give a full id")
    return row


def readable(text: str) -> str:
    """Text for a person in a form that UTF-8 can hold: half of a surrogate pair (models write such) is escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
