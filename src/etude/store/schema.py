"""The tables of the store, as numbered migrations: migration n makes a version-n file of a version-(n-1) file.

A migration that was released is never edited; a change of the tables is a new one at the end.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from etude.errors import StorageError

_VERSION_1 = (
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, environment TEXT NOT NULL, model TEXT NOT NULL,
        config TEXT NOT NULL, status TEXT NOT NULL, created REAL NOT NULL, finished REAL, pid INTEGER NOT NULL,
        host TEXT NOT NULL, heartbeat REAL NOT NULL, error TEXT, git_commit TEXT, versions TEXT NOT NULL,
        parent TEXT REFERENCES runs(id))""",
    """CREATE TABLE steps (
        run TEXT NOT NULL REFERENCES runs(id), step INTEGER NOT NULL, time REAL NOT NULL, metrics TEXT NOT NULL,
        PRIMARY KEY (run, step)) WITHOUT ROWID""",
    # AUTOINCREMENT: ids are cursors for readers that follow a run, so that of a truncated row is never given out again.
    """CREATE TABLE rollouts (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs(id), step INTEGER NOT NULL,
        phase TEXT NOT NULL, scenario_id TEXT NOT NULL, split TEXT NOT NULL, attempt INTEGER NOT NULL,
        group_key TEXT NOT NULL, trace_id TEXT NOT NULL UNIQUE, time REAL NOT NULL, outcome TEXT NOT NULL,
        stop TEXT NOT NULL, reward REAL, scores TEXT NOT NULL, metrics TEXT NOT NULL, fault_where TEXT, fault_kind TEXT,
        turns INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        wall_s REAL NOT NULL, tool_s REAL NOT NULL, retries INTEGER NOT NULL, scenario TEXT NOT NULL)""",
    "CREATE INDEX rollouts_by_step ON rollouts (run, step, phase)",
    # Apart from their rows, which are then listed without reading them, and whose pages they leave whole when they go.
    """CREATE TABLE payloads (
        rollout INTEGER PRIMARY KEY REFERENCES rollouts(id) ON DELETE CASCADE, data BLOB NOT NULL)""",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs(id), step INTEGER, time REAL NOT NULL,
        level TEXT NOT NULL, type TEXT NOT NULL, message TEXT NOT NULL, data TEXT NOT NULL)""",
    "CREATE INDEX events_by_run ON events (run, id)",
)

# A scenario is kept once a run, not once a rollout; a run names its process so exactly that a pid used again is not
# taken for it; rewards given later stand beside the first ones.
_VERSION_2 = (
    """CREATE TABLE scenarios (
        run TEXT NOT NULL REFERENCES runs(id), split TEXT NOT NULL, scenario_id TEXT NOT NULL, data TEXT NOT NULL,
        PRIMARY KEY (run, split, scenario_id)) WITHOUT ROWID""",
    """INSERT OR IGNORE INTO scenarios (run, split, scenario_id, data)
        SELECT run, split, scenario_id, scenario FROM rollouts ORDER BY id""",
    "ALTER TABLE rollouts DROP COLUMN scenario",
    "ALTER TABLE runs ADD COLUMN place TEXT",
    "ALTER TABLE runs ADD COLUMN process_start TEXT",
    """CREATE TABLE regrades (
        run TEXT NOT NULL REFERENCES runs(id), rollout INTEGER NOT NULL REFERENCES rollouts(id) ON DELETE CASCADE,
        time REAL NOT NULL, outcome TEXT NOT NULL, reward REAL, scores TEXT NOT NULL, metrics TEXT NOT NULL,
        fault TEXT, PRIMARY KEY (run, rollout)) WITHOUT ROWID""",
    "CREATE INDEX regrades_by_rollout ON regrades (rollout)",
)

MIGRATIONS = (_VERSION_1, _VERSION_2)
SCHEMA_VERSION = len(MIGRATIONS)


def schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The file's schema version. StorageError where a newer Etude wrote it."""
    version = schema_version(connection)
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{path} was written by a newer Etude (schema {version}; this one knows up to {SCHEMA_VERSION}): "
            "upgrade Etude, or choose another workspace"
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to SCHEMA_VERSION, one transaction a migration, so that a killed one leaves the version before.

    The version is read again inside each transaction: another process may be migrating the same file.
    """
    while check_version(connection, path) < SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = check_version(connection, path)
            for statement in MIGRATIONS[version] if version < SCHEMA_VERSION else ():
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {min(version + 1, SCHEMA_VERSION)}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
