"""What the local engine did: counters, read and set back step by step."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(slots=True)
class EngineStats:
    """prefill_tokens: prompt tokens run through the model. shared_tokens: prompt tokens copied from another slot.
    kept_tokens: prompt tokens that the rollout's own slot still held. decode_tokens: tokens sampled.
    evictions: slots taken from a rollout between its turns. steps: forward passes. seconds: time in them."""

    prefill_tokens: int = 0
    shared_tokens: int = 0
    kept_tokens: int = 0
    decode_tokens: int = 0
    evictions: int = 0
    steps: int = 0
    seconds: float = 0.0

    def take(self) -> dict[str, float]:
        """The counts since the last call."""
        counts = asdict(self)
        for field in fields(self):
            setattr(self, field.name, field.default)
        return counts
