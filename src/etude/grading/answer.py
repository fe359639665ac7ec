"""The deterministic answer check: is this answer the right one, and the only one that it gives?

Right means what the data says (`must`: one string of every list occurs) or the same value in another fair form. Alone
this could be stuffed by an answer that lists everything. So an answer is refused where it hedges, denies or declines,
where it states another value or name of the kind that is asked for (known are those of the right answers and of the
question), and where it is much longer than an answer and its question are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from etude.grading.hedges import find_hedges, says_i_dont_know
from etude.grading.names import count_items, find_rival, unknown_words
from etude.grading.reference import Reference, Requirement, reference_of
from etude.grading.text import normalise, words
from etude.grading.values import (
    Date,
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
_MAX_UNKNOWN_WORDS = 10
_MAX_OTHER_VALUES = 2  # values of kinds that were not asked for
_MAX_LISTED_ITEMS = 2  # unknown items listed beside a value
# hedging words that an answer may take over from its question: "How likely ...?"
_SOFT_HEDGES = frozenset(
    "instead|rather than|without|except|excluding|likely|otherwise|among|unless|assuming".split("|")
)
_BOTH = re.compile(r"\b(?:the|both|all|these|those) (?:two|three|four|five)\b", re.IGNORECASE)

_NAME = r"(?:(?:[A-Z][\w.'&-]*|[\w.+-]+@[\w.-]+|<[^>\s]*>)\s?){1,4}"
_DOCUMENT = r"(?:e-?mails?|mails?|messages?|notes?|memos?|letters?|threads?|replies|reply)"
# Where an answer is from is no part of it: ", according to the mail from Jim Steffes on May 3, 2001".
_ATTRIBUTION = re.compile(
    r"(?:^|(?<=[,.;(])|\s)\s*"
    rf"(?:(?i:according to)|(?i:based on|as per|per|from|in|as (?:stated|mentioned|noted|given|written|said|described) (?:in|by))"
    rf"(?=\s+(?i:the|an?|his|her|your|this|that)?\s*(?:[\w-]+\s+)?(?i:{_DOCUMENT})\b))\s+"
    rf"(?:(?i:the|an?|his|her|your|this|that)\s+)?"
    rf"(?:(?:[\w-]+\s+)?(?i:{_DOCUMENT})\b(?:\s+(?:(?:that\s+)?(?:was\s+)?(?:sent\s+)?(?:from|by|of))\s+{_NAME})?|{_NAME})"
    rf"(?:\s*to\s+{_NAME})?"
    r"(?:\s*,?\s*(?:(?:dated|of|on|sent|from)\s+){1,2}"
    r"[A-Za-z0-9/.-]+(?:\s[0-9]{1,2}(?:st|nd|rd|th)?)?(?:,?\s(?:19|20)[0-9]{2})?(?![\w/]))?"
)


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """correct: whether the answer is right. reason: why, for a person ("rival date: 2001-03-05")."""

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
    reference = reference_of(row)
    if len(answer) > _MAX_CHARACTERS:
        return AnswerCheck(False, f"too long: {len(answer)} characters, at most {_MAX_CHARACTERS}")
    text = normalise(answer)
    if not text:
        return AnswerCheck(False, "empty")
    text = _BOTH.sub(_blank, _ATTRIBUTION.sub(_blank, text, count=1))
    values = find_values(text)
    problem = (
        _too_long(text, reference)
        or _hedge(text, reference)
        or _rival_value(values, reference)
        or _missing(text, values, reference)
        or _rival_name(text, reference)
    )
    return AnswerCheck(False, problem) if problem else AnswerCheck(True, "states the answer and no other")


def _too_long(text: str, reference: Reference) -> str | None:
    count = len(words(text))
    if count > reference.max_words:
        return f"too long: {count} words, at most {reference.max_words}"
    unknown = unknown_words(text, reference.known_words)
    if len(unknown) > _MAX_UNKNOWN_WORDS:
        return f"too much besides the answer: {len(unknown)} words, as {unknown[0]!r}; at most {_MAX_UNKNOWN_WORDS}"
    return None


def _hedge(text: str, reference: Reference) -> str | None:
    """The first hedge outside a right answer quoted word for word. Where none is quoted, a hedging word that right
    answers have themselves ("April 2 or 3") is no hedge."""
    lowered = text.lower()
    quoted = next((right for right in reference.texts if _stands_in(right, lowered)), None)
    rest = lowered.replace(quoted, " ; ") if quoted else lowered
    excused = (reference.soft_hedges & _SOFT_HEDGES) | (frozenset() if quoted else reference.hedges)
    for effect, cue in find_hedges(rest):
        if cue not in excused:
            return f"{effect}: {cue!r}"
    return None


def _stands_in(right: str, text: str) -> bool:
    place = text.find(right)
    if not right or place < 0:
        return False
    around = text[place - 1 : place] + " " + text[place + len(right) : place + len(right) + 1]
    return not any(character.isalnum() for character in around)


def _rival_value(values: Values, reference: Reference) -> str | None:
    known, kinds = reference.known, reference.kinds
    years = {date.year for date in known.dates}
    others = 0
    unknown: list[tuple[str, str]] = [
        ("dates", _show(date)) for date in values.dates if not _is_known_date(known, date)
    ]
    days_known = {*known.weekdays, *weekdays_of(known.dates)}
    weekdays = [day for day in values.weekdays if day not in days_known]
    if weekdays and (days_known or len(weekdays) > 1):
        unknown.append(("dates", f"weekday {weekdays[0]}"))
    unknown += [
        ("times", f"{min(time) // 60}:{min(time) % 60:02}") for time in values.times if not knows_time(known, time)
    ]
    for code in values.codes:
        if not _is_known_code(known, code):
            unknown.append(("amounts" if code.isdigit() and "amounts" in kinds else "codes", code))
    for amount in values.amounts:
        number = min(amount)
        if knows_amount(known, amount) or number in years:
            continue
        day = Date(day=int(number)) if number == number.to_integral_value() and 1 <= number <= 31 else None
        if day and "dates" in kinds and not knows_date(known, day):
            unknown.append(("dates", f"day {day.day}"))
        elif not (day and "dates" in kinds):
            unknown.append(("amounts", f"{number:f}"))
    for kind, shown in unknown:
        if kind in kinds:
            return f"rival among {kind}: {shown}"
        others += 1
    return f"{others} values that were not asked for, as {unknown[0][1]}" if others > _MAX_OTHER_VALUES else None


def _is_known_date(known: Values, date: Date) -> bool:
    if date.month is None and date.day is None and not any(other.year for other in known.dates):
        return True  # nobody has said which year it is
    return knows_date(known, date)


def _is_known_code(known: Values, code: str) -> bool:
    if knows_code(known, code):
        return True
    numbers = re.findall(r"[0-9]+", code)
    return len(numbers) == 1 and knows_amount(known, frozenset({Decimal(numbers[0])}))


def _missing(text: str, values: Values, reference: Reference) -> str | None:
    lowered = text.lower()
    for requirement in reference.requirements:
        if not requirement.pattern.search(lowered) and not _same_value(requirement.values, values):
            return f"does not state {requirement.strings[0]!r}"
    return None


def _same_value(required: Values, stated: Values) -> bool:
    whole_dates = [date for date in required.dates if date.month and date.day]
    return (
        any(
            date in stated.dates or knows_date(Values(dates=(date,)), other)
            for date in whole_dates
            for other in stated.dates
            if other.month and other.day
        )
        or any(knows_time(Values(times=required.times), time) for time in stated.times if required.times)
        or any(knows_amount(Values(amounts=required.amounts), amount) for amount in stated.amounts)
        or any(code in required.codes for code in stated.codes)
    )


def _rival_name(text: str, reference: Reference) -> str | None:
    lowered = text.lower()
    claims = [match.span() for need in reference.requirements if (match := need.pattern.search(lowered)) and need.names]
    if not claims and reference.in_words:
        claims = [match.span() for need in reference.requirements if (match := need.pattern.search(lowered))]
    if claims:
        rival = find_rival(text, min(claims), reference.known_words)
        return f"rival name: {rival!r}" if rival else None
    items = count_items(text, reference.known_words)
    return f"a list: {items} items besides the answer" if items > _MAX_LISTED_ITEMS else None


def _show(date: Date) -> str:
    return "-".join("?" if part is None else f"{part:02}" for part in (date.year, date.month, date.day))


def _blank(match: re.Match[str]) -> str:
    return " " * (match.end() - match.start())
