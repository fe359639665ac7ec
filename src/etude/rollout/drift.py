"""Drift: what other libraries lose silently, by decoding a conversation and encoding it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein

from etude.rollout.chat import ChatFormat
from etude.rollout.messages import Message


def measure_drift(
    chat: ChatFormat, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], held: Sequence[int]
) -> int:
    """Tokens in which rendering the whole conversation anew differs from what was held: the Levenshtein distance of
    the two sequences, where inserting, deleting or replacing one token costs 1.

    messages: the conversation; an assistant's content is the decoded text of its sampled turn, without stop token.
    What follows the last assistant turn is left out (nothing was sampled after it). held: the tokens up to the end of
    that turn; where they lack its stop token (a truncated turn), the rendering's is left out too.
    Raises ValueError where no message is an assistant's.
    """
    turns = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if not turns:
        raise ValueError("drift is measured on sampled turns, and this conversation has no assistant message")
    last = turns[-1]
    rendered = [*chat.start(messages[:last], tools), *chat.render_assistant(messages[last])]
    if held and held[-1] not in chat.stop_ids:
        rendered.pop()
    return Levenshtein.distance(list(held), rendered)
