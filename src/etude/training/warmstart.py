"""The supervised warm start (`etude sft`): imitate traces, token by token, before reinforcement."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from etude.errors import DataError
from etude.learning.learner import Learner
from etude.learning.rows import TrainingRow
from etude.learning.warmstart import trace_rows
from etude.rollout.pool import PoolState
from etude.rollout.sampler import EpochSampler
from etude.rollout.traces import Trace, rows_from
from etude.training.checkpoints import Checkpoint, Checkpoints
from etude.training.learner_config import learner_config
from etude.training.recorder import Recorder
from etude.training.runtime import Runtime, peak_memory_gib, pick
from etude.training.state import read_state, write_state


class WarmStart:
    """One supervised run. Steps go through the rows in an order that seed and epoch decide."""

    def __init__(
        self,
        runtime: Runtime,
        recorder: Recorder,
        checkpoints: Checkpoints,
        traces: Sequence[Trace],
        resume: Checkpoint | None = None,
    ) -> None:
        config = runtime.config
        self.config, self.runtime, self.recorder, self.checkpoints = config, runtime, recorder, checkpoints
        self.learner = Learner(runtime.loaded.model, learner_config(config, runtime.environment.limits.max_tokens))
        if resume is not None:
            sampler = EpochSampler(pick(runtime.environment, "train", None), config.seed)
            read_state(resume.path, runtime.loaded, self.learner, sampler)
        self.rows, self.too_long = rows_from(runtime.chat, traces, config.sft.max_tokens_per_row)
        if not self.rows:
            raise DataError(f"all {len(traces)} traces are longer than {config.sft.max_tokens_per_row} tokens")
        per_epoch = math.ceil(len(self.rows) / config.sft.rows_per_step)
        self.steps = min(config.training.steps, config.sft.epochs * per_epoch)

    async def run(self) -> None:
        if self.too_long:
            self.recorder.note(
                "warn", f"{self.too_long} traces dropped: longer than {self.config.sft.max_tokens_per_row} tokens"
            )
        while self.learner.version < self.steps:
            started = time.perf_counter()
            rows = self._rows_of_step(self.learner.version)
            stats = await self.runtime.in_compute(partial(self.learner.sft_step, rows))
            metrics = {
                **{f"learner/{name}": value for name, value in stats.metrics().items()},
                "tokens/trained": float(sum(row.action_mask.sum() for row in rows)),
                "time/step_s": time.perf_counter() - started,
                "memory/peak_gib": peak_memory_gib(),
            }
            self.recorder.step(self.learner.version, self.steps, metrics)
            version = self.learner.version
            if version % self.config.training.checkpoint_every == 0 or version == self.steps:
                await self.runtime.in_compute(
                    partial(self.checkpoints.save, version, self._write, {"version": version})
                )

    def _write(self, folder: Path) -> None:
        write_state(folder, self.runtime.loaded, self.learner, PoolState())

    def _rows_of_step(self, step: int) -> list[TrainingRow]:
        size = self.config.sft.rows_per_step
        per_epoch = math.ceil(len(self.rows) / size)
        epoch, part = divmod(step, per_epoch)
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.rows))
        rows = [self.rows[int(index)] for index in order[part * size :][:size]]
        return trace_rows((row.tokens, row.action_mask) for row in rows)
