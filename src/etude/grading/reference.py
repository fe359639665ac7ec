"""What counts as right for one question, prepared once: its required words, its known values, its known words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from etude.errors import DataError
from etude.grading.hedges import find_hedges
from etude.grading.names import KnownWords
from etude.grading.text import keys, normalise, occurs_pattern, words
from etude.grading.values import Values, find_values, merge

# kinds of values that rival each other, by the question's answer_type; names are checked where a list holds words
_KINDS = {
    "date": frozenset({"dates"}),
    "time": frozenset({"times"}),
    "money": frozenset({"amounts"}),
    "number": frozenset({"amounts"}),
    "code": frozenset({"codes", "amounts"}),
}
_NUMBERED = frozenset({"codes", "amounts"})  # rooms are called EB3824 and 3824
_PERSONS = frozenset({"person", "list"})
_VALUE_WORDS = re.compile(
    r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec|january|february|march|april|august|september|october"
    r"|november|december|of|the|a\.?m|p\.?m|noon|k|m|mm|mn|mil|b|bn|thousand|million|billion|percent|per|cents?|c|dollars?|usd"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    r"|eighteen|nineteen|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:-[a-z]+)?|hundred|half|o'?clock)"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One list of `must`: one of its strings has to occur, or one of the values that such a string is."""

    strings: tuple[str, ...]
    pattern: re.Pattern[str]
    values: Values

    @property
    def names(self) -> bool:
        """Whether it is met by words only, such as a person's name, which no value can tell from its rivals."""
        return not self.values


@dataclass(frozen=True, slots=True)
class Reference:
    requirements: tuple[Requirement, ...]
    texts: tuple[str, ...]  # normalised lower-case answers that count as right, longest first
    known: Values  # of answers, required strings and question
    known_words: KnownWords
    in_words: bool  # whether the question asks for a person, a place, a text, even where values tell the answer
    kinds: frozenset[str]  # fields of Values in which a value that is not known is a rival
    hedges: frozenset[str]  # hedging words that the right answers have themselves
    question: str  # normalised, lower case
    max_words: int


def reference_of(row: Mapping[str, Any]) -> Reference:
    """The reference for a question row. DataError where a field is missing or of the wrong type."""
    try:
        return _reference(
            str(row.get("question", "")),
            (str(row["answer"]), *map(str, row.get("aliases", ()))),
            tuple(tuple(map(str, strings)) for strings in row["must"]),
            str(row.get("answer_type", "text")),
        )
    except (KeyError, TypeError) as error:
        raise DataError(
            f"question {row.get('id', '(without id)')!r} cannot be checked: {error!r}. It needs `answer` (text) and "
            "`must` (lists of strings), and may have `aliases` (list of strings), `question` and `answer_type`."
        ) from error


@lru_cache(maxsize=8192)
def _reference(
    question: str, answers: tuple[str, ...], must: tuple[tuple[str, ...], ...], answer_type: str
) -> Reference:
    if not must or not all(must):
        raise DataError(f"the question {question!r} has an empty `must`: every answer would be right")
    answers = tuple(normalise(answer) for answer in answers)
    question = normalise(question)
    requirements = tuple(Requirement(strings, occurs_pattern(strings), _whole_values(strings)) for strings in must)
    own = merge(map(find_values, answers))
    required = merge(find_values(normalise(text)) for strings in must for text in strings)
    present = frozenset(kind for kind in ("dates", "times", "codes", "amounts") if getattr(own, kind))
    kinds = present | _KINDS.get(answer_type, frozenset())
    written = [word for answer in answers for word in words(answer)]
    return Reference(
        requirements=requirements,
        texts=tuple(sorted((answer.lower() for answer in answers), key=len, reverse=True)),
        known=own + required + find_values(question),
        known_words=KnownWords(
            reference=frozenset().union(*map(keys, answers), *(keys(text) for strings in must for text in strings)),
            capitalised=frozenset(word.key for word in written if word.capitalised),
            question=keys(question),
            person=answer_type in _PERSONS,
            place=answer_type == "place",
        ),
        in_words=answer_type not in _KINDS,
        kinds=kinds | (_NUMBERED if kinds & _NUMBERED and answer_type == "place" else frozenset()),
        hedges=frozenset(hedge.cue for answer in answers for hedge in find_hedges(answer.lower())),
        question=question.lower(),
        max_words=max(len(words(answer)) for answer in answers) + len(words(question)) + 20,
    )


def _whole_values(strings: tuple[str, ...]) -> Values:
    """Values of those strings that are a value and nothing else: of "1.5mm" and "march 4", not of "10 days"."""
    return merge(
        find_values(normalise(text))
        for text in strings
        if all(word.has_digit or _VALUE_WORDS.fullmatch(word.text.lower()) for word in words(text))
    )
