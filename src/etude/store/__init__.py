"""The run store: every run, step, rollout and event, in one SQLite file that other processes may read meanwhile."""

from etude.store.encoding import decode_rollout, encode_rollout, why_not_json
from etude.store.records import (
    Event,
    Level,
    Pruned,
    Regrade,
    Retention,
    RolloutFilter,
    RolloutSummary,
    Run,
    RunKind,
    RunStatus,
    SavedRollout,
    Step,
)
from etude.store.store import Store

__all__ = [
    "Event",
    "Level",
    "Pruned",
    "Regrade",
    "Retention",
    "RolloutFilter",
    "RolloutSummary",
    "Run",
    "RunKind",
    "RunStatus",
    "SavedRollout",
    "Step",
    "Store",
    "decode_rollout",
    "encode_rollout",
    "why_not_json",
]
