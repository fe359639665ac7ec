"""ChatML with Hermes tool calls, written by us: the form that SmolLM2, Qwen2.5, Qwen3 and Hermes models know.

SmolLM2's own template has no tools, and Qwen2.5-Coder's prints the call format with doubled braces, which models copy.
The layout is that of Qwen2.5 (tools block in the system turn, results in a user turn), without its default system text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from etude.errors import ModelError
from etude.rollout.codec import Markup, Piece, TextCodec
from etude.rollout.messages import Message
from etude.rollout.parsing import CALL_CLOSE, CALL_OPEN, RESULT_CLOSE, RESULT_OPEN, escape_tags_in_json
from etude.rollout.turns import TurnFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_ASSISTANT = Markup(f"{IM_START}assistant\n")
_END = Markup(f"{IM_END}\n")
_TOOLS_HEAD = Markup(
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_TOOLS_TAIL = Markup(
    "</tools>\n\nFor each function call, return a json object with function name and arguments within "
    f"{CALL_OPEN}{CALL_CLOSE} XML tags:\n"
    f'{CALL_OPEN}\n{{"name": <function-name>, "arguments": <args-json-object>}}\n{CALL_CLOSE}'
)


class HermesChat(TurnFormat):
    """ChatML turns, Hermes tools; for any tokenizer that holds <|im_start|> and <|im_end|> as added tokens.

    A turn ends at <|im_end|>; the tokenizer's end-of-sequence token and <|endoftext|> stop sampling as well, and are
    then followed by an <|im_end|> that was not sampled.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        codec = TextCodec(tokenizer)
        missing = [name for name in (IM_START, IM_END) if name not in codec.controls]
        if missing:
            raise ModelError(
                f"the chat format 'hermes' needs {' and '.join(missing)} as added tokens, which this tokenizer lacks: "
                "use the chat format 'template', or add the tokens and train their embeddings"
            )
        stops = {codec.controls.get(name) for name in (tokenizer.eos_token, END_OF_TEXT)}
        stops -= {None, codec.controls[IM_START]}
        super().__init__(codec, codec.controls[IM_END], frozenset(stop for stop in stops if stop is not None))

    def start(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        if not messages:
            raise ValueError("a conversation starts with at least one message")
        first_is_system = messages[0].role == "system"
        pieces: list[Piece] = []
        if first_is_system or tools:
            instructions = messages[0].content if first_is_system else ""
            pieces = [Markup(f"{IM_START}system\n"), *_system(instructions, tools), _END]
        return self._render(pieces, messages[1:] if first_is_system else messages)

    def extend(
        self,
        held: Sequence[int],
        messages: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
    ) -> list[int]:
        self.split_conversation(held, messages, new)
        closing = Markup("\n") if held[-1] == self.end_of_turn else _END
        return [*held, *self._render([closing], new)]

    def _render(self, pieces: list[Piece], messages: Sequence[Message]) -> list[int]:
        """Tokens of pieces, messages and the head of the assistant's turn that follows."""
        tokens: list[int] = []
        for role, run in groupby(messages, key=lambda message: message.role):
            if role == "system":
                raise ValueError("only the first message of a conversation can be a system message")
            if role == "assistant":
                # Encoded apart from what surrounds them, as they would be had they been sampled.
                for message in run:
                    tokens += self.codec.encode([*pieces, _ASSISTANT]) + self.render_assistant(message)
                    pieces = [Markup("\n")]
            elif role == "tool":
                pieces += [Markup(f"{IM_START}user"), *self._results(list(run)), _END]
            else:
                for message in run:
                    pieces += [Markup(f"{IM_START}user\n"), self.outside_text(message.content), _END]
        return tokens + self.codec.encode([*pieces, _ASSISTANT])

    def _results(self, messages: Sequence[Message]) -> list[Piece]:
        pieces: list[Piece] = []
        for message in messages:
            pieces += [Markup(f"\n{RESULT_OPEN}\n"), self.outside_text(message.content), Markup(f"\n{RESULT_CLOSE}")]
        return pieces


def _system(instructions: str, tools: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """The system turn's content. A tool's description may come from a server: its text cannot close the tools block."""
    if not tools:
        return [instructions]
    lines = [escape_tags_in_json(json.dumps(tool, ensure_ascii=False)) + "\n" for tool in tools]
    return [instructions, "\n\n" if instructions else "", _TOOLS_HEAD, *lines, _TOOLS_TAIL]
