"""kill -9 at random moments, some while a checkpoint is being written: what is resumed ends as if nothing had been.

The processes are real; the world has real gradients. Weights and optimizer are compared bit for bit, and the store's
steps and rollouts, down to every token, with those of a run that nobody killed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.lives import Life, Nursery, wait
from support.training import GROUPS, ROLLOUTS, assert_same_tensors, optimizer_of, weights_of

from etude.store.store import Store

STEPS = 6
MOST_KILLS = 100
VALIDATED: dict[str, Any] = {"eval_every": 2, "eval_scenarios": 6, "keep_best": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "on-policy": {},
    "one step behind": {"sampling": {"staleness": 1}},
    "an adapter held to its start, groups refilled": {
        "model": {"lora": {"rank": 2}},
        "learning": {"loss_overrides": {"kl": "k2", "kl_coefficient": 0.1}, "schedule": "cosine"},
        "training": {"zero_variance": "refill"},
    },
}


def settings(name: str) -> dict[str, Any]:
    chosen = SETTINGS[name]
    return {**chosen, "steps": STEPS, "training": {**VALIDATED, **chosen.get("training", {})}}


def story(folder: Path) -> tuple[Path, list[Any], list[Any]]:
    """The folder of the only run, its steps without times, and its rollouts in an order of their own."""
    with Store.open(folder / "work") as store:
        (run,) = store.runs()
        assert run.status == "succeeded"
        steps = [
            (step.step, {name: value for name, value in step.metrics.items() if not _is_of_the_process(name)})
            for step in store.steps(run.id)
        ]
        rollouts = sorted(
            (
                saved.summary.step,
                saved.summary.phase,
                saved.summary.group,
                saved.summary.attempt,
                saved.summary.scenario_id,
                saved.summary.reward,
                saved.summary.stop,
                [(row.tokens.tolist(), row.logprobs.tobytes(), row.version.tolist()) for row in rows],
            )
            for saved in store.iter_rollouts(run.id)
            for rows in [saved.rollout.trajectory.rows]
        )
        validations = [event.step for event in store.events(run.id) if event.type == "validation"]
        assert validations == list(range(0, STEPS + 1, 2))
    return folder / "work" / "runs" / run.id, steps, rollouts


def _is_of_the_process(name: str) -> bool:
    """Clocks and memory; and the engine's counters, which begin anew with each process."""
    return name.startswith(("time/", "memory/", "engine/"))


@dataclass
class Reaper:
    """Kills lives of one run until it has ended all the same."""

    nursery: Nursery
    draw: random.Random
    kills: int = 0
    torn: int = 0  # kills that left a half-written checkpoint

    def end(self, folder: Path, kills: int, **settings: Any) -> None:
        """Runs to its end, killed at most until there were `kills` in all."""
        folder.mkdir()
        while (status := self._status(folder)) != "succeeded":
            resume = None if status is None else "last"
            life = self.nursery.train(folder, resume=resume, **settings)
            if self.kills < kills:
                self._wait_for_a_moment(life, folder)
            else:
                life.wait()
            if life.kill():
                self.kills += 1
                self.torn += bool(self._temporaries(folder))

    def _status(self, folder: Path) -> str | None:
        """Of the only run; None where a life ended before there was one."""
        if not (folder / "work" / "etude.db").exists():
            return None
        with Store.open(folder / "work") as store:
            return next((run.status for run in store.runs()), None)

    def _wait_for_a_moment(self, life: Life, folder: Path) -> None:
        if self.draw.random() < 0.5:  # while a checkpoint is written, or renamed, or deleted
            before, count, seen = self._temporaries(folder), self.draw.randint(1, 3), set[Path]()

            def writing() -> bool:
                seen.update(self._temporaries(folder) - before)
                return len(seen) >= count or life.ended()

            wait(writing)
        moment = time.monotonic() + self.draw.choice([0.01, 0.1, 1.0]) * self.draw.random()
        wait(lambda: time.monotonic() > moment or life.ended())

    def _temporaries(self, folder: Path) -> set[Path]:
        return set(folder.glob("work/runs/*/checkpoints/.tmp-*"))


def resumed_equals_uninterrupted(
    folder: Path, nursery: Nursery, kills: int, name: str, seed: int, torn: int = 0
) -> Reaper:
    """torn: kills go on until so many have left a half-written checkpoint; where they fall is chance."""
    chosen = settings(name)
    Reaper(nursery, random.Random(seed)).end(folder / "whole", 0, **chosen)
    whole, steps, rollouts = story(folder / "whole")
    assert [step for step, _ in steps] == list(range(1, STEPS + 1))
    reaper = Reaper(nursery, random.Random(seed))
    while reaper.kills < kills or (reaper.torn < torn and reaper.kills < MOST_KILLS):
        lives = folder / f"lives-{reaper.kills}"
        reaper.end(lives, max(kills, reaper.kills + 5), **chosen)
        run, steps_again, rollouts_again = story(lives)
        assert_same_tensors(weights_of(run), weights_of(whole))
        assert_same_tensors(optimizer_of(run), optimizer_of(whole))
        assert steps_again == steps
        assert rollouts_again == rollouts
        kept = [path.name for path in sorted((run / "checkpoints").iterdir())]
        assert kept == [path.name for path in sorted((whole / "checkpoints").iterdir())]
    assert reaper.kills >= kills
    return reaper


@pytest.mark.parametrize("name", ["on-policy", "one step behind"])
def test_three_kills(tmp_path: Path, nursery: Nursery, name: str) -> None:
    resumed_equals_uninterrupted(tmp_path, nursery, kills=3, name=name, seed=1)


@pytest.mark.acceptance
@pytest.mark.parametrize("name", SETTINGS)
def test_twenty_kills(tmp_path: Path, nursery: Nursery, name: str) -> None:
    reaper = resumed_equals_uninterrupted(tmp_path, nursery, kills=20, name=name, seed=2, torn=3)
    assert reaper.torn >= 3, "too few kills fell into the writing of a checkpoint"


def test_without_lockstep_nothing_is_lost_and_nothing_trained_twice(tmp_path: Path, nursery: Nursery) -> None:
    """Then timing decides which groups make a step, and groups in flight are played again."""
    reaper = Reaper(nursery, random.Random(5))
    chosen = {"steps": STEPS, "deterministic": False, "sampling": {"staleness": 1, "max_concurrent": 6}}
    reaper.end(tmp_path / "lives", kills=3, **chosen)
    assert reaper.kills == 3
    with Store.open(tmp_path / "lives" / "work") as store:
        (run,) = store.runs()
        assert run.status == "succeeded"
        assert [step.step for step in store.steps(run.id)] == list(range(1, STEPS + 1))
        dropped = {str(event.data["group"]) for event in store.events(run.id) if event.type == "dropped"}
        trained = [(row.step, row.group) for row in store.rollouts(run.id) if row.group not in dropped]
    assert set(Counter(trained).values()) == {ROLLOUTS}
    assert Counter(step for step, _ in set(trained)) == dict.fromkeys(range(1, STEPS + 1), GROUPS)
    assert len({group for _, group in trained}) == GROUPS * STEPS
