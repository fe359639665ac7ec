"""Rollouts as bytes: an exact round trip, and a clear refusal of what would not come back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from etude.environment.calls import Fault, ToolCall
from etude.errors import StorageError
from etude.rollout.messages import Message
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import CallRecord, Rollout
from etude.rollout.trajectory import Row, Trajectory
from etude.store import decode_rollout, encode_rollout, why_not_json
from etude.store.encoding import dump_numbers, load_numbers

# Surrogates are in: a model may write half of one as a \u escape in a call's arguments.
TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
FLOAT = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
PUBLIC = st.dictionaries(TEXT.filter(lambda key: not key.startswith("_")), JSON, max_size=3)
NUMBERS = st.dictionaries(TEXT, FLOAT, max_size=3)
CALLS = st.builds(ToolCall, TEXT, OBJECT, TEXT)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    length = draw(st.integers(0, 8))

    def array(dtype: type, wide: type) -> Any:
        return draw(hnp.arrays(draw(st.sampled_from([dtype, wide])), length))

    return Row(
        tokens=array(np.int32, np.int64),
        action_mask=draw(hnp.arrays(np.bool_, length)),
        logprobs=array(np.float32, np.float64),
        version=array(np.int32, np.int64),
        turn=array(np.int16, np.uint8),
    )


ROLLOUTS = st.builds(
    Rollout,
    trace_id=TEXT,
    scenario_id=TEXT,
    split=TEXT,
    attempt=st.integers(0, 9),
    outcome=st.sampled_from(Outcome),
    stop=st.sampled_from(Stop),
    messages=st.lists(
        st.builds(
            Message,
            st.sampled_from(["user", "assistant", "tool"]),
            TEXT,
            st.lists(CALLS, max_size=2).map(tuple),
            TEXT,
            TEXT,
        ),
        max_size=3,
    ).map(tuple),
    calls=st.lists(
        st.builds(CallRecord, st.integers(0, 9), TEXT, TEXT, OBJECT, TEXT, st.sampled_from(["ok", "fault"]), FLOAT),
        max_size=3,
    ).map(tuple),
    trajectory=st.builds(
        Trajectory, st.lists(rows(), max_size=3).map(tuple), st.integers(0, 3), st.none() | st.integers(0, 9)
    ),
    answer=JSON,
    state=PUBLIC,
    fault=st.none() | st.builds(Fault, TEXT, TEXT, TEXT),
    turns=st.integers(0, 9),
    wall_s=FLOAT,
    parse_failures=st.dictionaries(TEXT, st.integers(0, 9), max_size=2),
    reward=st.none() | FLOAT,
    scores=NUMBERS,
    metrics=NUMBERS,
)


@given(ROLLOUTS)
@settings(max_examples=60, deadline=None)
def test_what_is_decoded_equals_what_was_encoded_bit_by_bit(rollout: Rollout) -> None:
    back = decode_rollout(encode_rollout(rollout))
    for field in fields(Rollout):
        if field.name != "trajectory":
            assert getattr(back, field.name) == getattr(rollout, field.name), field.name
            assert type(getattr(back, field.name)) is type(getattr(rollout, field.name)), field.name
    assert (back.trajectory.forks, back.trajectory.drift) == (rollout.trajectory.forks, rollout.trajectory.drift)
    for mine, theirs in zip(rollout.trajectory.rows, back.trajectory.rows, strict=True):
        for name, array in mine.arrays().items():
            other = theirs.arrays()[name]
            assert other.dtype == array.dtype
            assert other.tobytes() == array.tobytes()  # also the bits inside a NaN
            assert other.flags.writeable


def test_nan_of_any_payload_comes_back(make_rollout: Callable[..., Rollout]) -> None:
    odd = np.array([0x7FC00001, 0xFFC00000, 0x7F800000], dtype=np.uint32).view(np.float32)
    rollout = make_rollout(tokens=3)
    row = replace(rollout.trajectory.rows[0], logprobs=odd)
    back = decode_rollout(encode_rollout(replace(rollout, trajectory=Trajectory((row,)))))
    assert back.trajectory.rows[0].logprobs.tobytes() == odd.tobytes()


def test_private_state_is_not_saved(make_rollout: Callable[..., Rollout]) -> None:
    rollout = make_rollout(state={"_connection": object(), "seen": [1]})
    assert decode_rollout(encode_rollout(rollout)).state == {"seen": [1]}


def test_numpy_numbers_come_back_as_the_same_python_numbers(make_rollout: Callable[..., Rollout]) -> None:
    rollout = make_rollout(metrics={"a": np.float32(0.1), "b": np.int64(7)}, state={"c": np.bool_(True)})
    back = decode_rollout(encode_rollout(rollout))
    assert back.metrics == {"a": float(np.float32(0.1)), "b": 7}
    assert back.state == {"c": True}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"answer": ("a", "b")}, "answer is a tuple, which JSON would not give back: use a list"),
        ({"state": {"seen": [1, {2}]}}, r"state\.seen\[1\] is a set"),
        ({"state": {"by_day": {3: "x"}}}, r"state\.by_day has the key 3, and JSON's keys are text"),
        ({"metrics": {"z": 1j}}, r"metrics\.z is a complex"),
        ({"answer": b"bytes"}, "answer is a bytes"),
    ],
)
def test_what_json_would_change_is_refused_by_place(
    make_rollout: Callable[..., Rollout], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(StorageError, match=rf"rollout trace_0000 cannot be saved: {message}"):
        encode_rollout(make_rollout(**fields))


def test_a_list_that_holds_itself_is_refused_and_does_not_hang() -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    assert "nested more than 300 deep" in str(why_not_json(endless))


def test_the_deepest_value_that_passes_can_be_saved(make_rollout: Callable[..., Rollout]) -> None:
    deep: list[Any] = []
    for _ in range(290):
        deep = [deep]
    assert decode_rollout(encode_rollout(make_rollout(answer=deep))).answer == deep


def test_arrays_of_objects_are_refused(make_rollout: Callable[..., Rollout]) -> None:
    rollout = make_rollout(tokens=2)
    row = replace(rollout.trajectory.rows[0], tokens=np.array([1, "x"], dtype=object))
    with pytest.raises(StorageError, match="tokens must be numbers, not object"):
        encode_rollout(replace(rollout, trajectory=Trajectory((row,))))


def test_every_cut_and_every_flipped_byte_is_found(make_rollout: Callable[..., Rollout]) -> None:
    data = encode_rollout(make_rollout())
    for length in range(len(data)):
        with pytest.raises(StorageError):
            decode_rollout(data[:length])
    last = len(data) - 5  # before the checksum: its upper bits may be padding, which says nothing
    for index in set(range(len(data))) - {last}:
        with pytest.raises(StorageError):
            decode_rollout(data[:index] + bytes([data[index] ^ 0x10]) + data[index + 1 :])


def test_a_newer_format_says_to_upgrade(make_rollout: Callable[..., Rollout]) -> None:
    data = encode_rollout(make_rollout())
    with pytest.raises(StorageError, match="format 2, this Etude reads 1: upgrade"):
        decode_rollout(data[:4] + b"\x02" + data[5:])


def test_format_1_is_read_for_ever() -> None:
    """Bytes put together by hand, as the module's docstring describes the format."""
    header = (
        '{"rollout":{"trace_id":"trace_é","scenario_id":"s","split":"train","attempt":1,"outcome":"ok",'
        '"stop":"answered","messages":[{"role":"user","content":"hi","tool_calls":[],"call_id":"","name":""}],'
        '"calls":[],"fault":{"where":"w","kind":"k","message":"m"},"state":{}},"trajectory":{"rows":[{"tokens":'
        '["<i4",2],"action_mask":["|b1",2],"logprobs":["<f4",2],"version":["<i4",2],"turn":["<i2",2]}],"forks":0,'
        '"drift":null}}'
    ).encode()
    arrays = bytes([1, 0, 0, 0, 2, 0, 0, 0]) + b"\x00\x01" + np.array([np.nan, -1.5], "<f4").tobytes()
    arrays += np.array([-1, 4], "<i4").tobytes() + bytes(4)
    body = len(header).to_bytes(4, "little") + header + arrays
    rollout = decode_rollout(b"ETUR\x01" + zlib.compress(body))
    assert (rollout.trace_id, rollout.attempt, rollout.outcome, rollout.reward) == ("trace_é", 1, Outcome.OK, None)
    assert rollout.fault == Fault("w", "k", "m")
    assert rollout.messages == (Message("user", "hi"),)
    row = rollout.trajectory.rows[0]
    assert row.tokens.tolist() == [1, 2]
    assert row.action_mask.tolist() == [False, True]
    assert np.isnan(row.logprobs[0])
    assert row.logprobs[1] == -1.5
    assert row.version.tolist() == [-1, 4]
    assert row.turn.tolist() == [0, 0]


@given(st.dictionaries(TEXT, st.none() | st.floats() | st.integers(-(2**80), 2**80), max_size=4))
@settings(deadline=None)
def test_numbers_round_trip_with_nan_and_infinities_as_strict_json(numbers: dict[str, float | None]) -> None:
    text = dump_numbers(numbers, "metrics")
    json.loads(text, parse_constant=pytest.fail)  # called for NaN and Infinity, which strict JSON does not have
    back = load_numbers(text)
    assert back.keys() == numbers.keys()
    assert all(repr(back[name]) == repr(value) for name, value in numbers.items())


def test_a_metric_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(StorageError, match="step 3 cannot be saved: loss is a str, not a number"):
        dump_numbers({"loss": "high"}, "step 3")  # type: ignore[dict-item]
