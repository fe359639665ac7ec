"""Rollouts made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from etude.environment.calls import Fault
from etude.environment.scenario import Scenario
from etude.rollout.group import Group, Ticket
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import Rollout
from etude.rollout.trajectory import Row, Trajectory


def row(prompt: int, actions: int, version: int = 0) -> Row:
    """`prompt` tokens that were given, then `actions` that were sampled."""
    mask = np.array([False] * prompt + [True] * actions)
    return Row(
        tokens=np.arange(prompt + actions, dtype=np.int32),
        action_mask=mask,
        logprobs=np.where(mask, np.float32(-1.0), np.float32("nan")).astype(np.float32),
        version=np.where(mask, version, -1).astype(np.int32),
        turn=np.zeros(prompt + actions, np.int16),
    )


def rollout(reward: float | None, *rows: Row, **fields: Any) -> Rollout:
    """One with a reward is ok, one without is an env_fault."""
    fault = None if reward is not None else Fault("tool:search", "timeout", "no answer in 30 s")
    made = {
        "trace_id": "trace_x",
        "scenario_id": "s",
        "split": "train",
        "attempt": 0,
        "outcome": Outcome.OK if reward is not None else Outcome.ENV_FAULT,
        "stop": Stop.ANSWERED if reward is not None else Stop.TOOL_FAULT,
        "messages": (),
        "calls": (),
        "trajectory": Trajectory(rows or (row(2, 2),)),
        "reward": reward,
        "fault": fault,
    }
    return Rollout(**{**made, **fields})


def group(*rollouts: Rollout, number: int = 0) -> Group:
    return Group(Ticket(number, Scenario(f"s{number}", "train", {})), list(rollouts))
