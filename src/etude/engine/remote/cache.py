"""Replies that were paid for, kept on disk: the same request is answered without asking again.

One SQLite file (WAL), which several processes may use; a process killed at any moment leaves what was written before.
It holds replies and the hashes of what they answer: no request, and no key.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from etude.errors import StorageError

FORMAT = 1  # of the file; in SQLite's user_version
_BUSY_S = 10.0


@dataclass(frozen=True, slots=True)
class CachedReply:
    """data: the body as it came. seconds: how long it had taken."""

    data: bytes
    seconds: float


def cache_key(url: str, body: bytes, seed: int | None) -> bytes:
    """Of a whole request. seed: of the attempt, so that attempts are different samples also where the endpoint's
    requests hold no seed; None where sampling is greedy, and attempts are one."""
    return hashlib.sha256(b"\n".join([url.encode(), str(seed).encode(), body])).digest()


class ReplyCache:
    """Methods block for a moment, and may be called from any thread.

    Raises StorageError for a file that cannot be made or read, and for one of a newer Etude."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise self._trouble(error) from error

    def _prepare(self) -> None:
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version > FORMAT:
            raise StorageError(f"{self.path} was written by a newer Etude: upgrade Etude, or delete the file")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, created REAL NOT NULL, seconds REAL NOT NULL, "
            "data BLOB NOT NULL) WITHOUT ROWID"
        )
        self._connection.execute(f"PRAGMA user_version={FORMAT}")

    def get(self, key: bytes) -> CachedReply | None:
        """Raises StorageError."""
        try:
            with self._lock:
                row = self._connection.execute("SELECT data, seconds FROM replies WHERE key = ?", (key,)).fetchone()
            return None if row is None else CachedReply(zlib.decompress(row[0]), float(row[1]))
        except (sqlite3.Error, zlib.error) as error:
            raise self._trouble(error) from error

    def put(self, key: bytes, reply: CachedReply) -> None:
        """The last one counts. Raises StorageError."""
        row = (key, time.time(), reply.seconds, zlib.compress(reply.data))
        try:
            with self._lock:
                self._connection.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise self._trouble(error) from error

    def __len__(self) -> int:
        with self._lock:
            return int(self._connection.execute("SELECT count(*) FROM replies").fetchone()[0])

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _trouble(self, error: Exception) -> StorageError:
        return StorageError(
            f"the cache of replies {self.path} cannot be used ({error}): delete the file, or go without it "
            "(model.remote.cache=false)"
        )
