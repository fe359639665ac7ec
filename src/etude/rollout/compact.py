"""A chat format of few tokens, for small models that were pretrained for their tools: a role is one token, a call is a
tool's name and its arguments as compact JSON, and the prompt names the tools without describing them.

    <|system|>INSTRUCTIONS<|tools|>search read<|user|>QUESTION<|assistant|><|call|>search{"keywords":["plan"]}<|end|>
    <|tool|>RESULT<|assistant|>The answer.<|end|>          (one line; there is no space or line end around a token)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from etude.environment.calls import ToolCall
from etude.errors import ModelError
from etude.rollout.codec import Markup, Piece, TextCodec
from etude.rollout.messages import Message
from etude.rollout.parsing import Failure, ParsedTurn, ParseFailure, parse_arguments
from etude.rollout.turns import TurnFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SYSTEM, TOOLS, USER = Markup("<|system|>"), Markup("<|tools|>"), Markup("<|user|>")
ASSISTANT, RESULT = Markup("<|assistant|>"), Markup("<|tool|>")
CALL, END = Markup("<|call|>"), Markup("<|end|>")
# "Special" tokens have no place in a turn; a call is written by the model.
SPECIAL_TOKENS = (SYSTEM, TOOLS, USER, ASSISTANT, RESULT, END)
COMPACT_TOKENS = (*SPECIAL_TOKENS, CALL)

_CALL_HEAD = re.compile(r"([a-zA-Z0-9_-]{1,64})(?=\{)")
_SHOWN = 60  # characters of the model's own text that a message quotes


class CompactChat(TurnFormat):
    """For a tokenizer that holds COMPACT_TOKENS as added tokens, all but <|call|> special. A turn ends at <|end|>.

    In a turn, <|call|> begins a call, which goes on to the next one or the end of the turn; text stands before the
    first. Raises ModelError for a tokenizer that lacks the tokens.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        codec = TextCodec(tokenizer)
        if missing := [name for name in COMPACT_TOKENS if name not in codec.controls]:
            raise ModelError(
                f"the chat format 'compact' needs {', '.join(missing)} as added tokens, which this tokenizer lacks: it "
                "is for models that were pretrained in it"
            )
        super().__init__(codec, codec.controls[END], frozenset())

    def start(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        if not messages:
            raise ValueError("a conversation starts with at least one message")
        first_is_system = messages[0].role == "system"
        pieces: list[Piece] = [SYSTEM, messages[0].content] if first_is_system else []
        if tools:
            pieces += [TOOLS, " ".join(tool["function"]["name"] for tool in tools)]
        return self._render(pieces, messages[1:] if first_is_system else messages)

    def extend(
        self,
        held: Sequence[int],
        messages: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
    ) -> list[int]:
        self.split_conversation(held, messages, new)
        return [*held, *self._render([], new)]

    def parse(self, tokens: Sequence[int]) -> ParsedTurn:
        turn = list(tokens[:-1] if tokens and tokens[-1] in self.stop_ids else tokens)
        parsed = parse_compact(self.decode(turn))
        forbidden = self.forbidden_in(turn)
        return parsed if forbidden is None else replace(parsed, failures=(*parsed.failures, forbidden))

    def outside_text(self, text: str) -> str:
        """Results stand between control tokens, so nothing in a text can look like one to the model."""
        return text

    def assistant_pieces(self, message: Message) -> list[Piece]:
        """Content that holds calls is taken as it was sampled; otherwise the message's calls follow its content.
        Raises ValueError where content holds calls that are not the message's."""
        text, calls = message.content, message.tool_calls
        if calls and CALL in text:
            written = parse_compact(text).calls
            if [(call.name, call.arguments) for call in written] != [(call.name, call.arguments) for call in calls]:
                raise ValueError(f"an assistant message's content holds calls which are not its tool_calls: {text!r}")
            calls = ()
        return self.model_text("".join([text, *map(render_compact_call, calls)]))

    def _render(self, pieces: list[Piece], messages: Sequence[Message]) -> list[int]:
        """Tokens of pieces, messages and the head of the assistant's turn that follows."""
        tokens: list[int] = []
        for message in messages:
            if message.role == "system":
                raise ValueError("only the first message of a conversation can be a system message")
            if message.role == "assistant":
                # Encoded apart from what surrounds it, as it would be had it been sampled.
                tokens += self.codec.encode([*pieces, ASSISTANT]) + self.render_assistant(message)
                pieces = []
            else:
                pieces += [RESULT if message.role == "tool" else USER, message.content]
        return tokens + self.codec.encode([*pieces, ASSISTANT])


def parse_compact(text: str) -> ParsedTurn:
    """Parse one assistant turn as strictly as `parse_hermes`: nothing is repaired, each call that does not parse is one
    failure. Inside a JSON string <|call|> has to be written with an escape, as `render_compact_call` does."""
    content, *bodies = text.split(CALL)
    calls: list[ToolCall] = []
    failures: list[Failure] = []
    for body in bodies:
        head = _CALL_HEAD.match(body)
        if head is None:
            shown = json.dumps(body if len(body) <= _SHOWN else body[:_SHOWN] + "...")
            failures.append(
                Failure(ParseFailure.BAD_NAME, f'a call is a tool\'s name and a JSON object, name{{"key":1}}: {shown}')
            )
            continue
        arguments = parse_arguments(head[1], body[head.end() :])
        if isinstance(arguments, Failure):
            failures.append(arguments)
        else:
            calls.append(ToolCall(name=head[1], arguments=arguments, id=f"call_{len(calls)}"))
    return ParsedTurn(content.strip(), tuple(calls), tuple(failures))


def render_compact_call(call: ToolCall) -> str:
    """A call as `parse_compact` reads it. Raises ValueError for a name that cannot be written, and for arguments that
    are not JSON (NaN, objects of Python, keys that are no strings)."""
    body = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = CALL + call.name + body.replace("<|", "\\u003c|")
    written = parse_compact(text)
    if [(each.name, each.arguments) for each in written.calls] != [(call.name, call.arguments)]:
        raise ValueError(f"a call that would not be read as it was meant: {call.name!r} with {call.arguments!r}")
    return text
