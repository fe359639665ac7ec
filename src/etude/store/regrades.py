"""Rewards computed again over saved rollouts. They stand beside the first ones and never replace them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from etude.environment.calls import Fault
from etude.errors import StorageError
from etude.rollout.outcome import Outcome
from etude.rollout.rollout import Rollout
from etude.store.encoding import dump_json, dump_numbers, load_numbers, plain_number
from etude.store.part import StorePart, require_run
from etude.store.records import Regrade
from etude.store.rollouts import SUMMARY_COLUMNS, as_summary, check_reward


class Regrades(StorePart):
    """The table `regrades`: one row for a rollout of a regrade run's parent."""

    def add_regrades(self, run: str, rollouts: Sequence[Rollout]) -> None:
        """Save what a new grading says of rollouts of the parent of `run`, a regrade run: all or none.

        Kept of each: outcome, reward, scores, metrics, fault. Raises StorageError.
        """
        rows = [{"run": run, "time": self._clock(), **_as_row(rollout)} for rollout in rollouts]
        with self._db.write(f"save {len(rows)} rewards of run {run}") as connection:
            source = _source(require_run(connection, run))
            for row in rows:
                _add(connection, row, source)

    def regrades(self, run: str) -> list[Regrade]:
        """What the regrade run `run` found, in the order of its parent's rollouts."""
        with self._db.read(f"read the rewards of run {run}") as connection:
            _source(require_run(connection, run))
            rows = connection.execute(
                f"SELECT {SUMMARY_COLUMNS}, regrades.outcome AS new_outcome, regrades.reward AS new_reward,"
                " regrades.scores AS new_scores, regrades.metrics AS new_metrics, fault"
                " FROM regrades JOIN rollouts ON rollouts.id = regrades.rollout WHERE regrades.run = ? ORDER BY id",
                (run,),
            ).fetchall()
        return [_as_regrade(row) for row in rows]


def _source(run: sqlite3.Row) -> str:
    if run["kind"] != "regrade" or run["parent"] is None:
        raise StorageError(f"run {run['id']} regrades no other run: make one of kind regrade, with a parent")
    return str(run["parent"])


def _as_row(rollout: Rollout) -> dict[str, Any]:
    check_reward(rollout)
    what = f"the new grading of rollout {rollout.trace_id}"
    return {
        "trace_id": rollout.trace_id,
        "outcome": rollout.outcome,
        "reward": plain_number(rollout.reward),
        "scores": dump_numbers(rollout.scores, what),
        "metrics": dump_numbers(rollout.metrics, what),
        "fault": None if rollout.fault is None else dump_json(asdict(rollout.fault), what),
    }


def _add(connection: sqlite3.Connection, row: dict[str, Any], source: str) -> None:
    trace_id = row["trace_id"]
    found = connection.execute("SELECT id FROM rollouts WHERE trace_id = ? AND run = ?", (trace_id, source)).fetchone()
    if found is None:
        raise StorageError(f"run {source} has no rollout {trace_id} to grade again")
    try:
        connection.execute(
            "INSERT INTO regrades (run, rollout, time, outcome, reward, scores, metrics, fault)"
            " VALUES (:run, :rollout, :time, :outcome, :reward, :scores, :metrics, :fault)",
            {**row, "rollout": found["id"]},
        )
    except sqlite3.IntegrityError as error:
        raise StorageError(f"run {row['run']} has graded rollout {trace_id} already: begin another regrade") from error


def _as_regrade(row: sqlite3.Row) -> Regrade:
    return Regrade(
        first=as_summary(row),
        outcome=Outcome(row["new_outcome"]),
        reward=row["new_reward"],
        scores=load_numbers(row["new_scores"]),
        metrics=load_numbers(row["new_metrics"]),
        fault=None if row["fault"] is None else Fault(**json.loads(row["fault"])),
    )
