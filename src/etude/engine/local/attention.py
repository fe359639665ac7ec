"""Attention of one engine step over the slots: decoding turns read their own slots, chunks of prompts theirs.

This is the plain torch path. A kernel for an accelerator is another `AttentionPlan` with the same constructor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from etude.engine.local.cache import SlotCache
from etude.model.attention import repeat_heads

CALL_COST = 512  # a call costs about as much as reading this many positions of one slot


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive prompt tokens of one slot: `length` tokens, the first at position `past`."""

    slot: int
    past: int
    length: int


@dataclass(frozen=True, slots=True)
class Block:
    """Decoding turns first..last of the batch, whose slots lie in start..stop: one attention call of `length`."""

    first: int
    last: int
    start: int
    stop: int
    length: int


def split_blocks(slots: Sequence[int], lengths: Sequence[int]) -> list[Block]:
    """Split turns, sorted by slot, into calls over neighbouring slots, each padded to its longest row.

    Padding (short rows, and idle slots between) is read for nothing; every call has a cost of its own. A turn joins
    its neighbours' call where that is cheaper than a new one, so that work follows the real lengths.
    """
    blocks: list[Block] = []
    first = longest = 0
    for turn, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
        padded = (slot + 1 - slots[first]) * max(longest, length)
        if turn > first and padded > (slots[turn - 1] + 1 - slots[first]) * longest + length + CALL_COST:
            blocks.append(Block(first, turn, slots[first], slots[turn - 1] + 1, longest))
            first, longest = turn, 0
        longest = max(longest, length)
    if slots:
        blocks.append(Block(first, len(slots), slots[first], slots[-1] + 1, longest))
    return blocks


class SlotAttention:
    """Plan of one step, whose batch is decoding turns (one token each, sorted by slot), then chunks of prompts.

    Writes the tokens' keys and values to the cache, then lets each token attend to its slot up to its own position.
    """

    def __init__(
        self,
        cache: SlotCache,
        slots: Sequence[int],
        lengths: Sequence[int],
        chunks: Sequence[Chunk],
        like: Tensor,
    ) -> None:
        """slots, lengths: of the decoding turns; a length counts the token that is fed now. like: a tensor of the
        model's device and dtype."""
        self._cache = cache
        self._chunks = chunks
        self._blocks = split_blocks(slots, lengths)
        fed = [Chunk(slot, length - 1, 1) for slot, length in zip(slots, lengths, strict=True)]
        spans = [*fed, *chunks]
        self.slots = torch.tensor([c.slot for c in spans for _ in range(c.length)], device=like.device)
        self.positions = torch.tensor([c.past + i for c in spans for i in range(c.length)], device=like.device)
        self._block_masks = [self._block_mask(block, lengths, like) for block in self._blocks]
        self._chunk_masks = [_chunk_mask(chunk, like) for chunk in chunks]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        self._cache.write(layer, self.slots, self.positions, key[0].transpose(0, 1), value[0].transpose(0, 1))
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        attended = [
            self._decode(block, mask, query[0], keys, values, scaling)
            for block, mask in zip(self._blocks, self._block_masks, strict=True)
        ]
        start = self._blocks[-1].last if self._blocks else 0
        for chunk, mask in zip(self._chunks, self._chunk_masks, strict=True):
            stop = start + chunk.length
            attended.append(_prefill(chunk, mask, query[:, :, start:stop], keys, values, scaling))
            start = stop
        return torch.cat(attended).unsqueeze(0)

    def _decode(
        self, block: Block, mask: Tensor, query: Tensor, keys: Tensor, values: Tensor, scaling: float
    ) -> Float[Tensor, "turns heads dim"]:
        """One token of each turn. The query heads that share a key head are rows of one product with its keys."""
        heads, _, dim = query.shape
        turns, rows, kv_heads = block.last - block.first, block.stop - block.start, keys.shape[1]
        inside = None if turns == rows else self.slots[block.first : block.last] - block.start
        queries = query[:, block.first : block.last].transpose(0, 1)
        if inside is not None:  # idle slots in between get a query that nobody reads
            queries = queries.new_zeros(rows, heads, dim).index_copy_(0, inside, queries)
        queries = queries.reshape(rows * kv_heads, heads // kv_heads, dim)
        key, value = (states[block.start : block.stop].flatten(0, 1)[:, : block.length] for states in (keys, values))
        mask = mask.repeat_interleave(kv_heads, dim=0)
        scores = torch.baddbmm(mask, queries, key.transpose(1, 2), alpha=scaling)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
        attended = torch.bmm(weights, value).view(rows, heads, dim)
        return attended if inside is None else attended.index_select(0, inside)

    def _block_mask(self, block: Block, lengths: Sequence[int], like: Tensor) -> Float[Tensor, "rows 1 length"]:
        """Zero within each row's length, minus infinity beyond."""
        valid = torch.ones(block.stop - block.start, dtype=torch.long, device=like.device)
        inside = torch.tensor(lengths[block.first : block.last], device=like.device)
        valid[self.slots[block.first : block.last] - block.start] = inside
        beyond = torch.arange(block.length, device=like.device) >= valid[:, None]
        return like.new_zeros(beyond.shape).masked_fill_(beyond, -torch.inf).unsqueeze(1)


def _prefill(
    chunk: Chunk, mask: Tensor | None, query: Tensor, keys: Tensor, values: Tensor, scaling: float
) -> Float[Tensor, "tokens heads dim"]:
    """The tokens of one chunk, over what its slot holds and themselves."""
    groups, length = query.shape[1] // keys.shape[1], chunk.past + chunk.length
    slot = slice(chunk.slot, chunk.slot + 1)
    attended = F.scaled_dot_product_attention(
        query,
        repeat_heads(keys[slot, :, :length], groups),
        repeat_heads(values[slot, :, :length], groups),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
    )
    return attended[0].transpose(0, 1)


def _chunk_mask(chunk: Chunk, like: Tensor) -> Float[Tensor, "tokens length"] | None:
    """Minus infinity at later tokens; None where the chunk begins its slot, which is plain causal attention."""
    if chunk.past == 0:
        return None
    shape = (chunk.length, chunk.past + chunk.length)
    return like.new_full(shape, -torch.inf).triu_(chunk.past + 1)
