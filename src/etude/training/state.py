"""What a checkpoint holds besides the weights, written and read: optimizer, random states, sampler position, queue."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.learning.learner import Learner
from etude.model.load import LoadedModel, load_weights, save_model
from etude.rollout.group import Group, Ticket
from etude.rollout.pool import PoolState
from etude.rollout.sampler import EpochSampler
from etude.store.encoding import decode_rollout, encode_rollout


def write_state(folder: Path, loaded: LoadedModel, learner: Learner, pool: PoolState) -> None:
    """Everything that a resumed run needs to equal the uninterrupted one, bit for bit."""
    save_model(loaded, folder / "model")
    state = learner.state_dict()
    del state["weights"]  # they are in model/, as anything can load them
    torch.save({"learner": state, "random": _random_states()}, folder / "learner.pt")
    queue = folder / "queue"
    queue.mkdir()
    groups = []
    for group in pool.waiting:
        groups.append({"ticket": group.ticket.number, "rollouts": [], "faulted": []})
        for part in ("rollouts", "faulted"):
            for index, rollout in enumerate(getattr(group, part)):
                name = f"{group.ticket.number:08d}-{part}-{index:04d}.bin"
                (queue / name).write_bytes(encode_rollout(rollout))
                groups[-1][part].append(name)  # type: ignore[attr-defined]  # a dict of mixed values
    state = {
        "next_ticket": pool.next_ticket,
        "trained": pool.trained,
        "pending": pool.pending,
        "waiting": groups,
    }
    (folder / "pool.json").write_text(json.dumps(state), encoding="utf-8")


def read_state(folder: Path, loaded: LoadedModel, learner: Learner, sampler: EpochSampler) -> PoolState:
    """Puts weights, optimizer and random states back; returns the pool's."""
    load_weights(loaded, folder / "model")
    saved = torch.load(folder / "learner.pt", weights_only=False)
    learner.load_state_dict({**saved["learner"], "weights": learner.state_dict()["weights"]})
    _restore_random(saved["random"])
    state = json.loads((folder / "pool.json").read_text(encoding="utf-8"))

    def rollouts(names: list[str]) -> list[Any]:
        return [decode_rollout((folder / "queue" / name).read_bytes()) for name in names]

    waiting = [
        Group(Ticket(each["ticket"], sampler(each["ticket"])), rollouts(each["rollouts"]), rollouts(each["faulted"]))
        for each in state["waiting"]
    ]
    return PoolState(state["next_ticket"], state["trained"], state["pending"], waiting)


def _random_states() -> dict[str, Any]:
    return {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}


def _restore_random(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])
