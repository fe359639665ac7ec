"""What is kept of a rollout's state: public keys, JSON values, nothing converted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.environment.environment import StateError, state_snapshot

TEXT = st.text(max_size=10)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(TEXT, VALUE, max_size=5))
def test_json_values_are_kept_and_private_keys_dropped(state: dict[str, Any]) -> None:
    kept = state_snapshot({**state, "_private": object()})
    expected = {key: value for key, value in state.items() if not key.startswith("_")}
    assert json.dumps(kept) == json.dumps(expected)


def test_a_snapshot_does_not_follow_later_changes() -> None:
    state: dict[str, Any] = {"found": ["a"], "by": {"day": {"n": 1}}}
    snapshot = state_snapshot(state)
    state["found"].append("b")
    state["by"]["day"]["n"] = 2
    assert snapshot == {"found": ["a"], "by": {"day": {"n": 1}}}


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, (1, 2), b"bytes", float("nan"), [float("inf")], {1: "a"}, {"deep": [{"er": object()}]}, CYCLE],
    ids=["object", "set", "tuple", "bytes", "nan", "infinity", "number key", "deep object", "cycle"],
)
def test_a_value_that_is_not_json_is_named_by_its_key(value: Any) -> None:
    with pytest.raises(StateError, match=r"^state\['bad'\] is not JSON: .*key with \"_\""):
        state_snapshot({"good": 1, "bad": value})


def test_a_key_that_is_not_text_is_named() -> None:
    with pytest.raises(StateError, match=r"^state\[7\] is not JSON"):
        state_snapshot({7: "a"})  # type: ignore[dict-item]
