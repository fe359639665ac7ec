"""The engine's synchronous core: continuous batching over slots, one forward pass a step, no event loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from etude.engine.local.attention import Chunk, SlotAttention
from etude.engine.local.cache import SlotCache
from etude.engine.local.sampler import sample_tokens, uniforms
from etude.engine.local.slots import SlotTable
from etude.engine.local.stats import EngineStats
from etude.engine.local.turn import Turn
from etude.engine.protocol import Sample, SampleRequest
from etude.model.attention import output_head, run_backbone

PREFILL_TOKENS = 256  # prompt tokens a step at most, so that turns that decode do not wait long for others' prompts


class EngineCore:
    """Turns are submitted, and every step advances all of them that have a slot: those whose prompt is computed by one
    token, the others by a chunk of prompt. Not thread-safe; `LocalEngine` puts the event loop around it.

    A step is a function of the turns and slots alone: the same submissions between the same steps give the same bits.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        max_slots: int,
        max_context: int,
        version_of: Callable[[], int],
        prefill_tokens: int = PREFILL_TOKENS,
    ) -> None:
        """max_slots: turns that run at once, and rollouts whose cache is kept. max_context: tokens of a prompt and its
        sample together. version_of: the policy version of the weights now. prefill_tokens: prompt tokens a step at
        most. Raises ValueError for sizes that leave no room for a turn."""
        if max_slots < 1 or max_context < 2 or prefill_tokens < 1:
            raise ValueError(
                f"max_slots is {max_slots} (at least 1), max_context {max_context} (at least 2), prefill_tokens "
                f"{prefill_tokens} (at least 1)"
            )
        self.stats = EngineStats()
        self._model = model
        self._head = output_head(model)
        self._weight = next(self._head.parameters())
        self._max_context = max_context
        self._max_slots = max_slots
        self._prefill_tokens = prefill_tokens
        self._version_of = version_of
        self.reset()

    @property
    def busy(self) -> bool:
        return bool(self._turns or self._queue)

    @property
    def version(self) -> int:
        return self._version_of()

    @property
    def cache_bytes(self) -> int:
        """Memory of the KV cache now."""
        return self._cache.nbytes

    def reset(self) -> None:
        """Forget all turns and give the cache back."""
        self._cache = SlotCache(self._max_slots, self._max_context)
        self._table = SlotTable(self._max_slots, self._max_context)
        self._turns: list[Turn] = []  # with a slot, in the order in which they got it
        self._queue: deque[Turn] = deque()  # without one

    def check(self, request: SampleRequest) -> None:
        """Raises ValueError for a request that cannot run."""
        length = len(request.prompt)
        if not 0 < length < self._max_context:
            raise ValueError(
                f"{request.rollout}: the prompt has {length} tokens; the engine's context of {self._max_context} takes "
                f"1 to {self._max_context - 1}, so that there is room for a sampled one"
            )
        if min(request.prompt) < 0 or max(request.prompt) >= self._weight.shape[0]:
            raise ValueError(
                f"{request.rollout}: the prompt has token ids outside of the vocabulary of {self._weight.shape[0]}"
            )
        if request.max_tokens < 1 or request.temperature < 0:
            raise ValueError(
                f"{request.rollout}: max_tokens is {request.max_tokens} (at least 1), temperature is "
                f"{request.temperature} (at least 0)"
            )

    def submit(self, request: SampleRequest) -> Turn:
        """Queue a request; a rollout has one at a time. Raises ValueError for one that cannot run."""
        self.check(request)
        limit = min(request.max_tokens, self._max_context - len(request.prompt))
        turn = Turn(request, np.array(request.prompt, dtype=np.int32), limit)
        self._queue.append(turn)
        return turn

    def cancel(self, turn: Turn) -> None:
        """Drop a turn, between two steps; its slot keeps what was computed. A finished turn is left alone."""
        if turn in self._queue:
            self._queue.remove(turn)
        elif turn in self._turns:
            self._leave(turn)

    def close(self, rollout: str) -> None:
        """Free the slot of a rollout that has no turn running."""
        self._table.free(rollout)

    def generate(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """Run requests to completion; samples in the requests' order.

        They are submitted in the order of their rollouts' keys, so that the result depends on the set of requests and
        on what the slots hold, not on the order given. Raises ValueError as `submit` does.
        """
        by_rollout = {request.rollout: request for request in requests}
        if len(by_rollout) < len(requests):
            raise ValueError("two requests of one rollout: a rollout samples one turn at a time")
        turns = {rollout: self.submit(by_rollout[rollout]) for rollout in sorted(by_rollout)}
        while self.busy:
            self.step()
        return [sample for request in requests if (sample := turns[request.rollout].sample)]

    @torch.inference_mode()
    def step(self) -> list[Turn]:
        """One forward pass. Returns the turns that it finished. After an exception the core must be `reset`."""
        began = time.perf_counter()
        version = self.version
        self._admit()
        self._start_turns(version)
        decoding = sorted((turn for turn in self._turns if turn.tokens), key=lambda turn: turn.slot)
        prefilling = self._next_chunks()
        if not decoding and not prefilling:
            if self.busy:
                raise RuntimeError("turns wait for each other: none decodes and none has prompt tokens to run")
            return []
        hidden = self._forward(decoding, [chunk for _, chunk in prefilling])
        sampling, rows = _with_logits(decoding, prefilling)
        if sampling:
            self._sample(sampling, hidden[rows], version)
        done = [turn for turn in sampling if turn.sample is not None]
        for turn in done:
            self._leave(turn)
        self.stats.steps += 1
        self.stats.seconds += time.perf_counter() - began
        return done

    def _admit(self) -> None:
        """Give slots to queued turns, first come first served."""
        while self._queue and (taken := self._table.take(self._queue[0].request.rollout)):
            turn = self._queue.popleft()
            turn.slot, turn.held = taken
            self._turns.append(turn)
        self.stats.evictions += self._table.evictions
        self._table.evictions = 0

    def _start_turns(self, version: int) -> None:
        """Settle what the cache already has of each new prompt, copying it where another slot computed it.

        A turn whose prompt's beginning is being computed in another slot waits for it, and looks again in every step:
        the one before it may be cancelled.
        """
        for turn in self._turns:
            if turn.started:
                continue
            prefix = self._table.find_prefix(turn.slot, turn.held, turn.prompt, version)
            if not prefix.ready:
                continue
            if prefix.slot == turn.slot:
                self.stats.kept_tokens += prefix.length
            else:
                self._cache.reserve(turn.slot + 1, prefix.length)
                self._cache.copy(prefix.slot, turn.slot, prefix.length)
                self.stats.shared_tokens += prefix.length
            self._table.begin(turn.slot, turn.prompt, prefix, version)
            turn.started = True

    def _next_chunks(self) -> list[tuple[Turn, Chunk]]:
        """Prompt tokens to run in this step, within the budget, the earliest turns first."""
        budget = self._prefill_tokens
        prefilling = []
        for turn in self._turns:
            past = int(self._table.computed[turn.slot])
            length = min(len(turn.prompt) - past, budget)
            if turn.started and not turn.tokens and length > 0:
                prefilling.append((turn, Chunk(turn.slot, past, length)))
                budget -= length
        return prefilling

    def _forward(self, decoding: Sequence[Turn], chunks: Sequence[Chunk]) -> Float[Tensor, "tokens hidden"]:
        table, device = self._table, self._weight.device
        slots = [turn.slot for turn in decoding]
        lengths = [turn.position for turn in decoding]
        spans = [table.tokens[chunk.slot, chunk.past : chunk.past + chunk.length] for chunk in chunks]
        tokens = np.concatenate([table.tokens[slots, np.array(lengths, dtype=np.int64) - 1], *spans])
        longest = max(*lengths, *(chunk.past + chunk.length for chunk in chunks), 0)
        self._cache.reserve(max(*slots, *(chunk.slot for chunk in chunks), 0) + 1, longest)
        plan = SlotAttention(self._cache, slots, lengths, chunks, self._weight)
        hidden = run_backbone(self._model, torch.from_numpy(tokens).to(device), plan.positions, plan)
        table.computed[slots] += 1
        for chunk in chunks:
            table.computed[chunk.slot] += chunk.length
        self.stats.prefill_tokens += sum(chunk.length for chunk in chunks)
        return hidden

    def _sample(self, turns: Sequence[Turn], hidden: Float[Tensor, "turns hidden"], version: int) -> None:
        uniform = uniforms([turn.request.seed for turn in turns], [turn.position for turn in turns])
        temperatures = [turn.request.temperature for turn in turns]
        sampled, logprobs = (values.tolist() for values in sample_tokens(self._head(hidden), temperatures, uniform))
        self._table.append([turn.slot for turn in turns], sampled)
        for turn, token, logprob in zip(turns, sampled, logprobs, strict=True):
            turn.add(token, logprob, version)
        self.stats.decode_tokens += len(turns)

    def _leave(self, turn: Turn) -> None:
        self._turns.remove(turn)
        self._table.rest(turn.slot)


def _with_logits(decoding: Sequence[Turn], prefilling: Sequence[tuple[Turn, Chunk]]) -> tuple[list[Turn], list[int]]:
    """Turns that get a token in this step, and their tokens' rows of the batch: every turn that decodes, and the last
    prompt token of those whose prompt is complete."""
    turns, rows = list(decoding), list(range(len(decoding)))
    end = len(decoding)
    for turn, chunk in prefilling:
        end += chunk.length
        if chunk.past + chunk.length == len(turn.prompt):
            turns.append(turn)
            rows.append(end - 1)
    return turns, rows
