"""From a run's configuration to the learner's settings. Imports no torch: mistakes are refused before any model."""

from __future__ import annotations

from etude.learning.config import LearnerConfig, loss_preset
from etude.training.config import RunConfig


def learner_config(config: RunConfig, max_completion_tokens: int) -> LearnerConfig:
    """max_completion_tokens: the most tokens that a rollout may sample, the divisor of the "constant" aggregation.
    Raises ConfigError for values and combinations that cannot work."""
    section = config.learning
    loss = loss_preset(section.loss, **{"max_completion_tokens": max_completion_tokens, **section.loss_overrides})
    return LearnerConfig(
        loss=loss,
        lr=section.lr,
        betas=section.betas,
        weight_decay=section.weight_decay,
        grad_clip=section.grad_clip,
        warmup_steps=section.warmup_steps,
        schedule=section.schedule,
        total_steps=config.training.steps,
        max_tokens_per_microbatch=section.max_tokens_per_microbatch,
        temperature=config.sampling.temperature,
    )
