"""Text as the answer check reads it: one form for what people write in many (quotes, dashes, spaces, emphasis)."""

from __future__ import annotations

import re
import sys
import unicodedata
from dataclasses import dataclass

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("‘’‛′`´", "'"),
        **dict.fromkeys("“”„″", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        "⁄": "/",
        "*": " ",
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
    }
)
_WORD = re.compile(r"[^\W_]+(?:['.&@-][^\W_]+)*", re.UNICODE)


def normalise(text: str) -> str:
    """`text` with plain quotes and dashes, no Markdown emphasis, compatibility forms folded (NFKC), and every run of
    white space as one space. Line breaks and bullets become " ; ", since they separate statements. Case is kept."""
    folded = unicodedata.normalize("NFKC", text).translate(_CHARACTERS)
    lines = [line.strip().lstrip("-•·# ").strip() for line in folded.splitlines()]
    return " ".join(" ; ".join(line for line in lines if line).split())


@dataclass(frozen=True, slots=True)
class Word:
    """One word as written, with its place in the text. `key` is what is compared: lower case, no possessive."""

    text: str
    start: int
    end: int

    @property
    def key(self) -> str:
        return word_key(self.text)

    @property
    def capitalised(self) -> bool:
        return self.text[:1].isupper()

    @property
    def has_digit(self) -> bool:
        return any(character.isdigit() for character in self.text)


def word_key(word: str) -> str:
    lowered = word.lower()
    return lowered.removesuffix("'s").removesuffix("s'").strip(".")


def words(text: str, start: int = 0, end: int = sys.maxsize) -> list[Word]:
    """Words of `text[start:end]` in order; `O'Neill`, `Raz-Guzman`, `E&Y` and `a.m` are one word each."""
    return [Word(match.group(), match.start(), match.end()) for match in _WORD.finditer(text, start, end)]


def keys(text: str) -> frozenset[str]:
    """The keys of all words of `text`, and of the parts of hyphenated ones."""
    found: set[str] = set()
    for word in words(text):
        found.add(word.key)
        found.update(word_key(part) for part in re.split(r"[-&.@]", word.text) if part)
    return frozenset(found)


def occurs_pattern(strings: tuple[str, ...]) -> re.Pattern[str]:
    """Matches any of `strings` as whole words and numbers in lower-cased text: not beside a letter or digit, nor joined
    by `.` or `,` to another digit (so that 17 is not found in 17,000, nor 2 in 1.2). The data's own definition."""
    alternatives = "|".join(re.escape(normalise(text).lower()) for text in sorted(strings, key=len, reverse=True))
    return re.compile(rf"(?<![a-z0-9])(?<!\d[.,])(?:{alternatives})(?![a-z0-9])(?![.,]\d)")
