"""What every chat format does the same way with a sampled turn: decode it, parse it, count and cut text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from etude.rollout.codec import Piece, TextCodec
from etude.rollout.messages import Message
from etude.rollout.parsing import (
    CALL_CLOSE,
    CALL_OPEN,
    RESULT_CLOSE,
    RESULT_OPEN,
    Failure,
    ParsedTurn,
    ParseFailure,
    parse_hermes,
    render_call,
)

_RESULT_TAG = re.compile(r"<(?=\s*/?\s*tool_response\s*>)", re.IGNORECASE)


class TurnFormat:
    """stop_ids: tokens that end a turn; `end_of_turn` is the one of them that the format itself writes.

    Text from outside (instructions, user text, tool outputs) never becomes a control token. Where the tokenizer knows
    <tool_response> only as text, an output that holds that tag could show the model a result that no tool gave, though
    no token is wrong: so there "<" of such tags is written "&lt;" in user text and tool outputs, which the model sees.
    Instructions are the author's own and may speak of tags.
    """

    def __init__(self, codec: TextCodec, end_of_turn: int, other_stops: frozenset[int]) -> None:
        self.codec = codec
        self.end_of_turn = end_of_turn
        self.stop_ids = frozenset({end_of_turn}) | other_stops
        call_tags = {codec.controls.get(CALL_OPEN), codec.controls.get(CALL_CLOSE)}
        self._not_in_a_turn = codec.special_ids - call_tags
        self._results_are_controls = {RESULT_OPEN, RESULT_CLOSE} <= set(codec.controls)

    def parse(self, tokens: Sequence[int]) -> ParsedTurn:
        turn = list(tokens[:-1] if tokens and tokens[-1] in self.stop_ids else tokens)
        parsed = parse_hermes(self.decode(turn))
        forbidden = self.forbidden_in(turn)
        return parsed if forbidden is None else replace(parsed, failures=(*parsed.failures, forbidden))

    def forbidden_in(self, turn: Sequence[int]) -> Failure | None:
        """What is wrong with a turn that holds tokens which only the format may write."""
        written = sorted(self._not_in_a_turn.intersection(turn))
        if not written:
            return None
        names = ", ".join(self.decode([token]) for token in written)
        return Failure(ParseFailure.CONTROL_TOKEN, f"a turn must not hold control tokens; found {names}")

    def decode(self, tokens: Sequence[int]) -> str:
        return self.codec.decode(tokens)

    def count(self, text: str) -> int:
        return self.codec.count(self.outside_text(text))

    def cut(self, text: str, max_tokens: int) -> tuple[str, int, bool]:
        return self.codec.cut(self.outside_text(text), max_tokens)

    def render_assistant(self, message: Message) -> list[int]:
        return [*self.codec.encode(self.assistant_pieces(message)), self.end_of_turn]

    def outside_text(self, text: str) -> str:
        """User text or a tool's output as the model will see it."""
        return text if self._results_are_controls else _RESULT_TAG.sub("&lt;", text)

    def split_conversation(
        self, held: Sequence[int], messages: Sequence[Message], new: Sequence[Message]
    ) -> Sequence[Message]:
        """The messages before `new`. Raises ValueError unless `held` ends a turn and `new` goes on from there."""
        if not held or held[-1] not in self.stop_ids:
            last = repr(self.decode(held[-1:])) if held else "nothing"
            stops = ", ".join(self.decode([token]) for token in sorted(self.stop_ids))
            raise ValueError(
                f"cannot extend a turn that is not over: the held tokens end with {last}, not with {stops}. "
                "A truncated turn ends its rollout"
            )
        if not new:
            raise ValueError("cannot extend with no new message: a turn would follow a turn")
        before = len(messages) - len(new)
        if list(messages[max(0, before) :]) != list(new):
            raise ValueError("cannot extend: `messages` is the whole conversation and has to end with `new`")
        return messages[:before]

    def assistant_pieces(self, message: Message) -> list[Piece]:
        """The turn of `message` in the Hermes form. Content that holds call tags is taken as it was sampled; otherwise
        the message's calls follow its content. Tags that models write (calls, `<think>`) are markup, the rest is text.

        Raises ValueError where content holds call markup that is not the message's calls.
        """
        text, calls = message.content, message.tool_calls
        if calls and (CALL_OPEN in text or CALL_CLOSE in text):
            written = parse_hermes(text).calls
            if [(call.name, call.arguments) for call in written] != [(call.name, call.arguments) for call in calls]:
                raise ValueError(f"an assistant message's content holds calls which are not its tool_calls: {text!r}")
            calls = ()
        blocks = ([text] if text or not calls else []) + [render_call(call) for call in calls]
        return self.model_text("\n".join(blocks))

    def model_text(self, text: str) -> list[Piece]:
        """Pieces of text that a model wrote: a control token that has no place in a turn stays text."""
        return [
            str(piece) if self.codec.controls.get(piece) in self._not_in_a_turn else piece
            for piece in self.codec.split(text)
        ]
