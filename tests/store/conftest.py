"""A store in a fresh workspace with a clock that the test sets, and rollouts to put into it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.environment.calls import ToolCall
from etude.environment.scenario import Scenario
from etude.rollout.messages import Message
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import CallRecord, Rollout
from etude.rollout.trajectory import Row, Trajectory
from etude.store import Store


@dataclass
class Clock:
    now: float = 1_795_993_000.0  # 29 November 2026, 22:56:40 UTC

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with Store.open(tmp_path / "workspace", clock=clock) as opened:
        yield opened


@pytest.fixture
def new_run(store: Store) -> Callable[..., str]:
    def create(kind: Any = "train", parent: str | None = None, name: str = "a run") -> str:
        return store.create_run(kind, name=name, environment="shop", model="tiny", config={"seed": 1}, parent=parent)

    return create


@pytest.fixture
def scenario() -> Scenario:
    return Scenario("q-1", "train", {"question": "Where is the café?", "answer": ["Rue 1", None, 2.5]})


@pytest.fixture
def make_rollout() -> Callable[..., Rollout]:
    numbers = itertools.count()

    def make(tokens: int = 12, **fields: Any) -> Rollout:
        number = next(numbers)
        mask = np.arange(tokens) % 3 == 2
        row = Row(
            tokens=np.random.default_rng(number).integers(0, 50_000, tokens).astype(np.int32),
            action_mask=mask,
            logprobs=np.where(mask, -0.25, np.nan).astype(np.float32),
            version=np.where(mask, 3, -1).astype(np.int32),
            turn=np.zeros(tokens, dtype=np.int16),
        )
        call = ToolCall("search", {"words": ["café"]}, "call_1")
        values: dict[str, Any] = {
            "trace_id": f"trace_{number:04d}",
            "scenario_id": "q-1",
            "split": "train",
            "attempt": 0,
            "outcome": Outcome.OK,
            "stop": Stop.ANSWERED,
            "messages": (Message("user", "Where?"), Message("assistant", "I look.", (call,))),
            "calls": (CallRecord(0, "call_1", "search", {"words": ["café"]}, "Rue 1", "ok", 0.01, 4),),
            "trajectory": Trajectory((row,), drift=0),
            "reward": 0.5,
            "scores": {"correct": 1.0},
            "metrics": {"turns": 2.0},
        }
        return Rollout(**{**values, **fields})

    return make
