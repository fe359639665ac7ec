"""The run store: one SQLite file under the workspace."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from etude.store.database import BUSY_TIMEOUT_S, Database
from etude.store.journal import Journal
from etude.store.pruning import Pruning
from etude.store.regrades import Regrades
from etude.store.rollouts import Rollouts
from etude.store.runs import Runs

FILE_NAME = "etude.db"


class Store(Runs, Journal, Rollouts, Regrades, Pruning):
    """Runs, steps, rollouts and events. Methods block for milliseconds and may be called from any thread (from a
    coroutine: `await asyncio.to_thread(store.add_step, ...)`); other processes may read, and write, meanwhile.

    Every write is one transaction: done whole, or not at all and a StorageError.
    """

    @classmethod
    def open(
        cls,
        workspace: Path | str,
        *,
        read_only: bool = False,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open the workspace's store; make it, or bring its tables up to date, unless `read_only`.

        busy_timeout_s: how long another writer is waited for. clock: seconds since the epoch.
        Raises StorageError for a newer or damaged file, one that cannot be read or written, or none at all (read_only).
        """
        return cls(Database(Path(workspace) / FILE_NAME, read_only=read_only, busy_timeout_s=busy_timeout_s), clock)

    @property
    def workspace(self) -> Path:
        """The folder that holds the store's file."""
        return self._db.path.parent

    @property
    def path(self) -> Path:
        return self._db.path

    def close(self) -> None:
        """Let go of the file. Waits for a write that another thread is doing."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
