"""Scores that several environments use."""

from __future__ import annotations

from collections.abc import Collection, Hashable


def f1_sets(predicted: Collection[Hashable], expected: Collection[Hashable]) -> float:
    """F1 of two sets, from 0 to 1: 2·|both| / (|predicted| + |expected|).

    Duplicates count once. Nothing predicted where nothing is expected is 1.
    """
    found, wanted = set(predicted), set(expected)
    if not found and not wanted:
        return 1.0
    return 2 * len(found & wanted) / (len(found) + len(wanted))
