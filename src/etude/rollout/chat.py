"""Chat formats: how messages become the tokens of a prompt, and a sampled turn becomes text and calls.

A conversation is held token by token. Each next prompt is what was held plus the rendering of only the new messages,
so what is trained is what was sampled, and nothing is ever encoded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from etude.errors import ConfigError, ModelError
from etude.rollout.chatml import IM_END, IM_START, HermesChat
from etude.rollout.compact import COMPACT_TOKENS, CompactChat
from etude.rollout.messages import Message
from etude.rollout.parsing import ParsedTurn
from etude.rollout.template_chat import TemplateChat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["CHAT_FORMATS", "ChatFormat", "ParsedTurn", "ToolSpec", "chat_format", "check_chat_name"]

ToolSpec = Mapping[str, Any]  # {"type": "function", "function": {"name", "description", "parameters"}}


class ChatFormat(Protocol):
    """One way of writing conversations as tokens. Text of messages never becomes a control token."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a sampled turn."""
        ...

    def start(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """The first prompt, up to where the assistant's turn begins. Raises ValueError for an order of messages that
        the format cannot write."""
        ...

    def extend(
        self, held: Sequence[int], messages: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> list[int]:
        """The whole next prompt. held: prompt and sampled turn, down to its stop token. messages: the whole
        conversation. new: its last messages, which `held` does not hold yet (tool results, user messages).
        Raises ValueError where `held` ends inside a turn (a truncated turn ends a rollout) or `new` is not the end of
        `messages`."""
        ...

    def parse(self, tokens: Sequence[int]) -> ParsedTurn:
        """One sampled turn, with or without its stop token."""
        ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def count(self, text: str) -> int:
        """Tokens of `text` as a message's content."""
        ...

    def cut(self, text: str, max_tokens: int) -> tuple[str, int, bool]:
        """`(text, tokens, truncated)`: the text as the model will see it, in at most `max_tokens` tokens. See
        `TextCodec.cut`."""
        ...

    def render_assistant(self, message: Message) -> list[int]:
        """Tokens of an assistant turn that a person or a script wrote, as if it had been sampled (stop token included).
        `parse` gives back its calls and its stripped content. Raises ValueError where it could not."""
        ...


CHAT_FORMATS: dict[str, Callable[[PreTrainedTokenizerBase], ChatFormat]] = {
    "compact": CompactChat,
    "hermes": HermesChat,
    "template": TemplateChat,
}


def chat_format(tokenizer: PreTrainedTokenizerBase, name: str = "auto") -> ChatFormat:
    """The format `name` of CHAT_FORMATS. "auto": "hermes" or "compact" for a tokenizer that holds its tokens, else
    "template".

    Raises ConfigError for an unknown name, ModelError where the tokenizer does not fit the format.
    """
    check_chat_name(name)
    if name == "auto":
        name = _fitting(tokenizer)
    return CHAT_FORMATS[name](tokenizer)


def check_chat_name(name: str) -> None:
    """Raises ConfigError for an unknown name, without a tokenizer."""
    if name != "auto" and name not in CHAT_FORMATS:
        raise ConfigError(f"chat format {name!r} is unknown; there are: auto, {', '.join(sorted(CHAT_FORMATS))}")


def _fitting(tokenizer: PreTrainedTokenizerBase) -> str:
    added = set(tokenizer.get_added_vocab())
    if added.issuperset((IM_START, IM_END)):
        return "hermes"
    if added.issuperset(COMPACT_TOKENS):
        return "compact"
    if tokenizer.chat_template:
        return "template"
    raise ModelError(
        f"the tokenizer has neither {IM_START} and {IM_END} nor a chat template, so there is no way to write a "
        "conversation: use an instruction-tuned model, or set tokenizer.chat_template"
    )
