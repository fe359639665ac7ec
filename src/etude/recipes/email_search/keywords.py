"""Keywords of a question, most telling first, and the searches worth trying with them. No model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9&.,'’-]*")

_STOP = """
a about according after again all am an and any are as ask asked at be because been before being between both but by
can could did do does doing down during each exactly few for from further get give had has have having he her here
hers him his how i if in into is it its itself just last let like long many may me might more most much must my myself
need next no nor not of off on once only or other our ours out over own per put said same say says set she should
since so some such supposed take tell than that the their them then there these they thing this those through to told
too under until up us use using very want was we were what when where whether which while who whom whose why will with
within would you your yours
"""
STOP_WORDS = frozenset(_STOP.split())


@dataclass(frozen=True, slots=True)
class Keyword:
    """weight: inverse document frequency, in nats. name: a proper name or something with a digit, which mails share
    with a question about them more often than they share its other words."""

    word: str
    weight: float
    name: bool


def words(text: str) -> list[str]:
    """The words of a text as they stand, without possessives and closing punctuation."""
    stripped = (re.sub(r"['’]s$", "", match.group().strip(".,'’-")) for match in _WORD.finditer(text))
    return [word for word in stripped if word]


def stem(word: str) -> str:
    """A cheap stem that a word's other forms start with."""
    word = word.lower()
    for ending in ("ing", "ed", "es", "ly", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def rank_keywords(question: str, mails: int, mails_with: Callable[[str], int]) -> list[Keyword]:
    """Names first, rare words before common ones; stop words, and words that no mail holds, are left out.

    mails: size of the collection; mails_with: in how many of them a word occurs.
    """
    ranked: dict[str, Keyword] = {}
    for position, word in enumerate(words(question)):
        key = word.lower()
        if key in STOP_WORDS or key in ranked or len(key) == 1:
            continue
        frequency = mails_with(word)
        if frequency:
            name = (word[0].isupper() and position > 0) or any(character.isdigit() for character in word)
            ranked[key] = Keyword(word, math.log(max(mails, frequency) / frequency), name)
    return sorted(ranked.values(), key=lambda keyword: (not keyword.name, -keyword.weight))


def search_plan(keywords: Sequence[Keyword], first: int = 4) -> Iterator[tuple[str, ...]]:
    """Searches in the order to try them: the first keywords together; each time without one of them, the least telling
    goes first; then pairs and single words of the best."""
    best = [keyword.word for keyword in keywords[:first]]
    plans: list[tuple[str, ...]] = [tuple(best)]
    plans += [tuple(word for word in best if word != left_out) for left_out in reversed(best)]
    plans += combinations(best[:3], 2)
    plans += [(word,) for word in best[:2]]
    yield from dict.fromkeys(plan for plan in plans if plan)
