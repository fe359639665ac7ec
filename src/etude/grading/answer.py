"""The deterministic answer check: is this answer the right one, and the only one that it gives?

Right means what the data says (`must`: one string of every list occurs) or the same value in another fair form. Alone
this could be stuffed by an answer that lists everything. So an answer is refused where it hedges, denies or declines,
where it states another value or name of the kind that is asked for (known are those of the right answers and of the
question), and where it is much longer than an answer and its question are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from etude.grading.attribution import without_attribution
from etude.grading.dates import Date
from etude.grading.hedges import find_hedges, says_i_dont_know
from etude.grading.names import count_items, find_rival, unknown_words
from etude.grading.reference import Reference, reference_of
from etude.grading.text import normalise, words
from etude.grading.values import (
    Values,
    find_values,
    knows_amount,
    knows_code,
    knows_date,
    knows_time,
    weekdays_of,
)

__all__ = ["AnswerCheck", "check_answer", "says_i_dont_know"]

_MAX_CHARACTERS = 2000
_MAX_WORD_CHARACTERS = 80
_MAX_UNKNOWN_WORDS = 10
_MAX_OTHER_VALUES = 2  # values of kinds that were not asked for
_MAX_LISTED_ITEMS = 2  # unknown items listed beside a value
_MIN_REPEATED_WORDS = 3
_BOTH = re.compile(r"\b(?:the|both|all|these|those) (?:two|three|four|five)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """correct: whether the answer is right. reason: why, for a person ("rival among dates: 2001-03-05")."""

    correct: bool
    reason: str


def check_answer(row: Mapping[str, Any], answer: str) -> AnswerCheck:
    """Check `answer` against a question row (`answer`, `aliases`, `must`, `question`, `answer_type`).

    Where the row has no answer (None or ""), declining is the right answer. Never raises for any `answer`; raises
    DataError for a row that cannot be checked.
    """
    if not row.get("answer"):
        if says_i_dont_know(answer):
            return AnswerCheck(True, "there is no answer, and it says so")
        return AnswerCheck(False, "there is no answer, but it gives one")
    problem = _problem(reference_of(row), answer)
    return AnswerCheck(False, problem) if problem else AnswerCheck(True, "states the answer and no other")


def _problem(reference: Reference, answer: str) -> str | None:
    """The first reason to refuse `answer`, cheapest checks first."""
    if len(answer) > _MAX_CHARACTERS:
        return f"too long: {len(answer)} characters, at most {_MAX_CHARACTERS}"
    text = normalise(answer)
    if not text:
        return "empty"
    text = without_attribution(text)
    if problem := _too_long(text, reference) or _hedge(text, reference):
        return problem
    values = find_values(_BOTH.sub(" ", text))
    return _rival_value(text, values, reference) or _missing(text, values, reference) or _rival_name(text, reference)


def _too_long(text: str, reference: Reference) -> str | None:
    found = words(text)
    if len(found) > reference.max_words:
        return f"too long: {len(found)} words, at most {reference.max_words}"
    if any(len(word.text) > _MAX_WORD_CHARACTERS for word in found):
        return f"a word of more than {_MAX_WORD_CHARACTERS} characters"
    unknown = unknown_words(text, reference.known_words)
    if len(unknown) > _MAX_UNKNOWN_WORDS:
        return f"too much besides the answer: {len(unknown)} words, as {unknown[0]!r}; at most {_MAX_UNKNOWN_WORDS}"
    return None


def _hedge(text: str, reference: Reference) -> str | None:
    """The first hedge of the answer's own: not one in a right answer that it quotes, nor one that stands between the
    same two words in the question. Where no right answer is quoted, a hedging word that right answers have themselves
    ("April 2 or 3") is no hedge."""
    lowered = text.lower()
    quoted = next((right for right in reference.texts if _stands_in(right, lowered)), None)
    rest = lowered.replace(quoted, " ; ") if quoted else lowered
    for hedge in find_hedges(rest):
        repeated = len(hedge.context.split()) >= _MIN_REPEATED_WORDS and _stands_in(hedge.context, reference.question)
        if not repeated and (quoted or hedge.cue not in reference.hedges):
            return f"{hedge.effect}: {hedge.cue!r}"
    return None


def _stands_in(right: str, text: str) -> bool:
    place = text.find(right)
    if not right or place < 0:
        return False
    around = text[max(place - 1, 0) : place] + text[place + len(right) : place + len(right) + 1]
    return not any(character.isalnum() for character in around)


def _rival_value(text: str, values: Values, reference: Reference) -> str | None:
    unknown = list(_unknown_values(values, reference))
    bare = all(word.has_digit for word in words(text))  # no words that say what a value is: then all are rivals
    for kind, shown in unknown:
        if kind in reference.kinds or (bare and kind != "times"):
            return f"rival among {kind}: {shown}"
    if len(unknown) > _MAX_OTHER_VALUES:
        return f"{len(unknown)} values that were not asked for, as {unknown[0][1]}"
    return None


def _unknown_values(values: Values, reference: Reference) -> Iterator[tuple[str, str]]:
    """(kind, as shown to a person) of every value that neither the right answers nor the question have."""
    known, kinds = reference.known, reference.kinds
    years = {date.year for date in known.dates if date.year}
    for date in values.dates:
        only_year = date.month is None and date.day is None
        if not knows_date(known, date) and (years or not only_year):
            yield "dates", "-".join("?" if part is None else f"{part:02}" for part in (date.year, date.month, date.day))
    known_weekdays = {*known.weekdays, *weekdays_of(known.dates)}
    weekdays = [day for day in values.weekdays if day not in known_weekdays]
    if weekdays and (known_weekdays or len(weekdays) > 1):
        yield "dates", f"weekday {weekdays[0]}"
    for time in values.times:
        if not knows_time(known, time):
            yield "times", f"{min(time) // 60}:{min(time) % 60:02}"
    for code in values.codes:
        if not _is_known_code(known, code):
            yield "amounts" if code.isdigit() and "amounts" in kinds else "codes", code
    for amount in values.amounts:
        number = min(amount)
        if knows_amount(known, amount) or number in years:
            continue
        may_be_day = "dates" in kinds and number == number.to_integral_value() and 1 <= number <= 31
        if not may_be_day:
            yield "amounts", f"{number:f}"
        elif not knows_date(known, Date(day=int(number))):
            yield "dates", f"day {number:f}"


def _is_known_code(known: Values, code: str) -> bool:
    numbers = re.findall(r"[0-9]+", code)
    return knows_code(known, code) or (len(numbers) == 1 and knows_amount(known, frozenset({Decimal(numbers[0])})))


def _missing(text: str, values: Values, reference: Reference) -> str | None:
    lowered = text.lower()
    for requirement in reference.requirements:
        if not requirement.pattern.search(lowered) and not _same_value(requirement.values, values):
            return f"does not state {requirement.strings[0]!r}"
    return None


def _same_value(required: Values, stated: Values) -> bool:
    whole_dates = Values(dates=tuple(date for date in required.dates if date.month and date.day))
    return (
        any(date.month and date.day and knows_date(whole_dates, date) for date in stated.dates)
        or any(knows_time(required, time) for time in stated.times)
        or any(required.amounts and knows_amount(required, amount) for amount in stated.amounts)
        or any(code in required.codes for code in stated.codes)
    )


def _rival_name(text: str, reference: Reference) -> str | None:
    lowered = text.lower()
    found = [(need, match.span()) for need in reference.requirements if (match := need.pattern.search(lowered))]
    claims = [span for need, span in found if need.names] or [span for _, span in found if reference.in_words]
    if claims:
        rival = find_rival(text, min(claims), reference.known_words)
        return f"rival name: {rival!r}" if rival else None
    items = count_items(text, reference.known_words)
    return f"a list: {items} items besides the answer" if items > _MAX_LISTED_ITEMS else None
