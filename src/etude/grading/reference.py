"""What counts as right for one question, prepared once: its required words, its known values, its known words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from etude.errors import DataError
from etude.grading.amounts import NUMBER_NAME
from etude.grading.dates import MONTH
from etude.grading.hedges import find_hedges
from etude.grading.names import KnownWords
from etude.grading.text import Word, keys, normalise, occurs_pattern, words
from etude.grading.values import Values, find_values, merge

# kinds of values that rival each other, by the question's answer_type; names are checked where a list holds words
_KINDS = {
    "date": frozenset({"dates"}),
    "time": frozenset({"times"}),
    "money": frozenset({"amounts"}),
    "number": frozenset({"amounts"}),
    "code": frozenset({"codes", "amounts"}),
}
_ALL_KINDS = ("dates", "times", "codes", "amounts")
_MORE_WORDS = 20  # that an answer may have beyond those of the longest right answer and of its question
_NUMBERED = frozenset({"codes", "amounts"})  # rooms are called EB3824 and 3824
_PERSONS = frozenset({"person", "list"})
_VALUE_WORD = re.compile(
    rf"{MONTH}|{NUMBER_NAME}(?:-{NUMBER_NAME})?|of|the|a\.?m|p\.?m|noon|o'?clock|[kmbc]|mm|mn|mil|bn|per|percent|cents?"
    r"|dollars?|usd|half"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One list of `must`: one of its strings has to occur, or one of the values that such a string is.

    values: of those strings that are a value and nothing else: of "1.5mm" and "march 4", not of "10 days".
    stated: of all of them.
    """

    strings: tuple[str, ...]
    pattern: re.Pattern[str]
    values: Values
    stated: Values

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
            (str(row["answer"]), *_strings(row.get("aliases", ()))),
            tuple(_strings(strings) for strings in row["must"]),
            str(row.get("answer_type", "text")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"question {row.get('id', '(without id)')!r} cannot be checked: {error!r}. It needs `answer` (text) and "
            "`must` (lists of strings), and may have `aliases` (list of strings), `question` and `answer_type`."
        ) from error


def _strings(values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(value, str) and value.strip() for value in values):
        raise ValueError(f"{values!r} is no list of strings")
    return tuple(values)


@lru_cache(maxsize=8192)
def _reference(
    question: str, answers: tuple[str, ...], must: tuple[tuple[str, ...], ...], answer_type: str
) -> Reference:
    if not must or not all(must):
        raise ValueError("`must` is empty, or one of its lists is: every answer would be right")
    answers = tuple(normalise(answer) for answer in answers)
    question = normalise(question)
    requirements = tuple(_requirement(strings) for strings in must)
    own = merge(map(find_values, answers))
    kinds = frozenset(kind for kind in _ALL_KINDS if getattr(own, kind)) | _KINDS.get(answer_type, frozenset())
    return Reference(
        requirements=requirements,
        texts=tuple(sorted((answer.lower() for answer in answers), key=len, reverse=True)),
        known=merge([own, *(need.stated for need in requirements), find_values(question)]),
        known_words=KnownWords(
            reference=frozenset().union(*map(keys, answers), *(keys(text) for strings in must for text in strings)),
            capitalised=frozenset(word.key for answer in answers for word in words(answer) if word.capitalised),
            question=keys(question),
            person=answer_type in _PERSONS,
            place=answer_type == "place",
        ),
        in_words=answer_type not in _KINDS,
        kinds=kinds | (_NUMBERED if kinds & _NUMBERED and answer_type == "place" else frozenset()),
        hedges=frozenset(hedge.cue for answer in answers for hedge in find_hedges(answer.lower())),
        question=question.lower(),
        max_words=max(len(words(answer)) for answer in answers) + len(words(question)) + _MORE_WORDS,
    )


def _requirement(strings: tuple[str, ...]) -> Requirement:
    found = {text: find_values(normalise(text)) for text in strings}
    whole = [values for text, values in found.items() if all(_tells_value(word) for word in words(text))]
    return Requirement(strings, occurs_pattern(strings), merge(whole), merge(found.values()))


def _tells_value(word: Word) -> bool:
    return word.has_digit or bool(_VALUE_WORD.fullmatch(word.text.lower()))
