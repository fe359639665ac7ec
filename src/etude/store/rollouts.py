"""Rollouts in the store: kept whole, listed without their trajectories, read back lazily."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Unpack

from etude.environment.scenario import Scenario
from etude.errors import ConfigError, StorageError
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import Rollout
from etude.store.encoding import decode_rollout, dump_json, dump_numbers, encode_rollout, load_numbers, plain_number
from etude.store.part import StorePart, require_run
from etude.store.records import RolloutFilter, RolloutSummary, SavedRollout

_PAGE = 64  # rollouts read at a time: about 1 MB

_SAVED = "EXISTS (SELECT 1 FROM payloads WHERE rollout = rollouts.id) AS saved"
SUMMARY_COLUMNS = (
    "rollouts.id, rollouts.run, step, phase, scenario_id, split, attempt, group_key, trace_id, rollouts.time,"
    " rollouts.outcome, stop, rollouts.reward, rollouts.scores, rollouts.metrics, fault_where, fault_kind, turns,"
    f" prompt_tokens, completion_tokens, wall_s, tool_s, retries, {_SAVED}"
)
_SELECT_WHOLE = (
    f"SELECT {SUMMARY_COLUMNS}, payloads.data AS payload, scenarios.data AS scenario FROM rollouts"
    " JOIN scenarios USING (run, split, scenario_id) LEFT JOIN payloads ON rollout = rollouts.id"
)
# Columns of the table that carry a field of the rollout under its own name.
_SAME = (
    *("trace_id", "scenario_id", "split", "attempt", "outcome", "stop", "reward", "turns", "prompt_tokens"),
    *("completion_tokens", "wall_s", "tool_s", "retries"),
)


class Rollouts(StorePart):
    """The tables `rollouts` and `scenarios`."""

    def add_rollouts(
        self,
        run: str,
        step: int,
        phase: str,
        rollouts: Sequence[Rollout],
        scenarios: Sequence[Scenario],
        *,
        groups: Sequence[str] | None = None,
        payloads: bool = True,
    ) -> None:
        """Save rollouts of one step, all or none.

        phase: "train", "validation", "test", ... scenarios: of each rollout; their data is kept once a run, so that
        rewards can be computed again without the data set. groups: of each rollout; None where the rollouts of a
        scenario are one group. payloads: whether trajectories, messages and states are kept, or rows and rewards only.
        Raises StorageError, also for a trace_id that the store has already.
        """
        now = self._clock()
        keys = [rollout.scenario_id for rollout in rollouts] if groups is None else groups
        # Compressed before the transaction begins: it must be short.
        rows = [
            {"run": run, "step": step, "phase": phase, "time": now, "group_key": key, **_as_row(rollout)}
            for rollout, key in zip(rollouts, keys, strict=True)
        ]
        encoded = [encode_rollout(rollout) if payloads else None for rollout in rollouts]
        data = [_scenario_row(run, *pair) for pair in zip(rollouts, scenarios, strict=True)]
        with self._db.write(f"save {len(rows)} rollouts of step {step} of run {run}") as connection:
            require_run(connection, run)
            for scenario_row in dict.fromkeys(data):
                _add_scenario(connection, scenario_row)
            for row, payload in zip(rows, encoded, strict=True):
                _add_rollout(connection, row, payload)

    def rollouts(
        self, run: str, *, after: int = 0, limit: int | None = None, **where: Unpack[RolloutFilter]
    ) -> list[RolloutSummary]:
        """Rollouts without their trajectories, in the order in which they were saved. after: an id, for polling."""
        condition, values = _condition(run, where)
        with self._db.read(f"list the rollouts of run {run}") as connection:
            require_run(connection, run)
            rows = connection.execute(
                f"SELECT {SUMMARY_COLUMNS} FROM rollouts WHERE {condition} AND id > :after ORDER BY id LIMIT :limit",
                {**values, "after": after, "limit": -1 if limit is None else limit},
            ).fetchall()
        return [as_summary(row) for row in rows]

    def count_rollouts(self, run: str, **where: Unpack[RolloutFilter]) -> int:
        return sum(self.count_outcomes(run, **where).values())

    def count_outcomes(self, run: str, **where: Unpack[RolloutFilter]) -> dict[Outcome, int]:
        """How many rollouts ended in each of the five ways, the ways that do not occur included."""
        condition, values = _condition(run, where)
        with self._db.read(f"count the rollouts of run {run}") as connection:
            require_run(connection, run)
            query = f"SELECT outcome, count(*) FROM rollouts WHERE {condition} GROUP BY outcome"
            found = dict(connection.execute(query, values).fetchall())
        return {outcome: found.get(outcome.value, 0) for outcome in Outcome}

    def iter_rollouts(
        self,
        run: str,
        *,
        limit: int | None = None,
        dropped: Literal["refuse", "skip"] = "refuse",
        **where: Unpack[RolloutFilter],
    ) -> Iterator[SavedRollout]:
        """Whole rollouts, as many as there are when the first is asked for, in the order in which they were saved; read
        a page at a time.

        dropped: what happens where trajectories were not kept, or dropped since: "refuse" raises StorageError before
        the first rollout is given, "skip" leaves those out.
        """
        condition, values = _condition(run, where)
        with self._db.read(f"read the rollouts of run {run}") as connection:
            require_run(connection, run)
            query = f"SELECT rollouts.id, {_SAVED} FROM rollouts WHERE {condition} ORDER BY rollouts.id"
            found = connection.execute(query, values).fetchall()
        chosen = [row for row in found if row["saved"] or dropped == "refuse"][:limit]
        missing = sum(not row["saved"] for row in chosen)
        if missing:
            raise StorageError(_not_kept(f"{missing} of these {len(chosen)} trajectories of run {run}"))
        for start in range(0, len(chosen), _PAGE):
            ids = [row["id"] for row in chosen[start : start + _PAGE]]
            with self._db.read(f"read the rollouts of run {run}") as connection:
                query = f"{_SELECT_WHOLE} WHERE rollouts.id IN ({', '.join('?' * len(ids))}) ORDER BY rollouts.id"
                rows = connection.execute(query, ids).fetchall()
            yield from (_as_saved(row) for row in rows if row["payload"] is not None or dropped == "refuse")

    def find_rollout(self, run: str, text: str) -> SavedRollout:
        """The rollout of `run` with this trace_id, or whose trace_id alone begins so.

        Raises ConfigError where there is none or more than one, StorageError where its trajectory is not kept.
        """
        with self._db.read(f"find the rollout {text}") as connection:
            require_run(connection, run)
            rows = connection.execute(
                f"{_SELECT_WHOLE} WHERE rollouts.run = ?1 AND substr(trace_id, 1, length(?2)) = ?2"
                " ORDER BY trace_id LIMIT 2",  # the exact one, if there is one, comes first
                (run, text),
            ).fetchall()
        if not rows:
            raise ConfigError(f"no rollout {text!r} in run {run}: list the rollouts of the run for their trace ids")
        if len(rows) > 1 and rows[0]["trace_id"] != text:
            raise ConfigError(f"more than one trace id of run {run} begins with {text!r}: write more of it")
        return _as_saved(rows[0])

    def delete_rollouts(self, run: str, *, phase: str, step: int) -> int:
        """Delete what an interrupted phase of a step left, before it is done again; how many. Raises StorageError."""
        with self._db.write(f"delete the {phase} rollouts of step {step} of run {run}") as connection:
            require_run(connection, run)
            query = "DELETE FROM rollouts WHERE run = ? AND phase = ? AND step = ?"
            return connection.execute(query, (run, phase, step)).rowcount


def as_summary(row: sqlite3.Row) -> RolloutSummary:
    names = RolloutSummary.__dataclass_fields__.keys() - {"group", "outcome", "stop", "scores", "metrics", "saved"}
    return RolloutSummary(
        **{name: row[name] for name in names},
        group=row["group_key"],
        outcome=Outcome(row["outcome"]),
        stop=Stop(row["stop"]),
        scores=load_numbers(row["scores"]),
        metrics=load_numbers(row["metrics"]),
        saved=bool(row["saved"]),
    )


def check_reward(rollout: Rollout) -> None:
    """A fault is never a reward, and a reward is a finite number or None. Raises StorageError."""
    reward, who = rollout.reward, f"rollout {rollout.trace_id}"
    if reward is not None and not math.isfinite(reward):
        raise StorageError(f"{who} has the reward {reward}: it must be finite, or None with a grader fault")
    if reward is not None and not rollout.outcome.scored:
        raise StorageError(f"{who} ended as {rollout.outcome} with the reward {reward}: a fault carries none")


def _as_row(rollout: Rollout) -> dict[str, Any]:
    check_reward(rollout)
    what = f"rollout {rollout.trace_id}"
    return {
        **{name: plain_number(getattr(rollout, name)) for name in _SAME},
        "scores": dump_numbers(rollout.scores, f"the scores of {what}"),
        "metrics": dump_numbers(rollout.metrics, f"the metrics of {what}"),
        "fault_where": rollout.fault.where if rollout.fault else None,
        "fault_kind": rollout.fault.kind if rollout.fault else None,
    }


def _scenario_row(run: str, rollout: Rollout, scenario: Scenario) -> tuple[str, str, str, str]:
    if (rollout.scenario_id, rollout.split) != (scenario.id, scenario.split):
        raise ValueError(f"rollout {rollout.trace_id} is of scenario {rollout.scenario_id}, not {scenario.id}")
    return run, scenario.split, scenario.id, dump_json(scenario.data, f"scenario {scenario.id}")


def _add_rollout(connection: sqlite3.Connection, row: dict[str, Any], payload: bytes | None) -> None:
    try:
        added = connection.execute(
            f"INSERT INTO rollouts ({', '.join(row)}) VALUES ({', '.join(f':{column}' for column in row)})", row
        )
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorname != "SQLITE_CONSTRAINT_UNIQUE":
            raise
        raise StorageError(
            f"rollout {row['trace_id']} is saved already: rewind the run with truncate_run before a step is done again"
        ) from error
    if payload is not None:
        connection.execute("INSERT INTO payloads (rollout, data) VALUES (?, ?)", (added.lastrowid, payload))


def _add_scenario(connection: sqlite3.Connection, row: tuple[str, str, str, str]) -> None:
    """Keep a scenario once a run. One that changed under its id would be graded otherwise the next time."""
    connection.execute("INSERT OR IGNORE INTO scenarios (run, split, scenario_id, data) VALUES (?, ?, ?, ?)", row)
    query = "SELECT data FROM scenarios WHERE run = ? AND split = ? AND scenario_id = ?"
    if connection.execute(query, row[:3]).fetchone()["data"] != row[3]:
        raise StorageError(
            f"scenario {row[2]!r} ({row[1]}) is not what run {row[0]} saved under this id before: "
            "ids must be unique in a split, and the data must not change during a run"
        )


def _condition(run: str, where: RolloutFilter) -> tuple[str, dict[str, Any]]:
    columns = {"phase": "phase", "step": "step", "scenario": "scenario_id", "outcome": "outcome"}
    given = {name: value for name, value in where.items() if value is not None}
    condition = " AND ".join(["rollouts.run = :run", *(f"rollouts.{columns[name]} = :{name}" for name in given)])
    return condition, {"run": run, **given}


def _as_saved(row: sqlite3.Row) -> SavedRollout:
    if row["payload"] is None:
        raise StorageError(_not_kept(f"the tokens and messages of {row['trace_id']} (run {row['run']})"))
    scenario = Scenario(id=row["scenario_id"], split=row["split"], data=json.loads(row["scenario"]))
    return SavedRollout(summary=as_summary(row), rollout=decode_rollout(row["payload"]), scenario=scenario)


def _not_kept(what: str) -> str:
    return (
        f"{what} are not kept (keep_rollouts of that run, or a later prune); rows and rewards are still there. "
        "Choose other steps or phases, or keep all trajectories in later runs"
    )
