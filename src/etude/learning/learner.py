"""The learner: rows in, weights changed, version + 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from etude.errors import ConfigError, TrainingError
from etude.learning.config import LearnerConfig, LossConfig
from etude.learning.logprobs import action_logprobs
from etude.learning.losses import LossInputs, LossStats, policy_loss, token_weights
from etude.learning.optimizer import Optimizer, learning_rate, load_parameters
from etude.learning.packing import UNKNOWN_VERSION, PackedBatch, pack, plan_micro_batches
from etude.learning.reference import Reference
from etude.learning.rows import TrainingRow
from etude.learning.stats import StepStats, UpdateStats, policy_stats
from etude.learning.warmstart import sft_loss

__all__ = ["Learner", "LearnerConfig", "StepStats", "UpdateStats"]


@dataclass(slots=True)
class _MicroBatch:
    """A packed batch with the log-probabilities that stay the same over the batch's updates."""

    packed: PackedBatch
    logp_old: Float[Tensor, "actions"] | None = None
    logp_ref: Float[Tensor, "actions"] | None = None

    def loss_inputs(self) -> LossInputs:
        return LossInputs(
            logp_rollout=self.packed.logp_rollout,
            advantages=self.packed.advantages,
            weights=self.packed.weights,
            trajectory=self.packed.trajectory,
            row=self.packed.row,
            logp_old=self.logp_old,
            logp_ref=self.logp_ref,
        )


class Learner:
    """Trains `model` in place: the parameters that require a gradient, all of them or an adapter's.

    model: causal language model with Etude's attention (`etude.model.load`). Its version counts calls of `step` and
    `sft_step`, each of which is one batch. On a CPU the same calls give the same weights, bit for bit.

    Raises ConfigError for a model with dropout (the ratio would not be 1 before the first update) or with nothing to
    train.
    """

    def __init__(self, model: nn.Module, config: LearnerConfig) -> None:
        _refuse_dropout(model)
        self.model = model.eval()
        self.config = config
        self._version = 0
        self._optimizer = Optimizer(model, config)
        self._device = next(iter(self._optimizer.parameters.values())).device
        self._reference = Reference(model) if config.loss.kl != "none" else None
        if config.gradient_checkpointing:
            _enable_checkpointing(model)

    @property
    def version(self) -> int:
        """How many batches these weights have learnt from."""
        return self._version

    def step(self, rows: Sequence[TrainingRow]) -> StepStats:
        """Learn from the rows of a batch of groups: all scored ones, those without variance too.

        Rows whose advantage is 0 count in every denominator; without a KL they cannot change the weights and do not go
        through the model. Raises TrainingError where a loss or a gradient is not finite (the weights are as they were
        before that update), ValueError for rows without log-probabilities from a rollout.
        """
        _refuse_unsampled(rows)
        loss_config = self.config.loss
        weights = token_weights([row.num_actions for row in rows], loss_config)
        trained = [index for index, row in enumerate(rows) if row.advantage != 0 or self._reference is not None]
        batches = [
            _MicroBatch(packed, logp_ref=self._reference_logprobs(packed))
            for packed in self._pack(
                [rows[index] for index in trained],
                weights[trained],
                keep_trajectories=loss_config.ratio == "sequence",
            )
        ]
        parts: list[LossStats] = []
        gaps: list[Tensor] = []

        def loss_of(batch: _MicroBatch) -> Tensor:
            logp, entropy = self._forward(self.model, batch.packed, entropy=self.config.entropy)
            if batch.logp_old is None:  # the first update: what is now is what the later ones call old
                batch.logp_old = logp.detach()
                gaps.append(_gaps(batch.logp_old, batch.packed, self._version))
            loss, part = policy_loss(logp, batch.loss_inputs(), loss_config, entropy)
            parts.append(part)
            return loss

        updates = [self._update(batches, loss_of) for _ in range(self.config.updates_per_batch)]
        done = self._finish(len(rows), batches, updates)
        moved = policy_stats(parts, gaps, entropy=self.config.entropy, kl=self._reference is not None)
        return StepStats(**asdict(done), **moved)

    def sft_step(self, rows: Sequence[TrainingRow]) -> UpdateStats:
        """Imitate the rows' action tokens: cross-entropy at temperature 1, its mean over the batch's action tokens.

        Raises TrainingError as `step` does.
        """
        weights = token_weights([row.num_actions for row in rows], LossConfig(aggregation="token"))
        batches = [_MicroBatch(packed) for packed in self._pack(rows, weights)]

        def loss_of(batch: _MicroBatch) -> Tensor:
            logp, _ = self._forward(self.model, batch.packed, temperature=1.0)
            return sft_loss(logp, batch.packed.weights)

        return self._finish(len(rows), batches, [self._update(batches, loss_of)])

    def logprobs(self, rows: Sequence[TrainingRow]) -> list[NDArray[np.float32]]:
        """The current log-probability of each row's action tokens under the sampling temperature, NaN elsewhere."""
        result = [np.full(len(row), np.nan, dtype=np.float32) for row in rows]
        for indexes in self._plan(rows):
            members = [rows[index] for index in indexes]
            with torch.no_grad():
                logp, _ = self._forward(self.model, pack(members, np.zeros(len(members)), self._device))
            ends = np.cumsum([row.num_actions for row in members])
            for index, part in zip(indexes, np.split(logp.float().cpu().numpy(), ends[:-1]), strict=True):
                result[index][rows[index].action_mask] = part
        return result

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed learner needs: {"version": int, "weights": {name: tensor}, "optimizer": {name: {...}}}.

        Only what is trained. The tensors are the live ones: save or copy them before the next step.
        """
        weights = {name: value.detach() for name, value in self._optimizer.parameters.items()}
        return {"version": self._version, "weights": weights, "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken. Make the learner from the weights that training started with, so
        that a KL penalty keeps its reference. Raises ModelError where the parameters are others."""
        load_parameters(self._optimizer.parameters, state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._version = int(state["version"])

    def _plan(self, rows: Sequence[TrainingRow], *, keep_trajectories: bool = False) -> list[list[int]]:
        return plan_micro_batches(
            rows,
            self.config.max_tokens_per_microbatch,
            keep_trajectories=keep_trajectories,
            oversize=self.config.oversize,
        )

    def _pack(
        self, rows: Sequence[TrainingRow], weights: NDArray[np.float64], *, keep_trajectories: bool = False
    ) -> list[PackedBatch]:
        plan = self._plan(rows, keep_trajectories=keep_trajectories)
        return [pack([rows[index] for index in indexes], weights[indexes], self._device) for indexes in plan]

    def _forward(
        self, model: nn.Module, packed: PackedBatch, *, temperature: float | None = None, entropy: bool = False
    ) -> tuple[Float[Tensor, "actions"], Float[Tensor, "actions"] | None]:
        """temperature: None is that of the sampling."""
        return action_logprobs(
            model,
            packed,
            temperature=self.config.temperature if temperature is None else temperature,
            chunk=self.config.logp_chunk,
            entropy=entropy,
        )

    def _reference_logprobs(self, packed: PackedBatch) -> Float[Tensor, "actions"] | None:
        if self._reference is None:
            return None
        with self._reference.policy() as model:
            return self._forward(model, packed)[0]

    def _update(self, batches: Sequence[_MicroBatch], loss_of: Callable[[_MicroBatch], Tensor]) -> tuple[float, float]:
        """One optimizer update over all micro-batches. Returns the loss and the gradient's norm."""
        self._optimizer.clear_gradients()
        losses: list[Tensor] = []
        with _training_mode(self.model, on=self.config.gradient_checkpointing):
            for batch in batches:
                loss = loss_of(batch)
                torch.autograd.backward(loss)
                losses.append(loss.detach())
        values = [loss.item() for loss in losses]  # read at the end only: on a GPU each read waits for it
        for value, batch in zip(values, batches, strict=True):
            if not math.isfinite(value):
                self._optimizer.clear_gradients()
                names = ", ".join(map(str, torch.unique(batch.packed.trajectory).tolist()))
                raise TrainingError(
                    f"the loss is {value} at version {self._version}, in the micro-batch of trajectories {names}; "
                    "the weights were not changed. Look at these rows and their log-probabilities, and at the rate"
                )
        return sum(values), self._optimizer.update(learning_rate(self.config, self._version))

    def _finish(self, rows: int, batches: Sequence[_MicroBatch], updates: Sequence[tuple[float, float]]) -> UpdateStats:
        rate = learning_rate(self.config, self._version)
        self._version += 1
        packed = [batch.packed for batch in batches]
        return UpdateStats(
            version=self._version,
            loss=float(np.mean([loss for loss, _ in updates])),
            grad_norm=float(np.mean([norm for _, norm in updates])),
            learning_rate=rate,
            rows=rows,
            trained_rows=sum(len(batch.lengths) for batch in packed),
            tokens=sum(len(batch.tokens) for batch in packed),
            action_tokens=sum(len(batch.targets) for batch in packed),
            micro_batches=len(packed),
        )


def _refuse_dropout(model: nn.Module) -> None:
    dropouts = [name for name, part in model.named_modules() if isinstance(part, nn.Dropout) and part.p > 0]
    if dropouts:
        raise ConfigError(
            f"the model has dropout (in {dropouts[0]}): the learner's log-probabilities would differ from the engine's "
            "before anything was learnt; set it to 0 in the model's or the adapter's configuration"
        )


def _refuse_unsampled(rows: Sequence[TrainingRow]) -> None:
    if not rows:
        raise TrainingError("a batch without rows: every rollout in it faulted, or sampled no token")
    for row in rows:
        if not np.isfinite(row.logp_rollout[row.action_mask]).all():
            raise ValueError(
                f"row of trajectory {row.trajectory}: an action token has no finite logp_rollout; only sampled tokens "
                "can be reinforced (traces are for sft_step)"
            )


def _gaps(logp: Float[Tensor, "actions"], packed: PackedBatch, version: int) -> Float[Tensor, "fresh"]:
    """How far the engine's log-probabilities of the tokens that this version sampled are from the learner's."""
    fresh = (packed.version == version) | (packed.version == UNKNOWN_VERSION)
    return (logp - packed.logp_rollout).abs()[fresh]


def _enable_checkpointing(model: nn.Module) -> None:
    if not isinstance(model, PreTrainedModel | PeftModel):
        raise ConfigError(f"learner.gradient_checkpointing: {type(model).__name__} cannot recompute its layers")
    # transformers 5.24 renames it, and warns at the old name
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


@contextmanager
def _training_mode(model: nn.Module, *, on: bool) -> Iterator[None]:
    """transformers recomputes layers in training mode only; between updates the model is in evaluation mode."""
    model.train(on)
    try:
        yield
    finally:
        model.eval()
