"""Runs in the store: made, found, marked, resumed."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from etude.errors import ConfigError, StorageError
from etude.store.encoding import dump_json
from etude.store.part import StorePart, readable, require_run
from etude.store.process import ProcessId, git_commit, is_alive, package_versions
from etude.store.records import Run, RunKind, RunStatus

_CANDIDATES_SHOWN = 8


class Runs(StorePart):
    """The table `runs`."""

    def create_run(
        self,
        kind: RunKind,
        *,
        name: str,
        environment: str,
        model: str,
        config: Mapping[str, Any],
        parent: str | None = None,
    ) -> str:
        """A new run, running in this process; gives its id: "train-20261129-231500-a3f2" (UTC), unique and sortable.

        config: JSON values, without secrets: it is shown. Raises StorageError.
        """
        if kind not in get_args(RunKind):
            raise ValueError(f"kind {kind!r}: it is one of {', '.join(get_args(RunKind))}")
        now = self._clock()
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
        row = {
            "id": f"{kind}-{stamp}-{secrets.token_hex(2)}",
            "kind": kind,
            "name": name,
            "environment": environment,
            "model": model,
            "config": dump_json(config, f"the configuration of {name}"),
            "created": now,
            "heartbeat": now,
            "git_commit": git_commit(Path.cwd()),
            "versions": dump_json(package_versions(), "the versions"),
            "parent": parent,
            **_owner(ProcessId.current()),
        }
        with self._db.write(f"create a {kind} run") as connection:
            if parent is not None:
                require_run(connection, parent)
            while connection.execute("SELECT 1 FROM runs WHERE id = ?", (row["id"],)).fetchone():
                row["id"] = f"{kind}-{stamp}-{secrets.token_hex(2)}"
            columns = ", ".join(row)
            places = ", ".join(f":{column}" for column in row)
            connection.execute(f"INSERT INTO runs ({columns}, status) VALUES ({places}, 'running')", row)
        return str(row["id"])

    def find_run(self, text: str, *, kinds: Collection[RunKind] | None = None) -> Run:
        """The run with this id, or whose id alone begins so, or the newest for "last".

        Raises ConfigError, listing the candidates, where there is none or more than one.
        """
        runs = self.runs(kinds=kinds)
        if text == "last":
            found = runs[:1]
        else:
            found = [run for run in runs if run.id == text] or [run for run in runs if text and run.id.startswith(text)]
        if len(found) == 1:
            return found[0]
        shown = found or runs
        listed = "".join(f"\n  {run.id}  {run.status}  {run.name}" for run in shown[:_CANDIDATES_SHOWN])
        if len(shown) > _CANDIDATES_SHOWN:
            listed += f"\n  … and {len(shown) - _CANDIDATES_SHOWN} more"
        what = "run" if kinds is None else " or ".join(kinds) + " run"
        if found:
            raise ConfigError(f"{text!r} could be any of {len(found)} runs; write more of the id:{listed}")
        if not runs:
            raise ConfigError(f"no {what} {text!r}: {self._db.path} holds none")
        raise ConfigError(f"no {what} {text!r} in {self._db.path}; there are:{listed}")

    def runs(
        self,
        *,
        kinds: Collection[RunKind] | None = None,
        statuses: Collection[RunStatus] | None = None,
        environment: str | None = None,
        parent: str | None = None,
        limit: int | None = None,
    ) -> list[Run]:
        """Runs, newest first."""
        with self._db.read("list the runs") as connection:
            rows = connection.execute(
                "SELECT * FROM runs WHERE environment = ifnull(?1, environment) AND (?2 IS NULL OR parent = ?2)"
                " ORDER BY created DESC, rowid DESC",
                (environment, parent),
            ).fetchall()
        runs = [_as_run(row, self._clock()) for row in rows]
        of_kind = [run for run in runs if kinds is None or run.kind in kinds]
        return [run for run in of_kind if statuses is None or run.status in statuses][:limit]

    def set_status(self, run: str, status: RunStatus, error: str | None = None) -> None:
        """Mark a run that this process ends. error: what went wrong, for a person. Raises StorageError."""
        if status == "running" or status not in get_args(RunStatus):
            raise ValueError(
                f"status {status!r}: only create_run and resume_run, which note the process, make it running"
            )
        with self._db.write(f"mark run {run} {status}") as connection:
            require_run(connection, run)
            connection.execute(
                "UPDATE runs SET status = ?, error = ?, finished = ? WHERE id = ?",
                (status, None if error is None else readable(error), self._clock(), run),
            )

    def heartbeat(self, run: str) -> None:
        """Say that the run is alive; call it more often than every HEARTBEAT_LIMIT_S. Raises StorageError."""
        with self._db.write(f"note that run {run} is alive") as connection:
            require_run(connection, run)
            connection.execute("UPDATE runs SET heartbeat = ? WHERE id = ?", (self._clock(), run))

    def resume_run(self, run: str) -> None:
        """Take over a run that has ended, whatever way. Raises StorageError where a live process still has it."""
        now = self._clock()
        with self._db.write(f"resume run {run}") as connection:
            held = _as_run(require_run(connection, run), now)
            if held.status == "running":
                raise StorageError(
                    f"run {run} is still running (process {held.pid} on {held.host}): stop it before it is resumed"
                )
            connection.execute(
                "UPDATE runs SET status = 'running', error = NULL, finished = NULL, heartbeat = :now, host = :host,"
                " pid = :pid, place = :place, process_start = :process_start WHERE id = :run",
                {"run": run, "now": now, **_owner(ProcessId.current())},
            )


def _owner(process: ProcessId) -> dict[str, Any]:
    return {"host": process.host, "pid": process.pid, "place": process.place, "process_start": process.start}


def _as_run(row: sqlite3.Row, now: float) -> Run:
    status: RunStatus = row["status"]
    process = ProcessId(row["host"], row["pid"], row["place"], row["process_start"])
    if status == "running" and not is_alive(process, now - row["heartbeat"]):
        status = "interrupted"
    return Run(
        id=row["id"],
        kind=row["kind"],
        name=row["name"],
        environment=row["environment"],
        model=row["model"],
        config=json.loads(row["config"]),
        status=status,
        created=row["created"],
        finished=row["finished"],
        host=row["host"],
        pid=row["pid"],
        heartbeat=row["heartbeat"],
        error=row["error"],
        git_commit=row["git_commit"],
        versions=json.loads(row["versions"]),
        parent=row["parent"],
    )
