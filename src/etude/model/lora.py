"""Settings of a LoRA adapter (https://arxiv.org/abs/2106.09685)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from etude.errors import ConfigError

Targets = Literal["all-linear", "attention"]
_PROJECTIONS: dict[str, tuple[str, ...]] = {
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "all-linear": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
}


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """rank: of each update, at least 1 (training all weights is having no LoraSettings). alpha: an update is scaled by
    alpha / rank. targets: which linear maps get an adapter."""

    rank: int
    alpha: float
    targets: Targets = "all-linear"

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"lora.rank is {self.rank}, must be at least 1; leave LoRA out to train all weights")
        if self.targets not in _PROJECTIONS:
            raise ConfigError(f"lora.targets is {self.targets!r}, must be one of {', '.join(_PROJECTIONS)}")

    @property
    def projections(self) -> tuple[str, ...]:
        """The adapted maps, by their names in transformers."""
        return _PROJECTIONS[self.targets]
