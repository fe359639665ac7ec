"""Chat through the model's own template, for models that are no ChatML.

The template renders the whole conversation each turn, but only what it adds is encoded: held tokens are kept as long
as the template leaves what stands before. Where it rewrites history (drops thinking, moves the system prompt), the
prompt is encoded anew; `TrajectoryBuilder` then starts a new row and counts a fork.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etude.errors import ModelError
from etude.rollout.codec import Markup, Piece, TextCodec
from etude.rollout.messages import Message
from etude.rollout.template_check import TemplateReport, inspect_template
from etude.rollout.turns import TurnFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "\U000f0000"  # private use: no control token's name holds it
_REPLY = "Probe"


class TemplateChat(TurnFormat):
    """`tokenizer.apply_chat_template`, with text from outside kept as text and calls in the Hermes form.

    In the template's rendering, text of messages is told from markup by a mark that is put into the control tokens'
    names which the text holds, and taken out before encoding.

    end_of_turn is the control token that the template writes after an assistant's content; the tokenizer's
    end-of-sequence token stops sampling as well. report: what the template does with history and tools.
    Raises ModelError where there is no template, or no such token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            raise ModelError("the chat format 'template' needs a tokenizer with a chat template; this one has none")
        self._tokenizer = tokenizer
        codec = TextCodec(tokenizer)
        asked = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": _REPLY}]
        closing = codec.split(_apply(tokenizer, asked, [], prompt=False).rpartition(_REPLY)[2])
        if not closing or not isinstance(closing[0], Markup):
            raise ModelError(
                f"the chat template ends an assistant's turn with {''.join(closing)!r}, which is no control token: "
                "sampling would not know where to stop"
            )
        eos = codec.controls.get(tokenizer.eos_token or "")
        super().__init__(codec, codec.controls[closing[0]], frozenset() if eos is None else frozenset({eos}))
        self._closing = "".join(closing)  # the end of turn, and what the template puts after it
        self.report = self.check([])

    def check(self, tools: Sequence[Mapping[str, Any]]) -> TemplateReport:
        """What the template does with these tools (with one of our own where there are none) and with history."""

        def render(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
            return "".join(self._render(messages, tools))

        return inspect_template(render, self.decode([self.end_of_turn]), tools)

    def start(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        if not messages:
            raise ValueError("a conversation starts with at least one message")
        return self.codec.encode(self._render(messages, tools))

    def extend(
        self,
        held: Sequence[int],
        messages: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
    ) -> list[int]:
        before = self.split_conversation(held, messages, new)
        pieces = self._render(messages, tools)
        text, known = "".join(pieces), self.decode(held[:-1])
        if not text.startswith(known) and self.report.append_only:
            # The same conversation in other characters (trimmed, normalised): what was there before is still before.
            known = "".join(self._render(before, tools, prompt=False)).removesuffix(self._closing)
        added = _drop(pieces, len(known)) if text.startswith(known) else []
        if not added or self.codec.controls.get(added[0]) != self.end_of_turn:
            return self.codec.encode(pieces)
        return [*held, *self.codec.encode(added[1:] if held[-1] == self.end_of_turn else added)]

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], prompt: bool = True
    ) -> list[Piece]:
        """The template's rendering, as markup and text. prompt: with the head of the assistant's turn that follows."""
        texts = ["".join(self.assistant_pieces(m)) if m.role == "assistant" else m.content for m in messages]
        specs = json.dumps(list(tools), ensure_ascii=False)
        runs = re.findall(f"{_MARK}+", specs + "\n".join(texts))
        mark = _MARK * (1 + max(map(len, runs), default=0))
        rows: list[dict[str, Any]] = []
        for message, text in zip(messages, texts, strict=True):
            row: dict[str, Any] = {"role": message.role, "content": self._defuse(message, text, mark)}
            if message.role == "tool":
                row |= {"tool_call_id": message.call_id, "name": message.name}
            rows.append(row)
        rendered = _apply(self._tokenizer, rows, json.loads(self.codec.defuse(specs, mark)), prompt)
        return [piece if isinstance(piece, Markup) else piece.replace(mark, "") for piece in self.codec.split(rendered)]

    def _defuse(self, message: Message, text: str, mark: str) -> str:
        if message.role == "assistant":
            pieces = self.model_text(text)
            return "".join(p if isinstance(p, Markup) else self.codec.defuse(p, mark) for p in pieces)
        outside = message.role in ("user", "tool")
        return self.codec.defuse(self.outside_text(text) if outside else text, mark)


def check_template(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Mapping[str, Any]] = ()) -> TemplateReport:
    """What the tokenizer's chat template does with history and tools; see TemplateReport. Raises ModelError where
    `TemplateChat` could not use it at all."""
    return TemplateChat(tokenizer).check(tools)


def _apply(
    tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, Any]], tools: list[dict[str, Any]], prompt: bool
) -> str:
    from jinja2 import TemplateError  # only where a template is used

    try:
        return tokenizer.apply_chat_template(rows, tools=tools or None, add_generation_prompt=prompt, tokenize=False)
    except (TemplateError, TypeError, ValueError) as error:
        roles = ", ".join(row["role"] for row in rows)
        raise ModelError(f"the chat template cannot write a conversation of {roles}: {error}") from error


def _drop(pieces: Sequence[Piece], characters: int) -> list[Piece]:
    """Pieces without their first `characters`; empty where that would cut a control token in two."""
    for index, piece in enumerate(pieces):
        if characters == 0:
            return list(pieces[index:])
        if characters < len(piece):
            return [] if isinstance(piece, Markup) else [piece[characters:], *pieces[index + 1 :]]
        characters -= len(piece)
    return []
