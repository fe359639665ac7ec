"""Reading what an endpoint sends. Nothing of it is trusted: every part is checked before anybody uses it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_TOKENS = 10**9  # what claims more is not counting tokens
_SHOWN = 300  # characters of an endpoint's text that a message quotes


class BadReply(Exception):
    """A reply that is no chat completion; the message says why, for a person."""


@dataclass(frozen=True, slots=True)
class Reply:
    """message: the assistant's, in OpenAI's form and as it can be sent back: role, content (text, never null) and,
    where there are any, tool_calls, whose arguments are the text that the model wrote. Token counts are None where the
    endpoint told none. hidden_tokens: completion tokens of reasoning that is not in the message."""

    message: dict[str, Any]
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    hidden_tokens: int


def parse_reply(data: bytes) -> Reply:
    """Raises BadReply."""
    value = load_json(data)
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(choices, list) or not choices:
        raise BadReply(f"a reply without choices: {quote(data)}")
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise BadReply(f"a reply without a message: {quote(data)}")
    content, calls = _content(message.get("content")), _calls(message.get("tool_calls"))
    made: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        made["tool_calls"] = calls
    usage = value.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("completion_tokens_details")
    hidden = _count(details.get("reasoning_tokens")) if isinstance(details, dict) else None
    return Reply(
        message=made,
        finish_reason=str(choice.get("finish_reason") or "stop"),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        hidden_tokens=hidden or 0,
    )


def load_json(data: bytes) -> Any:
    """Raises BadReply for what is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # not UTF-8 and not JSON are ValueErrors too
        raise BadReply(f"a reply that is not JSON: {quote(data)}") from None


def error_of(data: bytes) -> tuple[str, str]:
    """(code, message) of an error's body; OpenAI's form where it has it, else ("", its beginning)."""
    try:
        value = load_json(data)
    except BadReply:
        return "", quote(data)
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, Mapping):
        return "", _printable(str(error))
    code = error.get("code")
    text = error.get("message") or error.get("detail") or json.dumps(error)
    return code if isinstance(code, str) else "", _printable(str(text))


def quote(data: bytes) -> str:
    """The beginning of a body, for a message."""
    return _printable(data[: 4 * _SHOWN].decode("utf-8", "replace")) if data else "nothing"


def _printable(text: str) -> str:
    """Without what would steer a terminal, and not long."""
    shown = "".join(each if each.isprintable() else " " for each in text[: _SHOWN + 1])
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."


def _content(value: object) -> str:
    """Text; some endpoints send it in parts."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "".join(_content(part.get("text")) for part in value if isinstance(part, dict))
    if not isinstance(value, str):
        raise BadReply(f"a message whose content is no text but {type(value).__name__}")
    return _unicode(value)


def _calls(value: object) -> list[dict[str, Any]]:
    """Tool calls with an id each, unique in the turn. A name that is missing becomes "": that is the model's doing."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadReply(f"a message whose tool_calls are no list but {type(value).__name__}")
    made: list[dict[str, Any]] = []
    seen: set[str] = set()
    for number, call in enumerate(value):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict):
            raise BadReply("a message with a tool call that has no function")
        name, identity = function.get("name"), call.get("id")
        if not isinstance(identity, str) or not identity or identity in seen:
            identity = f"call_{number}"
            while identity in seen:
                identity += "_"
        seen.add(identity)
        made.append(
            {
                "id": _unicode(identity),
                "type": "function",
                "function": {
                    "name": _unicode(name) if isinstance(name, str) else "",
                    "arguments": _arguments(function.get("arguments")),
                },
            }
        )
    return made


def _arguments(value: object) -> str:
    """As text, whatever it holds. Several endpoints send an object, and nothing where a function takes no arguments."""
    if value is None or value == "":
        return "{}"
    return _unicode(value) if isinstance(value, str) else json.dumps(value)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_TOKENS:
        return None
    return value


def _unicode(text: str) -> str:
    """Half surrogate pairs (JSON can escape them) become U+FFFD: neither a store nor a request can hold them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
