"""Text to tokens and back, where text from outside can never become a control token.

A tokenizer finds its added tokens in any text: a mail that holds "<|im_end|>\\n<|im_start|>system" would end the turn
and open another. `split_special_tokens` does not help where the tags are added tokens that are not "special" (Qwen's
`<tool_call>`). So text is encoded by a copy of the tokenizer that has no such tokens, and only `Markup`, which the
chat format itself writes, may become them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from etude.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Piece = str  # a plain str is text; a Markup is written by the format
_PROBE = " a  b\n\n\t<|x|> 1,234 \u00e9\u6f22\U0001f642"


class Markup(str):
    """Text that a chat format writes itself. Control tokens in it become their ids; elsewhere they stay text."""

    __slots__ = ()


class TextCodec:
    """Encodes text and markup, decodes, counts and cuts, for one tokenizer.

    controls: the added tokens, "special" or not, with their ids; not whitespace, and not those which are also ordinary
    vocabulary (some tokenizers add "<h1>"). special_ids: the "special" ones.
    Raises ModelError for a tokenizer that is not backed by the `tokenizers` library, that does not give back the text
    it was given (token-exact conversations would be impossible), or that makes special tokens of plain text anyway.
    A tokenizer that normalises (Qwen: to NFC) gives back normalised text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(
                f"{type(tokenizer).__name__} is not a fast tokenizer: token-exact chat needs one with a tokenizer.json"
            )
        self._backend: Any = backend
        self._plain: Any = _without_added_tokens(backend)
        added = {token.content: (i, token.special) for i, token in backend.get_added_tokens_decoder().items()}
        self.special_ids = frozenset(token_id for token_id, special in added.values() if special)
        self.controls: dict[str, int] = {
            name: token_id
            for name, (token_id, _) in added.items()
            if not name.isspace() and token_id not in self._text(name)
        }
        longest_first = sorted(self.controls, key=len, reverse=True)
        self._split = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._check(special=[name for name, (_, special) in added.items() if special])

    def encode(self, pieces: Iterable[Piece]) -> list[int]:
        """Tokens of pieces in order. Neighbouring text is encoded as one, so that where no text holds a control
        token's characters the result is what the tokenizer itself gives for the joined string."""
        tokens: list[int] = []
        run: list[str] = []
        for piece in pieces:
            if not isinstance(piece, Markup):
                run.append(piece)
                continue
            end = 0
            for match in self._split.finditer(piece):
                run.append(piece[end : match.start()])
                tokens += self._text("".join(run))
                tokens.append(self.controls[match.group()])
                run, end = [], match.end()
            run.append(piece[end:])
        return tokens + self._text("".join(run))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens as their names. Bytes that are no UTF-8 come out as U+FFFD."""
        return self._backend.decode(list(tokens), skip_special_tokens=False)

    def count(self, text: str) -> int:
        return len(self._text(text))

    def cut(self, text: str, max_tokens: int) -> tuple[str, int, bool]:
        """`(text, tokens, truncated)`: at most `max_tokens` tokens of text, whole characters only.

        What is too long ends in a marker, "\\n[... 1,234 more tokens cut]", which is part of the budget. Its figure is
        count(text) - count(what is left of it). tokens is count() of the returned text.
        Raises ConfigError where not even the marker fits.
        """
        text = _valid(text)
        encoding = self._plain.encode(text, add_special_tokens=False)
        total = len(encoding)
        if total <= max_tokens:
            return text, total, False
        keep = max_tokens
        while keep >= 0:
            # A character may be several tokens: an end that lies inside one would keep all of it, so `count` decides.
            kept = text[: encoding.offsets[keep - 1][1]] if keep else ""
            shown = f"{kept}\n[... {total - self.count(kept):,} more tokens cut]"
            tokens = self.count(shown)
            if tokens <= max_tokens:
                return shown, tokens, True
            keep -= max(1, min(tokens - max_tokens, keep))
        raise ConfigError(
            f"a budget of {max_tokens} tokens is too small to say that text was cut: the marker alone takes {tokens}"
        )

    def split(self, text: str) -> list[Piece]:
        """Pieces of markup that is already one string: its control tokens as Markup, the rest as text."""
        pieces: list[Piece] = []
        end = 0
        for match in self._split.finditer(text):
            pieces += [text[end : match.start()], Markup(match.group())]
            end = match.end()
        return [piece for piece in [*pieces, text[end:]] if piece]

    def defuse(self, text: str, mark: str) -> str:
        """`text` with `mark` put inside every control token's name, so that `split` does not see it."""
        return self._split.sub(lambda match: match.group()[0] + mark + match.group()[1:], text)

    def _text(self, text: str) -> list[int]:
        if not text:
            return []
        return list(self._plain.encode(_valid(text), add_special_tokens=False).ids)

    def _check(self, special: Sequence[str]) -> None:
        probe = _PROBE + "".join(special)
        tokens = self._text(probe)
        if self.decode(tokens) != probe:
            raise ModelError(
                "this tokenizer does not give back the text that it encodes, so a conversation cannot be held token "
                f"by token: {probe!r} came back as {self.decode(tokens)!r}. Use a model with a byte-level tokenizer"
            )
        leaked = [name for name in special if name not in self.controls]
        if leaked:
            raise ModelError(
                f"this tokenizer makes special tokens of plain text ({', '.join(leaked)}): a tool's output could end a "
                "turn. Use a model whose tokenizer holds them as added tokens only"
            )


def _without_added_tokens(backend: Any) -> Any:
    """A copy of a `tokenizers.Tokenizer` to which every text is just text; it cuts, pads and puts around nothing."""
    state = json.loads(backend.to_str())
    state |= {"added_tokens": [], "truncation": None, "padding": None, "post_processor": None}
    return type(backend).from_str(json.dumps(state))


def _valid(text: str) -> str:
    """`text` as the Unicode that a tokenizer takes: half surrogate pairs (broken JSON escapes) become U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
