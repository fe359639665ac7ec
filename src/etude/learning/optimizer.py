"""AdamW on the trainable parameters: rate, clipping, and a state that is saved by parameter name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from etude.errors import ConfigError, ModelError, TrainingError
from etude.learning.config import LearnerConfig

OptimizerState = dict[str, dict[str, Tensor]]


def learning_rate(config: LearnerConfig, step: int) -> float:
    """The rate of a step (from 0): a linear warm-up to lr, then constant, or down to 0 at total_steps."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant" or config.total_steps is None:
        return config.lr
    progress = min(1.0, (step - config.warmup_steps) / (config.total_steps - config.warmup_steps))
    if config.schedule == "linear":
        return config.lr * (1 - progress)
    return config.lr * (1 + math.cos(math.pi * progress)) / 2


class Optimizer:
    """torch's AdamW over every parameter of `model` that requires a gradient.

    Raises ConfigError where there is none.
    """

    def __init__(self, model: nn.Module, config: LearnerConfig) -> None:
        self.parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        if not self.parameters:
            raise ConfigError("the model has no trainable parameter: every one has requires_grad off")
        self._config = config
        matrices = [value for value in self.parameters.values() if value.ndim >= 2]
        others = [value for value in self.parameters.values() if value.ndim < 2]
        self._adamw = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            fused=True,  # chosen here: torch's own choice depends on device and version, and the bits on the choice
        )

    def clear_gradients(self) -> None:
        self._adamw.zero_grad(set_to_none=True)

    def update(self, rate: float) -> float:
        """Clip, step, and drop the gradients. Returns the gradient's norm before it was clipped.

        Raises TrainingError where the norm is not finite; the weights are then as they were.
        """
        for parameter in self.parameters.values():
            if parameter.grad is None:  # nothing reached it: the same as a gradient of 0, so that momentum still acts
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if not math.isfinite(norm.item()):
            names = [name for name, value in self.parameters.items() if not _all_finite(value.grad)]
            self.clear_gradients()
            what = f"first in {names[0]} ({len(names)} parameters)" if names else "the sum of its squares overflows"
            raise TrainingError(
                f"the norm of the gradient is {norm.item()}, {what}; the weights were not changed. "
                "Lower the learning rate, or look for broken log-probabilities in this batch"
            )
        if self._config.grad_clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters.values(), self._config.grad_clip, norm)
        for group in self._adamw.param_groups:
            group["lr"] = rate
        self._adamw.step()
        self.clear_gradients()
        return float(norm.item())

    def state_dict(self) -> OptimizerState:
        """By parameter name: step, exp_avg, exp_avg_sq. Empty before the first update. Tensors are not copied."""
        state = self._adamw.state
        return {name: dict(state[value]) for name, value in self.parameters.items() if value in state}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take the moments; rates and betas stay those of the configuration. Raises ModelError for other parameters."""
        if state and set(state) != set(self.parameters):
            raise ModelError(_difference("the optimizer state", state, self.parameters))
        names = {id(value): name for name, value in self.parameters.items()}
        order = [names[id(value)] for group in self._adamw.param_groups for value in group["params"]]
        moments: dict[int, Any] = {index: dict(state[name]) for index, name in enumerate(order)} if state else {}
        groups = self._adamw.state_dict()["param_groups"]
        self._adamw.load_state_dict({"state": moments, "param_groups": groups})


def load_parameters(parameters: Mapping[str, nn.Parameter], saved: Mapping[str, Tensor]) -> None:
    """Copy saved values into the live parameters, in place. Raises ModelError where names, shapes or types differ."""
    if set(saved) != set(parameters):
        raise ModelError(_difference("the checkpoint", saved, parameters))
    for name, parameter in parameters.items():
        if (saved[name].shape, saved[name].dtype) != (parameter.shape, parameter.dtype):
            raise ModelError(
                f"parameter {name} is {tuple(saved[name].shape)} {saved[name].dtype} in the checkpoint and "
                f"{tuple(parameter.shape)} {parameter.dtype} in the model: load it into the model it was trained from"
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(saved[name])


def _difference(what: str, saved: Mapping[str, object], live: Mapping[str, object]) -> str:
    missing, extra = sorted(set(live) - set(saved)), sorted(set(saved) - set(live))
    return (
        f"{what} belongs to other trainable parameters: {len(missing)} missing (such as {missing[:1]}), "
        f"{len(extra)} unknown (such as {extra[:1]}); use the model and LoRA settings that it was trained with"
    )


def _all_finite(values: Tensor | None) -> bool:
    return values is None or bool(torch.isfinite(values).all())
