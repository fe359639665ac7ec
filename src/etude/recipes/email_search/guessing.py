"""The scripted searcher's answer: the value of the asked kind that stands nearest to the question's words."""

from __future__ import annotations

import math
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from etude.recipes.email_search.keywords import Keyword, stem, words


class Kind(StrEnum):
    PHONE = "phone"
    CODE = "code"
    PERCENT = "percent"
    TIME = "time"
    DURATION = "duration"
    MONEY = "money"
    DATE = "date"
    PERSON = "person"
    NUMBER = "number"
    PLACE = "place"


def _any_of(words: str) -> str:
    return rf"\b({'|'.join(words.split())})\b"


_SUMS = """
how.much prices? costs? pay paid payments? fees? amount dollars? value rate budget sum strike bill salary bonus exposure
threshold rent worth charge deposit margin limit savings figure settle reserve penalty loan guaranty receivable bond
annuity adder
"""
_PEOPLE = "attorney lawyer analyst person colleague guy woman man trader manager director chief"

# What a question asks for: the first that matches.
_ASKS: tuple[tuple[Kind, str], ...] = (
    (Kind.DATE, r"^(when|by when|until when)\b|\b(what|which) (\w+ ){0,2}(dates?|days?|deadline)\b"),
    (Kind.PHONE, r"\b(phone|fax|cell|pager|extension)\b|(call|dial)-?in number"),
    (Kind.CODE, _any_of("code passcode pin id login password docket identifier (account|contract|deal|trade).number")),
    (Kind.PERCENT, r"\b(percent(age)?|what (share|fraction)|chances?)\b"),
    (Kind.TIME, r"\b((what|which) (time|hour)|start time|when and where|where and when)\b"),
    (
        Kind.DURATION,
        r"\bhow (long|many (days|weeks|months|years|hours|minutes))\b|\b(cure|notice|grace) (window|period)",
    ),
    (Kind.MONEY, _any_of(_SUMS)),
    (Kind.DATE, _any_of("when dates? day deadline")),
    (Kind.PERSON, rf"\b(who|whom|whose|name)\b|\bwhich \w*\s?{_any_of(_PEOPLE)}"),
    (Kind.NUMBER, r"\bhow (many|big|large|far|high|low|old|wide)\b|\b(number|quantity|volume|size|mw|mmbtu)\b"),
    (Kind.PLACE, r"\bwhere\b|\b(what|which) (city|place|room|hotel|location|restaurant|state|building|floor)\b"),
)

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_COUNT = r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|thirty|sixty|ninety)"
_NUMBER = r"(?<![\w.,$])#?\d[\d,]*(?:\.\d+)?(?!\w)|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"
_MONEY = (
    r"\$\s?\d[\d,]*(?:\.\d+)?\s?(?:million|billion|thousand|mm|mil|bn|k|m|b)?\b"
    r"|\b\d[\d,]*(?:\.\d+)?\s?(?:million|billion|cents|dollars|mm)\b|\$\s?\.\d+"
)

# What a value of that kind looks like. Of two patterns, a match of the second counts less.
_VALUES: dict[Kind, tuple[str, ...]] = {
    Kind.PHONE: (r"\(?\b\d{3}\)?[-. ]{1,2}\d{3}[-. ]\d{4}\b", r"\b\d{3}-\d{4}\b|\bx?\d{5}\b"),
    Kind.CODE: (r"\b\d{4,}\b|\b(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{4,}\b", _NUMBER),
    Kind.PERCENT: (r"\d[\d,]*(?:\.\d+)?\s?(?:%|percent)", _NUMBER),
    Kind.TIME: (r"\b\d{1,2}(?::\d\d)?\s?(?:a\.?m\b\.?|p\.?m\b\.?)|\bnoon\b|\bmidnight\b", r"\b\d{1,2}:\d\d\b"),
    Kind.DURATION: (rf"\b{_COUNT}(?:\s*\(\d+\))?[\s-](?:business |working )?(?:day|week|month|year|hour|minute)s?\b",),
    Kind.MONEY: (_MONEY, _NUMBER),
    Kind.DATE: (
        rf"\b{_MONTH}\.?\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?\b"
        rf"|\b\d{{1,2}}(?:st|nd|rd|th)?(?:\s+of)?\s+{_MONTH}\b|\b\d{{1,2}}/\d{{1,2}}(?:/\d{{2,4}})?\b",
        r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b",
    ),
    Kind.PERSON: (r"(?-i:\b[A-Z][a-z]+(?:\s[A-Z]\.)?\s(?:Mc|O'|Mac|de\s)?[A-Z][a-z]+\b)",),
    Kind.NUMBER: (_NUMBER, _MONEY),
    Kind.PLACE: (r"(?-i:\b(?:[A-Z][\w'&.]*\s?){1,4}\d*\b)",),
}

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")

# Chosen on the training questions, where half or twice as much makes little difference.
_REACH = 30.0  # characters
_BETWEEN_SENTENCES = 60.0  # characters that the end of a sentence counts for
_SECOND_CHOICE = 8.0  # nats
_LONGEST_SENTENCE = 200  # characters


@dataclass(frozen=True, slots=True)
class _Place:
    position: int
    keyword: Keyword


def asked_kind(question: str) -> Kind | None:
    """What kind of value the question asks for; None where no pattern knows it."""
    return next((kind for kind, pattern in _ASKS if re.search(pattern, question.lower())), None)


def guess_answer(question: str, keywords: Sequence[Keyword], body: str) -> str:
    """The best guess from a mail's text: a value of the asked kind, or else the sentence that shares most with the
    question. Empty only for an empty body."""
    kind = asked_kind(question)
    asked = {stem(word) for word in words(question)}
    places = [
        _Place(match.start(), keyword)
        for keyword in keywords
        for match in re.finditer(rf"(?<![a-z0-9]){re.escape(stem(keyword.word))}", body.lower())
    ]
    ends = [match.start() for match in _SENTENCE_END.finditer(body)]
    candidates = _candidates(kind, body) if kind else iter(())
    scored = [
        (
            _nearness(match.start(), places, ends) - penalty,
            -match.start(),
            " ".join(match.group().split()).strip(" .,-"),
        )
        for match, penalty in candidates
        if not _repeats(kind, match.group(), asked)
    ]
    return max(scored)[2] if scored else _best_sentence(keywords, body)


def _candidates(kind: Kind, body: str) -> Iterator[tuple[re.Match[str], float]]:
    for rank, pattern in enumerate(_VALUES[kind]):
        for match in re.finditer(pattern, body, re.IGNORECASE):
            yield match, rank * _SECOND_CHOICE


def _repeats(kind: Kind | None, value: str, asked: set[str]) -> bool:
    """Whether a value only says again what the question said. Half a name that it said is not the name it wants."""
    stems = [stem(word) for word in words(value)]
    if not stems:
        return True
    some = kind in (Kind.PERSON, Kind.PLACE)
    return any(each in asked for each in stems) if some else all(each in asked for each in stems)


def _nearness(position: int, places: Sequence[_Place], ends: Sequence[int]) -> float:
    """Sum over keywords of weight · exp(-distance / reach), each at its nearest place. ends: of sentences, sorted; each
    that lies between adds to the distance."""
    sentence = bisect(ends, position)
    best: dict[Keyword, float] = {}
    for place in places:
        between = abs(bisect(ends, place.position) - sentence)
        distance = abs(place.position - position) + _BETWEEN_SENTENCES * between
        near = place.keyword.weight * math.exp(-distance / _REACH)
        best[place.keyword] = max(near, best.get(place.keyword, 0.0))
    return sum(best.values())


def _best_sentence(keywords: Sequence[Keyword], body: str) -> str:
    sentences = [" ".join(part.split()) for part in _SENTENCE_END.split(body)]

    def shared(sentence: str) -> float:
        total = sum(keyword.weight for keyword in keywords if stem(keyword.word) in sentence.lower())
        return total / (len(sentence) + 60) ** 0.3  # of two that share as much, the shorter one

    return max(sentences, key=shared)[:_LONGEST_SENTENCE].strip()
