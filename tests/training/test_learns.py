"""A randomly initialised model learns to use tools from reward alone, and does not where rewards are shuffled."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.symbols import drawers, save_symbol_model

import etude
from etude.environment.environment import Environment
from etude.store.store import Store


def rewarded(environment: Environment, folder: Path, seed: int, steps: int) -> list[float]:
    """Share of correct attempts in each step."""
    model = save_symbol_model(folder / "model", seed)
    result = etude.train(
        environment,
        model=str(model),
        steps=steps,
        seed=seed,
        workspace=str(folder / "work"),
        sampling={"groups_per_step": 16, "rollouts_per_group": 8, "max_concurrent": 128},
        learning={"lr": 5e-3},
        training={"checkpoint_every": steps, "keep_rollouts": "none"},
        **{"model_chat": "symbols"} if False else {},
    )
    with Store.open(folder / "work") as store:
        return [step.metrics["metric/answer_correct"] for step in store.steps(result.run_id)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reward_rises_with_true_rewards(tmp_path: Path, seed: int) -> None:
    correct = rewarded(drawers(), tmp_path, seed, 40)
    print(correct)
