"""A randomly initialised model learns to use tools from reward alone, and does not where rewards are shuffled.

What is measured is the share of attempts that were right, whatever was rewarded. `rose` is the statement: the 95 %
interval of the rise from the first ten steps to the last ten lies above 20 points.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.symbols import drawers, save_symbol_model, symbol_model

import etude
from etude.evaluation.statistics import Interval, paired_difference
from etude.training.events import Event, StepDone

STEPS = 30
WINDOW = 10
LEAST_RISE = 0.2


def share_correct(folder: Path, seed: int, *, shuffled: bool) -> list[float]:
    """Share of right attempts in each training step."""
    shares: list[float] = []

    def observe(event: Event) -> None:
        if isinstance(event, StepDone):
            shares.append(event.metrics["metric/answer_correct"])

    etude.train(
        drawers(),
        model={"name": str(save_symbol_model(folder / "model", seed)), "chat": "symbols"},
        steps=STEPS,
        observer=observe,
        seed=seed,
        deterministic=True,
        threads=1,
        workspace=str(folder / "work"),
        sampling={"groups_per_step": 8, "rollouts_per_group": 8},
        learning={"lr": 5e-3, "shuffle_rewards": shuffled},
        training={"checkpoint_every": STEPS},
    )
    return shares


def rise(shares: list[float], seed: int) -> Interval:
    assert len(shares) == STEPS
    return paired_difference(shares[:WINDOW], shares[-WINDOW:], seed=seed)


def rose(interval: Interval) -> bool:
    return interval.low > LEAST_RISE


def test_the_model_is_small_and_random() -> None:
    first, second = symbol_model(seed=0), symbol_model(seed=1)
    assert sum(parameter.numel() for parameter in first.parameters()) < 500_000
    assert not torch.equal(first.lm_head.weight, second.lm_head.weight)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.acceptance) for seed in (1, 2))])
def test_reward_alone_teaches_to_use_tools(tmp_path: Path, seed: int) -> None:
    shares = share_correct(tmp_path, seed, shuffled=False)
    assert rose(rise(shares, seed)), shares
    assert sum(shares[:3]) / 3 < 0.2, "there was nothing left to learn"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.acceptance) for seed in (1, 2))])
def test_shuffled_rewards_teach_nothing(tmp_path: Path, seed: int) -> None:
    shares = share_correct(tmp_path, seed, shuffled=True)
    assert not rose(rise(shares, seed)), shares
    assert rise(shares, seed).high < LEAST_RISE, shares
