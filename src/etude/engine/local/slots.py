"""Which rollout holds which slot, and which tokens each slot's cache holds: bookkeeping on the host, no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `length` tokens of a prompt, in `slot`. ready: they are computed, and not only about to be."""

    slot: int
    length: int
    ready: bool


class SlotTable:
    """For each slot: its rollout, its tokens, how many of them are `computed` (their keys and values are in the cache)
    and the policy version that computed the first of them.

    A slot is busy while a turn runs in it, idle between a rollout's turns (it may be taken from the rollout then, the
    least recently used first), and free once the rollout is closed. The lowest free slot is taken first, so that a
    table whose rollouts are all closed behaves like a new one.
    """

    def __init__(self, slots: int, context: int) -> None:
        self.tokens: NDArray[np.int32] = np.zeros((slots, context), dtype=np.int32)
        self.known: NDArray[np.int64] = np.zeros(slots, dtype=np.int64)  # tokens that are computed or are about to be
        self.computed: NDArray[np.int64] = np.zeros(slots, dtype=np.int64)
        self.version: NDArray[np.int64] = np.zeros(slots, dtype=np.int64)
        self.evictions = 0
        self._holder: list[str | None] = [None] * slots
        self._slot_of: dict[str, int] = {}
        self._busy = [False] * slots
        self._last_used = [0] * slots
        self._clock = 0

    def take(self, rollout: str) -> tuple[int, bool] | None:
        """Make a slot busy for a rollout; also says whether the rollout held it already. None: all slots are busy."""
        slot = self._slot_of.get(rollout)
        held = slot is not None
        if slot is None:
            slot = self._free_or_idle()
            if slot is None:
                return None
            self._evict(slot)
            self._holder[slot] = rollout
            self._slot_of[rollout] = slot
        self._busy[slot] = True
        return slot, held

    def rest(self, slot: int) -> None:
        """The turn ended: the slot is idle and holds what was computed."""
        self._busy[slot] = False
        self.known[slot] = self.computed[slot]
        self._clock += 1
        self._last_used[slot] = self._clock

    def free(self, rollout: str) -> None:
        """The rollout is closed."""
        slot = self._slot_of.pop(rollout, None)
        if slot is not None:
            self._holder[slot] = None
            self._busy[slot] = False
            self.known[slot] = self.computed[slot] = 0

    def find_prefix(self, slot: int, held: bool, prompt: NDArray[np.int32], version: int) -> Prefix:
        """The longest beginning of `prompt` that some slot holds or is about to, for a turn in `slot`.

        The last prompt token is never part of it: it must run, for its logits. What other slots hold counts only if
        this version of the weights computed it; a rollout keeps its own (`held`) across versions.
        """
        usable = self.version == version
        usable[slot] |= held
        common = np.where(usable, self._common(prompt[:-1]), 0)
        longest = int(common.max())
        if common[slot] == longest:
            return Prefix(slot, longest, ready=True)
        ready = (common == longest) & (self.computed >= longest)
        return Prefix(int(np.argmax(ready if ready.any() else common)), longest, bool(ready.any()))

    def begin(self, slot: int, prompt: NDArray[np.int32], prefix: Prefix, version: int) -> None:
        """A turn starts in the slot with its whole prompt, of which the slot's cache has `prefix` by now."""
        if prefix.slot != slot or prefix.length == 0:  # what the slot held is gone
            self.version[slot] = version
        self.tokens[slot, : len(prompt)] = prompt
        self.known[slot], self.computed[slot] = len(prompt), prefix.length

    def append(self, slots: Sequence[int], tokens: Sequence[int]) -> None:
        """One sampled token for each slot. Its keys and values are computed when it is fed."""
        self.tokens[slots, self.known[slots]] = tokens
        self.known[slots] += 1

    def _common(self, prompt: NDArray[np.int32]) -> NDArray[np.int64]:
        differs = self.tokens[:, : len(prompt)] != prompt
        first = np.where(differs.any(axis=1), differs.argmax(axis=1), len(prompt)) if len(prompt) else self.known * 0
        return np.minimum(first, self.known)

    def _free_or_idle(self) -> int | None:
        free = next((slot for slot, holder in enumerate(self._holder) if holder is None), None)
        if free is not None:
            return free
        idle = [slot for slot, busy in enumerate(self._busy) if not busy]
        return min(idle, key=lambda slot: self._last_used[slot]) if idle else None

    def _evict(self, slot: int) -> None:
        """Its tokens stay until others are written over them: the next holder may share a prefix."""
        if (evicted := self._holder[slot]) is not None:
            del self._slot_of[evicted]
            self.evictions += 1
