"""Rival names: candidates for the answer in words, which no value can tell apart.

The first candidate stated is the claim; what is only tolerated after it (a description, a role, a place) never counts
as an answer, so that an answer cannot take two shots: "A of B" is right where A is, and wrong where B is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from etude.grading.text import Word, words
from etude.grading.vocabulary import CITIES, COMMON, DETERMINERS, NICKNAMES, PLACES, ROLES, STRUCTURE

# A full stop ends no statement after an initial or a short title: "R. Pease", "Mr. Pease", "Mt. Hood".
_SEPARATOR = re.compile(
    r"[,;/|():+]|(?<!\b[A-Z])(?<!\b[A-Z][a-z])\.\s|\s-+\s|\s(?i:and|&|plus|then|as well as|followed by)\s"
)
_COPULA = frozenset({"is", "was", "are", "were", "be"})
_MAX_LABEL_WORDS = 4
_MAX_WORDS_ADDED_TO_NAME = 2


@dataclass(frozen=True, slots=True)
class KnownWords:
    """reference: keys of the words of the answers that count as right; capitalised: those written with a capital there.
    question: keys of the question's words. person, place: whether the answer is one (or a list of them)."""

    reference: frozenset[str]
    capitalised: frozenset[str]
    question: frozenset[str]
    person: bool
    place: bool

    def unknown(self, word: Word) -> bool:
        if word.has_digit or word.key in COMMON or self.knows(word.key):
            return False
        return not all(self.knows(part) or part in COMMON for part in re.split(r"[-&.@']", word.key) if part)

    def knows(self, key: str) -> bool:
        return key in self.reference or key in self.question


@dataclass(frozen=True, slots=True)
class _Segment:
    """Words between two separators; opened and closed are those separators ("" at the ends of the text)."""

    words: Sequence[Word]
    opened: str
    closed: str


def unknown_words(text: str, known: KnownWords) -> list[str]:
    """Words that neither the references, the question nor common sentences have."""
    return [word.text for word in words(text) if known.unknown(word)]


def find_rival(text: str, claim: tuple[int, int], known: KnownWords) -> str | None:
    """The first word of `text` that names another candidate, or None. claim: where the right answer first stands."""
    start, end = claim
    claimed = [word for word in words(text) if word.end > start and word.start < end]
    # Names that stand in lower case hide among words: then every unknown word may be one.
    lower = any(word.key in known.capitalised and not word.capitalised for word in claimed)
    *before, prefix = _segments(text, 0, start)
    for segment in before:
        if rival := _rival_before(segment, known, lower):
            return rival
    if rival := _rival_prefix(prefix.words, claimed, known, lower):
        return rival
    rest, *after = _segments(text, end, len(text))
    if rival := _rival_suffix(rest.words, known, lower):
        return rival
    described = False
    for segment in after:
        rival = _rival_item(segment, known, lower)
        if rival and not described and _describes_role(segment, known):
            described = True
        elif rival:
            return rival
    return None


def count_items(text: str, known: KnownWords) -> int:
    """How many parts of `text` are items of a list: words that are unknown, and no clause."""
    return sum(_rival_item(segment, known, lower=False) is not None for segment in _segments(text, 0, len(text)))


def _segments(text: str, start: int, end: int) -> Iterator[_Segment]:
    opened = ""
    for match in _SEPARATOR.finditer(text, start, end):
        yield _Segment(words(text, start, match.start()), opened, match.group().strip())
        start, opened = match.end(), match.group().strip()
    yield _Segment(words(text, start, end), opened, "")


def _rival_before(segment: _Segment, known: KnownWords, lower: bool) -> str | None:
    """A part of the text before the claim's own part: an introduction, or a first item of a list."""
    if segment.closed == ":" and len(segment.words) <= _MAX_LABEL_WORDS:
        return None
    content = [word for word in segment.words if word.key not in DETERMINERS]
    first = next((word for word in content if not word.has_digit), None)
    if first and known.unknown(first):
        return first.text
    return next((word.text for word in content if _may_name(word, known, lower) and word.key not in ROLES), None)


def _rival_prefix(prefix: Sequence[Word], claimed: Sequence[Word], known: KnownWords, lower: bool) -> str | None:
    for position, word in enumerate(prefix):
        if not _may_name(word, known, lower) or word.key in ROLES:
            continue
        adjacent = position == len(prefix) - 1
        if not (adjacent and known.person and _same_first_name(word, claimed, known)):
            return word.text
    return None


def _rival_suffix(suffix: Sequence[Word], known: KnownWords, lower: bool) -> str | None:
    """After "Pease": "Pease of FERC" and "Coral Energy" add nothing; "Pease Smith" does."""
    added = 0
    for word in suffix:
        if word.key in STRUCTURE:
            return None
        if _may_name(word, known, lower) and word.key not in ROLES and len(word.key) > 1:
            added += 1
            if lower or added > _MAX_WORDS_ADDED_TO_NAME or (known.person and len(known.capitalised) > 1):
                return word.text
    return None


def _rival_item(segment: _Segment, known: KnownWords, lower: bool) -> str | None:
    """Whether a part of the text is one more item, rather than a clause about the claim or more of the same."""
    content = [word for word in segment.words if word.key not in DETERMINERS]
    for copula, word in pairwise(content):
        if copula.key in _COPULA and _may_name(word, known, lower):
            return word.text
    clause = next((place for place, word in enumerate(content) if word.key in STRUCTURE), len(content))
    unknown = [word for word in content[:clause] if known.unknown(word)]
    same = [word for word in content[:clause] if word.key in known.reference - PLACES]
    if same:
        others = [word for word in unknown if _may_name(word, known, lower) and not _same_first_name(word, same, known)]
        return others[0].text if others and known.person and not _describes_role(segment, known) else None
    if not unknown:
        return None
    if segment.opened == "(" and all(word.text.isupper() for word in unknown):
        return None
    if (known.place or known.person) and all(word.key in PLACES for word in unknown) and not known.reference & CITIES:
        return None
    if known.place and content[0].has_digit and any(word.key in PLACES for word in content):
        return None  # a street address
    named = lower or any(word.capitalised for word in unknown)
    if not named and (clause < len(content) or any(word.key in known.question for word in content)):
        return None
    return unknown[0].text


def _describes_role(segment: _Segment, known: KnownWords) -> bool:
    """ "Chief Information Officer" and "attorney at FERC" say what somebody is; "Professor White" is somebody."""
    content = [word for word in segment.words if word.key not in DETERMINERS]
    if not known.person:
        return False
    for word, following in zip(content, [*content[1:], None], strict=False):
        if word.key in ROLES and (following is None or following.key in STRUCTURE):
            return True
    return False


def _may_name(word: Word, known: KnownWords, lower: bool) -> bool:
    return known.unknown(word) and (lower or word.capitalised)


def _same_first_name(word: Word, claimed: Sequence[Word], known: KnownWords) -> bool:
    """ "Robert Pease" for "Bob Pease", "Kevin Murray" where only "Murray" is known; but not "Harry Pease"."""
    key = word.key
    others = known.capitalised - {part.key for part in claimed}
    if len(key) == 1 or not others:
        return True
    return any(key[:3] == other[:3] or any(key in group and other in group for group in NICKNAMES) for other in others)
