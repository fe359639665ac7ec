"""One request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from etude.engine.protocol import Finish, Sample, SampleRequest


@dataclass(slots=True, eq=False)
class Turn:
    """limit: tokens to sample at most. slot: -1 until it has one. held: the rollout held that slot already.
    started: the prompt is in the slot's table, and what the cache has of it is known. sample: set when it is done."""

    request: SampleRequest
    prompt: NDArray[np.int32]
    limit: int
    slot: int = -1
    held: bool = False
    started: bool = False
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    sample: Sample | None = None

    @property
    def position(self) -> int:
        """Where its next sampled token will stand."""
        return len(self.prompt) + len(self.tokens)

    def add(self, token: int, logprob: float, version: int) -> None:
        """Append a sampled token; the turn is done where it is a stop token or the last one allowed."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        if token in self.request.stop:
            self._finish("stop")
        elif len(self.tokens) == self.limit:
            self._finish("length")

    def _finish(self, finish: Finish) -> None:
        self.sample = Sample(tuple(self.tokens), tuple(self.logprobs), tuple(self.versions), finish)
