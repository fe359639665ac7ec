"""Dropping old trajectories: rows, scores and rewards stay."""

from __future__ import annotations

from etude.store.part import StorePart
from etude.store.records import Pruned, Retention

_PAGE = 500  # trajectories dropped in one transaction: other writers get their turn
_RECLAIMED_PAGES = 2000  # likewise, pages of 4 KiB given back to the file system
_DAY_S = 86400


class Pruning(StorePart):
    """The table `payloads`: not every rollout has a row there."""

    def prune(self, retention: Retention, *, run: str | None = None) -> Pruned:
        """Drop the trajectories, messages and states that `retention` does not keep, of one run or of all, and give
        their space back to the file system. Raises StorageError."""
        condition = _not_kept(retention)
        if condition is None:
            return Pruned(rollouts=0, bytes=0)
        values = {"run": run, "before": self._clock() - _DAY_S * (retention.days or 0), "steps": retention.steps}
        count = size = 0
        more = True
        while more:
            with self._db.write("drop old trajectories") as connection:
                page = connection.execute(
                    "SELECT rollout, length(data) FROM payloads JOIN rollouts AS old ON old.id = rollout"
                    f" WHERE (:run IS NULL OR run = :run) AND {condition} LIMIT {_PAGE}",
                    values,
                ).fetchall()
                connection.executemany("DELETE FROM payloads WHERE rollout = ?", [(row[0],) for row in page])
            count, size = count + len(page), size + sum(row[1] for row in page)
            more = len(page) == _PAGE
        while self._db.reclaim(_RECLAIMED_PAGES):
            continue
        return Pruned(rollouts=count, bytes=size)


def _not_kept(retention: Retention) -> str | None:
    if retention.days is not None:
        return "time < :before"
    if retention.steps is not None:
        return "step <= (SELECT max(step) FROM rollouts WHERE run = old.run) - :steps"
    return None
