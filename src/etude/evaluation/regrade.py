"""`etude regrade`: recompute rewards over saved rollouts with today's rubric, without a model and without tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.errors import ConfigError
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.player import finish
from etude.rollout.rollout import Rollout
from etude.store.records import SavedRollout
from etude.store.store import Store
from etude.training.config import parse_config
from etude.training.events import Observer, RolloutsDone, silent
from etude.training.run import recorded_end
from etude.training.runtime import PLAYED, build_environment

BATCH = 256


@dataclass(frozen=True, slots=True)
class Regraded:
    """changed: rollouts whose reward is another now. faults: rollouts that the new rubric could not grade; they keep
    no reward in the new grading. compared: those that have a reward in both gradings; old_mean,
    new_mean: over them (NaN where there are none)."""

    run_id: str
    graded: int
    changed: int
    faults: int
    compared: int
    old_mean: float
    new_mean: float


def regrade(store: Store, run: str, *, environment: Environment | None = None, observer: Observer = silent) -> Regraded:
    """Grades every saved rollout of a run again. The old rewards are kept beside the new ones.

    environment: default the one of the run's configuration, as its code is today. Raises ConfigError where the run or
    its environment cannot be found, StorageError where trajectories were pruned."""
    info = store.find_run(run, kinds=PLAYED if run == "last" else None)
    if environment is None:
        environment = build_environment(parse_config(info.config))
    total = store.count_rollouts(info.id)
    if not total:
        raise ConfigError(f"run {info.id} has no rollouts to grade")
    grading = store.create_run(
        "regrade", name=info.name, environment=environment.name, model=info.model, config=info.config, parent=info.id
    )
    pairs: list[tuple[float, float]] = []
    changed = faults = done = 0
    with recorded_end(store, grading, f"stopped; {grading} is marked cancelled."):
        saved = store.iter_rollouts(info.id)
        while batch := list(islice(saved, BATCH)):
            fresh = asyncio.run(_grade_again(environment, batch))
            store.add_regrades(grading, fresh)
            for old, new in zip((each.rollout for each in batch), fresh, strict=True):
                changed += old.reward != new.reward
                faults += new.outcome is Outcome.GRADER_FAULT
                if old.reward is not None and new.reward is not None:
                    pairs.append((old.reward, new.reward))
            done += len(batch)
            observer(RolloutsDone("regrade", done, total))
    old_mean, new_mean = (_mean([pair[side] for pair in pairs]) for side in (0, 1))
    return Regraded(grading, done, changed, faults, len(pairs), old_mean, new_mean)


async def _grade_again(environment: Environment, batch: Sequence[SavedRollout]) -> list[Rollout]:
    return await asyncio.gather(*(_again(environment, saved.rollout, saved.scenario) for saved in batch))


async def _again(environment: Environment, rollout: Rollout, scenario: Scenario) -> Rollout:
    """A rollout whose grader had broken gets its chance again; other faults stay ungraded."""
    outcome, fault = rollout.outcome, rollout.fault
    if outcome is Outcome.GRADER_FAULT:  # what it was before it was graded
        outcome, fault = Outcome.OK if rollout.stop is Stop.ANSWERED else Outcome.POLICY_FAULT, None
    fresh = replace(rollout, outcome=outcome, fault=fault, reward=None, scores={}, metrics={})
    return await finish(environment, fresh, scenario)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
