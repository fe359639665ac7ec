"""What a run writes down as it goes: a row of metrics a step, and events; and the rewind to a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from etude.errors import StorageError
from etude.store.encoding import dump_json, dump_numbers, load_numbers
from etude.store.part import StorePart, readable, require_run
from etude.store.records import Event, Level, Step


class Journal(StorePart):
    """The tables `steps` and `events`."""

    def add_step(self, run: str, step: int, metrics: Mapping[str, float | None]) -> None:
        """Write down a step's metrics. A second call for the same step adds names to it (validation comes later than
        training); a name that is there already is refused, for then something counted twice. Raises StorageError."""
        what = f"step {step} of run {run}"
        new = dump_numbers(metrics, what)
        with self._db.write(f"save {what}") as connection:
            require_run(connection, run)
            row = connection.execute("SELECT metrics FROM steps WHERE run = ? AND step = ?", (run, step)).fetchone()
            held = {} if row is None else json.loads(row["metrics"])
            again = sorted(held.keys() & metrics.keys())
            if again or (row is not None and not metrics):
                raise StorageError(
                    f"{what} is written down already ({', '.join(again)}): "
                    "rewind with truncate_run before a step is done again"
                )
            connection.execute(
                "INSERT INTO steps (run, step, time, metrics) VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT (run, step) DO UPDATE SET metrics = ?4",
                (run, step, self._clock(), json.dumps({**held, **json.loads(new)}, separators=(",", ":"))),
            )

    def steps(self, run: str, *, after: int = -1) -> list[Step]:
        """The steps of a run beyond step `after`, in order."""
        with self._db.read(f"read the steps of run {run}") as connection:
            require_run(connection, run)
            rows = connection.execute(
                "SELECT step, time, metrics FROM steps WHERE run = ? AND step > ? ORDER BY step", (run, after)
            ).fetchall()
        return [Step(step=row["step"], time=row["time"], metrics=load_numbers(row["metrics"])) for row in rows]

    def last_step(self, run: str) -> int | None:
        """The highest step written down; None before the first."""
        with self._db.read(f"read the steps of run {run}") as connection:
            require_run(connection, run)
            last: int | None = connection.execute("SELECT max(step) FROM steps WHERE run = ?", (run,)).fetchone()[0]
            return last

    def add_event(
        self,
        run: str,
        message: str,
        *,
        level: Level,
        type: str,
        step: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> int:
        """Write an event down and give its id. step: None for one that a rewind to a checkpoint leaves in place.
        data: JSON values. Raises StorageError."""
        if level not in get_args(Level):
            raise ValueError(f"level {level!r}: it is one of {', '.join(get_args(Level))}")
        saved = dump_json(data or {}, f"the data of the event {message!r}")
        with self._db.write(f"save an event of run {run}") as connection:
            require_run(connection, run)
            cursor = connection.execute(
                "INSERT INTO events (run, step, time, level, type, message, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run, step, self._clock(), level, type, readable(message), saved),
            )
            return int(cursor.lastrowid or 0)

    def events(self, run: str, *, after: int = 0, limit: int | None = None, newest_first: bool = False) -> list[Event]:
        """The run's events with an id above `after`, oldest or newest first, at most `limit`. Ids grow and are never
        used again, so a reader may poll with the highest that it saw."""
        order = "DESC" if newest_first else "ASC"
        with self._db.read(f"read the events of run {run}") as connection:
            require_run(connection, run)
            rows = connection.execute(
                f"SELECT * FROM events WHERE run = ? AND id > ? ORDER BY id {order} LIMIT ?",
                (run, after, -1 if limit is None else limit),
            ).fetchall()
        return [Event(**{**dict(row), "data": json.loads(row["data"])}) for row in rows]

    def has_event(self, run: str, *, type: str, step: int) -> bool:
        """Whether the run has an event of this type at this step: a resumed run asks what it had done already."""
        with self._db.read(f"read the events of run {run}") as connection:
            require_run(connection, run)
            query = "SELECT 1 FROM events WHERE run = ? AND type = ? AND step = ?"
            return connection.execute(query, (run, type, step)).fetchone() is not None

    def truncate_run(self, run: str, step: int) -> dict[str, int]:
        """Rewind to the checkpoint of `step`: delete the steps, rollouts and events beyond it (and rewards given
        later to those rollouts), and count them by table.

        So the checkpoint of a step is to be written after everything of that step is stored. Raises StorageError.
        """
        beyond = (run, step)
        with self._db.write(f"rewind run {run} to step {step}") as connection:
            require_run(connection, run)
            regrades = connection.execute(
                "SELECT count(*) FROM regrades JOIN rollouts ON rollouts.id = regrades.rollout"
                " WHERE rollouts.run = ? AND rollouts.step > ?",
                beyond,
            ).fetchone()[0]
            deleted = {
                table: connection.execute(f"DELETE FROM {table} WHERE run = ? AND step > ?", beyond).rowcount
                for table in ("steps", "rollouts", "events")
            }
        return {**deleted, "regrades": regrades}
