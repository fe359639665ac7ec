"""Strict parsing of tool calls in the Hermes form, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

Nothing is repaired: in training a repaired call would teach the model that its broken form works. Each failure has a
kind, for counting, and a message that says to the model what was wrong and how to write it. A turn may hold calls that
parse beside blocks that do not: both are reported.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

from etude.environment.calls import ToolCall

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
RESULT_OPEN, RESULT_CLOSE = "<tool_response>", "</tool_response>"
_CALL_TAG = re.compile(f"{CALL_OPEN}|{CALL_CLOSE}")
_RESULT_TAG = re.compile(f"{RESULT_OPEN}|{RESULT_CLOSE}")
_KEYS = ("name", "arguments")
_SHOWN = 60  # characters of the model's own text that a message quotes


class ParseFailure(StrEnum):
    """Every way in which a turn can fail to parse. The kinds are counted in `Rollout.parse_failures`."""

    UNCLOSED_CALL = "unclosed_call"  # an opening tag with no closing tag before the next opening one, or the end
    STRAY_CLOSE = "stray_close"  # a closing tag without an opening one
    BAD_JSON = "bad_json"  # no JSON, more than one value, nested too deep, or text that is not Unicode
    DUPLICATE_KEY = "duplicate_key"  # a key twice in one object, at any depth: which one was meant?
    NOT_A_NUMBER = "not_a_number"  # NaN, Infinity, or a number too large for a float, at any depth
    NOT_AN_OBJECT = "not_an_object"  # JSON, but no object
    BAD_NAME = "bad_name"  # "name" is missing, empty or no string
    BAD_ARGUMENTS = "bad_arguments"  # "arguments" is missing or no object (a string that holds JSON is no object)
    EXTRA_KEY = "extra_key"  # a key beside "name" and "arguments"
    FAKED_RESULT = "faked_result"  # the model wrote a result tag itself
    CONTROL_TOKEN = "control_token"  # a token inside the turn that only a chat format may write


class Failure(NamedTuple):
    kind: ParseFailure
    message: str


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """content: the text outside the call blocks, stripped; text after a call is allowed and is part of it. calls: those
    that parsed, in order, with ids "call_0", "call_1", ... failures: at most one of each block, in order, then those of
    the whole turn."""

    content: str
    calls: tuple[ToolCall, ...]
    failures: tuple[Failure, ...]


class _Bad(Exception):
    """Carries one failure out of the JSON decoder's hooks; never leaves this module."""

    def __init__(self, kind: ParseFailure, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message)


def parse_hermes(text: str) -> ParsedTurn:
    """Parse one assistant turn. Tags are found before JSON is read: inside a JSON string a tag has to be written with
    an escape (`\\u003c/tool_call>`), as `render_call` does. Tags and keys are case-sensitive."""
    outside: list[str] = []
    calls: list[ToolCall] = []
    failures: list[Failure] = []
    opened: int | None = None  # where the body of the open block begins
    end = 0  # where the text that was dealt with ends
    for tag in _CALL_TAG.finditer(text):
        if tag.group() == CALL_OPEN:
            if opened is None:
                outside.append(text[end : tag.start()])
            else:
                failures.append(_unclosed(text[opened : tag.start()]))
            opened = tag.end()
        elif opened is None:
            outside.append(text[end : tag.start()])
            failures.append(Failure(ParseFailure.STRAY_CLOSE, f"{CALL_CLOSE} closes nothing: no {CALL_OPEN} before it"))
        else:
            try:
                name, arguments = _parse_call(text[opened : tag.start()])
                calls.append(ToolCall(name=name, arguments=arguments, id=f"call_{len(calls)}"))
            except _Bad as bad:
                failures.append(bad.failure)
            opened = None
        end = tag.end()
    if opened is None:
        outside.append(text[end:])
    else:
        failures.append(_unclosed(text[opened:]))
    if any(_RESULT_TAG.search(part) for part in outside):
        message = "results are written by the environment, never by you: end your turn after your calls"
        failures.append(Failure(ParseFailure.FAKED_RESULT, message))
    return ParsedTurn("".join(outside).strip(), tuple(calls), tuple(failures))


def parse_arguments(name: str, text: str) -> dict[str, Any] | Failure:
    """The arguments of a call of `name`, where `text` is one JSON object, read as strictly as `parse_hermes` reads."""
    try:
        value = _load(text)
    except _Bad as bad:
        return bad.failure
    if not isinstance(value, dict):
        return Failure(
            ParseFailure.BAD_ARGUMENTS, f"the arguments of {name} must be a JSON object, this is {_kind(value)}"
        )
    return value


def render_call(call: ToolCall) -> str:
    """A call as `parse_hermes` reads it, in the layout that Hermes models are trained on. Raises ValueError for
    arguments that are not JSON (NaN, objects of Python, keys that are no strings)."""
    _require_string_keys(call.arguments)
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False, allow_nan=False)
    return f"{CALL_OPEN}\n{escape_tags_in_json(body)}\n{CALL_CLOSE}"


def escape_tags_in_json(text: str) -> str:
    """Valid JSON with the tags of this protocol escaped inside its strings (the only place where JSON can hold one)."""
    return re.sub(r"<(?=/?(?:tool_call|tool_response|tools)>)", r"\\u003c", text)


def _unclosed(body: str) -> Failure:
    return Failure(ParseFailure.UNCLOSED_CALL, f"a call is not closed by {CALL_CLOSE}: {_quote(body)}")


def _parse_call(body: str) -> tuple[str, dict[str, Any]]:
    value = _load(body)
    if not isinstance(value, dict):
        raise _Bad(ParseFailure.NOT_AN_OBJECT, f"a call must be a JSON object, this is {_kind(value)}: {_quote(body)}")
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or not name.strip():
        found = "an empty one" if isinstance(name, str) else _found(value, "name")
        raise _Bad(ParseFailure.BAD_NAME, f'a call needs "name", the name of a function as a string; found {found}')
    if not isinstance(arguments, dict):
        found = _found(value, "arguments")
        raise _Bad(ParseFailure.BAD_ARGUMENTS, f'the call of {name} needs "arguments", a JSON object; found {found}')
    extra = [key for key in value if key not in _KEYS]
    if extra:
        names = ", ".join(map(_quote, extra))
        raise _Bad(ParseFailure.EXTRA_KEY, f'a call has the keys "name" and "arguments" only; found also {names}')
    return name, arguments


def _load(body: str) -> Any:
    """The one JSON value of `body`, read as strictly as RFC 8259 allows."""
    try:
        value = json.loads(
            body, object_pairs_hook=_object, parse_constant=_refuse_number, parse_float=_float, parse_int=_int
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise _Bad(
            ParseFailure.BAD_JSON, f"a call is not valid JSON ({error.msg} at character {error.pos}): {_quote(body)}"
        ) from None
    except RecursionError:
        raise _Bad(ParseFailure.BAD_JSON, f"a call is nested too deep: {_quote(body)}") from None
    except UnicodeEncodeError:
        raise _Bad(
            ParseFailure.BAD_JSON, f"a call holds half of a surrogate pair, which is no character: {_quote(body)}"
        ) from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise _Bad(ParseFailure.DUPLICATE_KEY, f"the key {_quote(key)} is twice in one object of a call")
        value[key] = item
    return value


def _float(literal: str) -> float:
    value = float(literal)
    return value if math.isfinite(value) else _refuse_number(literal)


def _int(literal: str) -> int:
    try:
        return int(literal)
    except ValueError:  # more digits than Python reads
        _refuse_number(literal)


def _refuse_number(literal: str) -> NoReturn:
    raise _Bad(ParseFailure.NOT_A_NUMBER, f"{_quote(literal)} is not a number that JSON can hold")


def _require_string_keys(value: Any) -> None:
    """json.dumps would turn 1 and None as keys into "1" and "null": the call would not come back as it was."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"an argument's key is {key!r}: keys of JSON objects are strings")
            _require_string_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _require_string_keys(item)


def _found(value: dict[str, Any], key: str) -> str:
    return _kind(value[key]) if key in value else "none"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _quote(text: str) -> str:
    text = text.strip()
    return json.dumps(text if len(text) <= _SHOWN else text[:_SHOWN] + "...", ensure_ascii=True)
