"""Scenarios: the rows of data that an environment is played over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Scenario(Mapping[str, Any]):
    """One row of data (the API's `item`). Reads like the row itself: `scenario["question"]`.

    id: unique within the environment. split: "train", "validation" or "test".
    """

    id: str
    split: str
    data: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)
