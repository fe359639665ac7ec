"""What an engine is: it turns prompt tokens into sampled tokens with log-probabilities. It knows nothing of rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """rollout: a key that stays the same for all turns of one attempt, so that an engine may keep its KV cache;
    prompt: the whole prompt, which starts with everything the rollout held before.
    group: rollouts of one group share it, and their first prompts are equal: a hint to prefill once.
    seed: of this request alone; the same request gives the same tokens whatever else is in the batch (up to floating
    point). temperature 0 is greedy. stop: token ids; the stop token is part of the sample."""

    rollout: str
    prompt: tuple[int, ...]
    max_tokens: int
    stop: frozenset[int]
    temperature: float = 1.0
    seed: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """tokens: sampled ids, the stop token included. logprobs: natural log of each under the sampling temperature
    (at temperature 0: under temperature 1). versions: policy version that sampled each token."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    finish: Finish


class EngineFault(Exception):
    """A request that failed, and neither the prompt nor the model is why: an endpoint that was down for all tries. The
    rollout faults (where "engine") and may be started again. kind: how it failed, for counting."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Engine(Protocol):
    """`open` announces a rollout, `close` ends it and frees its cache. Between them, one `sample` at a time a rollout.

    A lock-step engine (`deterministic`) runs a wave only when every open rollout is waiting in `sample`, in the order
    of their keys, so that nothing depends on timing.
    """

    @property
    def version(self) -> int: ...

    def open(self, rollout: str) -> None: ...

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises asyncio.CancelledError when cancelled (the slot stays valid), ValueError for a prompt that does not
        fit the context, EngineFault for a request that failed where others may not."""
        ...

    def close(self, rollout: str) -> None: ...

    async def aclose(self) -> None: ...
