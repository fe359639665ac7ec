"""The tensors of the KV cache: for each layer, keys and values of every slot."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

POSITIONS_ALIGN = 64  # capacities are multiples of it, so that every slot starts on a cache line of the processor


class SlotCache:
    """Keys and values [slots, kv_heads, positions, head_dim] of each layer, grown as slots and lengths are needed.

    A layer's tensors appear with its first write and take device, dtype and sizes from it. They are zero where nothing
    was written: attention reads such places with weight 0, and 0 times what memory happens to hold may not be 0.
    """

    def __init__(self, max_slots: int, max_positions: int) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._most = (max_slots, max_positions)
        self._slots = 0
        self._positions = 0

    @property
    def nbytes(self) -> int:
        return sum(states.nbytes for states in (*self.keys, *self.values))

    def reserve(self, slots: int, positions: int) -> None:
        """Make room for this many slots and positions, and for some more, so that growing stays rare."""
        if slots <= self._slots and positions <= self._positions:
            return
        if slots > self._slots:
            self._slots = min(max(slots, 2 * self._slots), self._most[0])
        if positions > self._positions:
            wanted = min(max(positions, self._positions * 3 // 2), self._most[1])
            self._positions = -(-wanted // POSITIONS_ALIGN) * POSITIONS_ALIGN
        for layers in (self.keys, self.values):
            for layer, states in enumerate(layers):  # one layer at a time: old and new are held for one layer only
                layers[layer] = self._grown(states)

    def write(
        self,
        layer: int,
        slots: Int[Tensor, "tokens"],
        positions: Int[Tensor, "tokens"],
        key: Float[Tensor, "tokens kv_heads dim"],
        value: Float[Tensor, "tokens kv_heads dim"],
    ) -> None:
        """Put each token's key and value at its slot and position. Layers are first written in order."""
        if layer == len(self.keys):
            shape = (self._slots, key.shape[1], self._positions, key.shape[2])
            self.keys.append(key.new_zeros(shape))
            self.values.append(value.new_zeros(shape))
        self.keys[layer][slots, :, positions] = key
        self.values[layer][slots, :, positions] = value

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of one slot to another."""
        for states in (*self.keys, *self.values):
            states[target, :, :length] = states[source, :, :length]

    def _grown(self, states: Tensor) -> Tensor:
        slots, heads, positions, dim = states.shape
        grown = states.new_zeros(self._slots, heads, self._positions, dim)
        grown[:slots, :, :positions] = states
        return grown
