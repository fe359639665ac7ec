"""What the local engine did: counters that only grow, read step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

COUNTERS = (
    "prefill_tokens",
    "shared_tokens",
    "kept_tokens",
    "decode_tokens",
    "evictions",
    "steps",
    "seconds",
)


@dataclass(slots=True)
class EngineStats:
    """prefill_tokens: prompt tokens run through the model. shared_tokens: prompt tokens copied from another slot.
    kept_tokens: prompt tokens that the turn's own slot held already. decode_tokens: tokens sampled. evictions: slots
    taken from a rollout between its turns. steps: forward passes. seconds: time in them."""

    prefill_tokens: int = 0
    shared_tokens: int = 0
    kept_tokens: int = 0
    decode_tokens: int = 0
    evictions: int = 0
    steps: int = 0
    seconds: float = 0.0
    _taken: dict[str, float] = field(default_factory=dict, repr=False)

    def take(self) -> dict[str, float]:
        """The counts since the last call. May be called while the engine counts on its own thread."""
        now: dict[str, float] = {name: getattr(self, name) for name in COUNTERS}
        since = {name: count - self._taken.get(name, 0) for name, count in now.items()}
        self._taken = now
        return since
