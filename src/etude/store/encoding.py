"""A rollout as bytes, whole: the exact tokens, masks and log-probabilities, messages, calls, state and scores.

Format 1: `ETUR`, one byte of version, then zlib: the header's length (u32, little-endian), the header (JSON), and the
arrays' bytes one after another in the header's order. Measured on transcripts of real mail (2,100 tokens, 40 kB raw):
zlib 9.0 kB in 0.9 ms, lzma 8.0 kB in 8 ms; transposing the bytes of the arrays first gains 3 %.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from etude.environment.calls import Fault, ToolCall
from etude.errors import StorageError
from etude.rollout.messages import Message
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import CallRecord, Rollout
from etude.rollout.trajectory import Row, Trajectory

FORMAT = 1
MAX_DEPTH = 300  # Python's JSON fails near 1,000, the depth of the caller's stack included
_MAGIC = b"ETUR"
_LENGTH = struct.Struct("<I")


def encode_rollout(rollout: Rollout) -> bytes:
    """The rollout as bytes; `decode_rollout` gives an equal one back, array by array and bit by bit.

    Keys of `state` that start with "_" are private and left out. Raises StorageError, naming the place, for a value
    that JSON would not give back as it was (a tuple, a set, a key that is no text, ...).
    """
    arrays: list[NDArray[Any]] = []
    plain = {name: value for name, value in _fields(rollout).items() if name not in ("trajectory", "state")}
    plain["messages"] = [
        {**_fields(message), "tool_calls": [_fields(call) for call in message.tool_calls]}
        for message in rollout.messages
    ]
    plain["calls"] = [_fields(call) for call in rollout.calls]
    plain["fault"] = None if rollout.fault is None else _fields(rollout.fault)
    plain["state"] = {key: value for key, value in rollout.state.items() if not str(key).startswith("_")}
    problem = why_not_json(plain)
    if problem is not None:
        raise StorageError(f"rollout {rollout.trace_id} cannot be saved: {problem}")
    trajectory = _fields(rollout.trajectory)
    trajectory["rows"] = [_describe(row, arrays) for row in rollout.trajectory.rows]
    # Unlike \u escapes, "surrogatepass" keeps lone surrogates apart that stand side by side.
    header = _dumps({"rollout": plain, "trajectory": trajectory}).encode("utf-8", "surrogatepass")
    body = b"".join([_LENGTH.pack(len(header)), header, *(array.tobytes() for array in arrays)])
    return _MAGIC + bytes([FORMAT]) + zlib.compress(body)


def decode_rollout(data: bytes) -> Rollout:
    """The inverse of `encode_rollout`. Raises StorageError for what is damaged or of a newer format."""
    if data[: len(_MAGIC)] != _MAGIC or len(data) <= len(_MAGIC):
        raise StorageError(f"not a saved rollout: it begins with {data[:5]!r}")
    if data[len(_MAGIC)] != FORMAT:
        raise StorageError(f"rollout saved in format {data[len(_MAGIC)]}, this Etude reads {FORMAT}: upgrade Etude")
    try:
        body = zlib.decompress(data[len(_MAGIC) + 1 :])
        (length,) = _LENGTH.unpack_from(body)
        start = _LENGTH.size + length
        header = json.loads(body[_LENGTH.size : start].decode("utf-8", "surrogatepass"))
        return _rollout(header["rollout"], header["trajectory"], body[start:])
    except (zlib.error, struct.error, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"a saved rollout is damaged ({type(error).__name__}: {error})") from error


def why_not_json(value: Any, where: str = "") -> str | None:
    """None where JSON gives back `value` as it is; else which part is in the way, for a message.

    Numpy scalars pass: they come back as the Python number of the same value.
    """
    open_values: list[tuple[str, Any, int]] = [(where, value, 0)]
    while open_values:
        place, item, depth = open_values.pop()
        if item is None or isinstance(item, str | int | float | np.integer | np.floating | np.bool_):
            continue
        if depth > MAX_DEPTH:  # also ends the search through a list that holds itself
            return f"{place[:40]}… is nested more than {MAX_DEPTH} deep"
        if isinstance(item, list):
            open_values += [(f"{place}[{index}]", part, depth + 1) for index, part in enumerate(item)]
        elif isinstance(item, dict):
            for key, part in item.items():
                if not isinstance(key, str):
                    return f"{place or 'the value'} has the key {key!r}, and JSON's keys are text"
                open_values.append((f"{place}.{key}" if place else key, part, depth + 1))
        else:
            hint = ": use a list" if isinstance(item, tuple | set | frozenset) else ""
            return f"{place or 'the value'} is a {type(item).__name__}, which JSON would not give back{hint}"
    return None


def dump_json(value: Mapping[str, Any], what: str) -> str:
    """JSON text for a readable column, NaN as Python's json writes and reads it. Raises StorageError, naming `what` and
    the place in it."""
    problem = why_not_json(dict(value))
    if problem is not None:
        raise StorageError(f"{what} cannot be saved: {problem}")
    return _dumps(dict(value), ensure_ascii=True)


def dump_numbers(numbers: Mapping[str, float | None], what: str) -> str:
    """Strict JSON that other programs can read: NaN and the infinities, which JSON lacks, become text."""
    plain: dict[str, float | str | None] = {}
    for name, value in numbers.items():
        number = plain_number(value)
        if number is not None and not isinstance(number, int | float):
            raise StorageError(f"{what} cannot be saved: {name} is a {type(value).__name__}, not a number")
        plain[name] = number if number is None or math.isfinite(number) else str(float(number))
    return _dumps(plain, ensure_ascii=True)


def plain_number(value: Any) -> Any:
    """A numpy scalar as the Python number of the same value; everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def load_numbers(text: str) -> dict[str, Any]:
    """The inverse of `dump_numbers`."""
    return {name: float(value) if isinstance(value, str) else value for name, value in json.loads(text).items()}


def _dumps(value: Any, ensure_ascii: bool = False) -> str:
    try:
        return json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"), default=_number)
    except ValueError as error:  # an integer of more than 4,300 digits
        raise StorageError(f"a value cannot be saved as JSON: {error}") from error


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return plain_number(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _fields(item: Any) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in fields(item)}


def _describe(row: Row, arrays: list[NDArray[Any]]) -> dict[str, list[Any]]:
    """Type and length of each array of the row; the arrays themselves are appended to `arrays`."""
    described = {}
    for name, array in row.arrays().items():
        if array.dtype.kind not in "biuf":
            raise StorageError(f"a trajectory's {name} must be numbers, not {array.dtype}")
        arrays.append(array)
        described[name] = [array.dtype.str, len(array)]
    return described


def _rollout(plain: dict[str, Any], trajectory: dict[str, Any], data: bytes) -> Rollout:
    take = _array_reader(data)
    rows = tuple(Row(**{name: take(*shape) for name, shape in row.items()}) for row in trajectory.pop("rows"))
    messages = tuple(
        Message(**{**message, "tool_calls": tuple(ToolCall(**call) for call in message["tool_calls"])})
        for message in plain.pop("messages")
    )
    fault = plain.pop("fault")
    return Rollout(
        messages=messages,
        calls=tuple(CallRecord(**call) for call in plain.pop("calls")),
        trajectory=Trajectory(rows=rows, **trajectory),
        outcome=Outcome(plain.pop("outcome")),
        stop=Stop(plain.pop("stop")),
        fault=None if fault is None else Fault(**fault),
        **plain,
    )


def _array_reader(data: bytes) -> Callable[[str, int], NDArray[Any]]:
    position = 0

    def take(dtype: str, length: int) -> NDArray[Any]:
        nonlocal position
        array = np.frombuffer(data, dtype=dtype, count=length, offset=position).copy()
        position += array.nbytes
        return array

    return take
