"""One SQLite file in WAL mode: one guarded writer, short-lived readers, and errors that say what and where."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from etude.errors import StorageError
from etude.store.schema import SCHEMA_VERSION, check_version, migrate

BUSY_TIMEOUT_S = 10.0


class Database:
    """Safe to use from many threads. Every read opens its own connection (0.3 ms), so that none outlives its thread
    and no reader holds back the WAL's checkpoint; writes share one connection under a lock."""

    def __init__(self, path: Path, *, read_only: bool, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.path = path
        self._read_only = read_only
        self._timeout_s = busy_timeout_s
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        if read_only:
            self._check_readable()
        else:
            self._open_writer()

    @contextmanager
    def write(self, doing: str) -> Iterator[sqlite3.Connection]:
        """One transaction: committed where the block ends, rolled back where it raises.

        doing: what is done, for messages ("save step 3 of train-…"). Raises StorageError.
        """
        with self._writing(doing) as connection, _transaction(connection):
            yield connection

    @contextmanager
    def read(self, doing: str) -> Iterator[sqlite3.Connection]:
        """A connection for a few quick queries, closed afterwards. Raises StorageError."""
        with self._explained(doing), closing(self._connect(self._reading_mode())) as connection:
            connection.execute("PRAGMA query_only = 1")
            yield connection

    def reclaim(self, pages: int) -> bool:
        """Give up to `pages` free pages back to the file system; whether there may be more."""
        with self._writing("give freed space back") as connection:
            free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
            # A transaction by itself. `execute` would stop after the first page; `executescript` runs it to its end.
            connection.executescript(f"PRAGMA incremental_vacuum({int(pages)})")
        return free > pages

    def close(self) -> None:
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    @contextmanager
    def _writing(self, doing: str) -> Iterator[sqlite3.Connection]:
        if not self._lock.acquire(timeout=self._timeout_s):
            raise StorageError(f"could not {doing}: another thread has been writing for {self._timeout_s:g} s")
        try:
            if self._writer is None:
                reason = "was opened for reading only" if self._read_only else "is closed"
                raise StorageError(f"could not {doing}: the store {self.path} {reason}")
            with self._explained(doing):
                yield self._writer
        finally:
            self._lock.release()

    def _open_writer(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"could not make the workspace {self.path.parent}: {error.strerror or error}") from error
        with self._explained("open the store"):
            connection = self._connect("mode=rwc")
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        self._writer = connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        check_version(connection, self.path)  # before anything is changed in a newer file
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect in a new file only
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StorageError(
                f"{self.path} cannot use write-ahead logging (journal mode {mode}): network drives do not support it; "
                "choose a workspace on a local disk"
            )
        # FULL: a finished step survives a power cut too, at 0.4 ms a transaction.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        migrate(connection, self.path)

    def _check_readable(self) -> None:
        if not self.path.is_file():
            raise StorageError(f"no store at {self.path}: train or evaluate something first, or name another workspace")
        with self.read("open the store") as connection:
            version = check_version(connection, self.path)
        if version < SCHEMA_VERSION:
            raise StorageError(
                f"{self.path} has the older schema {version} (this Etude uses {SCHEMA_VERSION}): "
                "open it once for writing, which brings it up to date"
            )

    def _reading_mode(self) -> str:
        if not self._read_only:
            return "mode=rw"  # not "ro": in WAL mode readers write too, to the index that they share
        # On a read-only medium the WAL's index cannot be made. Nobody else can write there either, so a file without
        # a WAL may be read as it stands.
        wal = self.path.with_name(self.path.name + "-wal")
        frozen = not wal.exists() and not _can_write(self.path.parent)
        return "immutable=1" if frozen else "mode=ro"

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.row_factory = sqlite3.Row
        return connection

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"could not {doing} in {self.path}: {self._reason(error)}") from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise StorageError(f"could not {doing} in {self.path}: a value cannot be stored ({error})") from error

    def _reason(self, error: sqlite3.Error) -> str:
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        kept = "what was saved before is intact"
        if name == "SQLITE_FULL":
            free = shutil.disk_usage(self.path.parent).free // 1024
            return f"the disk is full ({free} KiB free); {kept}: free some space, then resume"
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return f"another process has it locked for {self._timeout_s:g} s; {kept}: stop that one, or try again"
        if name.startswith("SQLITE_READONLY"):
            return f"the file or its folder cannot be written ({name}); {kept}: check permissions and the mount"
        if name == "SQLITE_CANTOPEN":
            return "the file cannot be opened: check that its folder exists and that you may read and write it"
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return f"the file is damaged, or is no Etude store ({error}): move it away, or restore a copy"
        if name.startswith("SQLITE_IOERR"):
            return f"the disk failed ({name}); {kept}: look for a full disk, a file size limit or a broken drive"
        return f"{error} ({name})"


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back by itself after some errors, a full disk among them
            connection.execute("ROLLBACK")
        raise


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK)
