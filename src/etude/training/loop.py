"""The training loop: play groups, turn rewards into advantages, step, checkpoint, validate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from etude.engine.local import LocalEngine
from etude.errors import RunPaused
from etude.evaluation.evaluate import play_scenarios, tickets_of
from etude.learning.learner import Learner
from etude.rollout.group import Group
from etude.rollout.player import Player
from etude.rollout.pool import Pool, PoolSettings
from etude.rollout.sampler import EpochSampler
from etude.store.records import Retention
from etude.training.batch import training_rows
from etude.training.checkpoints import Checkpoint, Checkpoints
from etude.training.health.figures import step_figures
from etude.training.health.watch import Watch
from etude.training.learner_config import learner_config
from etude.training.ledger import KEPT, Ledger, account, group_ended
from etude.training.recorder import Recorder
from etude.training.runtime import Runtime, peak_memory_gib, pick
from etude.training.state import read_state, write_state
from etude.training.summary import group_figures, summarize


class Trainer:
    """One run of reinforcement. Made from a runtime and, where it resumes, a checkpoint."""

    def __init__(
        self, runtime: Runtime, recorder: Recorder, checkpoints: Checkpoints, resume: Checkpoint | None = None
    ) -> None:
        config = runtime.config
        self.config, self.runtime, self.recorder, self.checkpoints = config, runtime, recorder, checkpoints
        self.learner = Learner(runtime.loaded.model, learner_config(config, runtime.environment.limits.max_tokens))
        sampler = EpochSampler(pick(runtime.environment, "train", None), config.seed)
        state = None
        if resume is not None:
            state = read_state(resume.path, runtime.loaded, self.learner, sampler)
        self.engine = make_engine(runtime, self.concurrency, lambda: self.learner.version)
        self.player = self._player(config.sampling.temperature)
        self.pool = Pool(
            PoolSettings(
                groups_per_step=config.sampling.groups_per_step,
                staleness=config.sampling.staleness,
                lockstep=config.deterministic,
                refill=config.training.zero_variance == "refill",
                refill_limit=config.training.refill_limit,
                max_fault_rate=config.training.max_fault_rate,
            ),
            sampler,
            lambda ticket: self.player.group(ticket, config.sampling.rollouts_per_group),
            self._group_done,
            state,
        )
        self._done_this_step = 0
        self.watch = Watch(config.health, recorder)
        self._dropped: list[tuple[str, Group]] = []  # since the last step: why, and what

    @property
    def concurrency(self) -> int:
        """Slots of the engine: in lock-step a whole wave plays at once."""
        sampling = self.config.sampling
        if not self.config.deterministic:
            return sampling.max_concurrent
        return max(
            sampling.max_concurrent,
            (sampling.staleness + 1) * sampling.groups_per_step * sampling.rollouts_per_group,
        )

    async def run(self) -> None:
        """Trains until the last step. Raises what stops a run; what is checkpointed stays."""
        try:
            await self._validate_if_due()
            await self._look()
            while self.learner.version < self.config.training.steps:
                await self._step()
                await self._checkpoint_if_due()
                await self._validate_if_due()
                await self._look()
        finally:
            await self.pool.aclose()
            await self.engine.aclose()

    async def _step(self) -> None:
        started = time.perf_counter()
        self._done_this_step = 0
        dropped_before = self.pool.dropped.copy()
        sampled_for = self.learner.version
        groups = await self.pool.next_step(sampled_for)
        sampled = time.perf_counter()
        rows = training_rows(groups, self.config.learning.advantage, self._shuffle())
        stats = await self.runtime.in_compute(partial(self.learner.step, rows))
        ended = time.perf_counter()
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        metrics = {
            **summarize(rollouts, [rollout for group in groups for rollout in group.faulted]),
            **group_figures(groups),
            **self._ledger(groups).metrics(),
            **step_figures(groups, [group for _, group in self._dropped], sampled_for, self.config.health.held_out),
            **{f"learner/{name}": value for name, value in stats.metrics().items()},
            **{f"dropped/{reason}": count for reason, count in (self.pool.dropped - dropped_before).items()},
            **{f"engine/{name}": value for name, value in self.engine.stats.take().items()},
            "time/sampling_s": sampled - started,
            "time/learning_s": ended - sampled,
            "time/step_s": ended - started,
            "memory/peak_gib": peak_memory_gib(),
        }
        for group in groups:
            self.recorder.group(self.learner.version, "train", group)
        self._dropped = []
        self.recorder.step(self.learner.version, self.config.training.steps, metrics)

    def _ledger(self, groups: Sequence[Group]) -> Ledger:
        """What became of every rollout that this step decided on."""
        decided = [*self._dropped, *((KEPT, group) for group in groups)]
        waiting = sum(len(group_ended(group)) for group in self.pool.state().waiting)
        ended = [(fate, group_ended(group)) for fate, group in decided]
        return account(ended, self.config.learning.advantage, waiting)

    def _shuffle(self) -> np.random.Generator | None:
        """Of this step alone, so that a resumed run draws the same."""
        if not self.config.learning.shuffle_rewards:
            return None
        return np.random.default_rng([self.config.seed, self.learner.version])

    async def _group_done(self, group: Group, fate: str) -> None:
        """Called for every group as it finishes. A kept one is stored by the step that trains it, so that a run which
        goes back to a checkpoint finds exactly what was trained until then."""
        self._done_this_step += 1
        sampling = self.config.sampling
        if fate != KEPT:
            self._dropped.append((fate, group))
            self.recorder.group(self.learner.version + 1, "train", group, fate)
        done = self._done_this_step * sampling.rollouts_per_group
        total = max(sampling.groups_per_step * sampling.rollouts_per_group, done)
        self.recorder.progress("train", done, total)

    async def _look(self) -> None:
        """Health, after all of a step. Raises RunPaused where an alert is to pause the run, with a checkpoint of this
        step, so that it goes on from here."""
        if not self.config.health.enabled:
            return
        pausing = [alert for alert in self.watch.look() if self.watch.pauses(alert)]
        if not pausing or self.learner.version >= self.config.training.steps:
            return
        latest = self.checkpoints.latest()
        if latest is None or latest.step != self.learner.version:
            await self._checkpoint()
        raise RunPaused("\n".join(f"paused at step {a.step} by {a.rule}: {a.message}. {a.advice}" for a in pausing))

    async def _checkpoint_if_due(self) -> None:
        version, training = self.learner.version, self.config.training
        if version % training.checkpoint_every == 0 or version == training.steps:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        version, training = self.learner.version, self.config.training
        write: Callable[[Path], None] = partial(
            write_state, loaded=self.runtime.loaded, learner=self.learner, pool=self.pool.state()
        )
        await self.runtime.in_compute(partial(self.checkpoints.save, version, write, {"version": version}))
        if isinstance(training.keep_rollouts, int):
            retention = Retention(steps=training.keep_rollouts)
            self.recorder.store.prune(retention, run=self.recorder.run_id)

    async def _validate_if_due(self) -> None:
        """Every eval_every steps, step 0 and the last one too. A resumed run validates what it had not yet."""
        version, training = self.learner.version, self.config.training
        if not training.eval_every or (version % training.eval_every and version != training.steps):
            return
        if self.recorder.was_validated(version):
            return
        self.recorder.store.delete_rollouts(self.recorder.run_id, phase="validation", step=version)
        scenarios = pick(self.runtime.environment, "validation", training.eval_scenarios)
        groups = await play_scenarios(
            self._player(training.eval_temperature),
            tickets_of(scenarios),
            training.eval_attempts,
            name=f"validation-{version}",
            chunk=self.concurrency if self.config.deterministic else None,
            on_group=lambda group: self.recorder.group(version, "validation", group),
            on_progress=partial(self.recorder.progress, "validation"),
        )
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        metrics = summarize(rollouts)
        if version and "reward/mean" in metrics:
            self.checkpoints.set_validation(version, metrics["reward/mean"])
        self.recorder.validated(version, "validation", metrics)  # last: a run that dies before it validates again

    def _player(self, temperature: float) -> Player:
        return Player(
            environment=self.runtime.environment,
            engine=self.engine,
            chat=self.runtime.chat,
            seed=self.config.seed,
            temperature=temperature,
            max_retries=self.config.sampling.max_retries,
            max_concurrent=None if self.config.deterministic else self.config.sampling.max_concurrent,
        )


def make_engine(runtime: Runtime, slots: int, version: Callable[[], int]) -> LocalEngine:
    return LocalEngine(
        runtime.loaded.model,
        max_slots=slots,
        max_context=runtime.environment.limits.max_tokens,
        lockstep=runtime.config.deterministic,
        version_of=version,
        compute=runtime.compute,
    )
