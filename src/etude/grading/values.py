"""The values that a text states, by kind, and whether one text's value is among another's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from etude.grading.amounts import NUMBER_NAME, Amount, find_amounts, find_codes
from etude.grading.dates import MONTH, Date, find_dates
from etude.grading.times import Time, find_times

# Most texts are names and hold no values: one look instead of a score of patterns.
_HINT = re.compile(
    rf"[0-9]|\b(?:{MONTH}|{NUMBER_NAME}|mon|tue|wed|thu|fri|sat|sun|noon|midday|midnight|half|third|quarter)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Values:
    """All that a text states of dates, weekdays (0 is Monday), times, codes (squashed) and amounts."""

    dates: tuple[Date, ...] = ()
    weekdays: tuple[int, ...] = ()
    times: tuple[Time, ...] = ()
    codes: tuple[str, ...] = ()
    amounts: tuple[Amount, ...] = ()

    def __add__(self, other: Values) -> Values:
        return Values(
            self.dates + other.dates,
            self.weekdays + other.weekdays,
            self.times + other.times,
            self.codes + other.codes,
            self.amounts + other.amounts,
        )

    def __bool__(self) -> bool:
        return bool(self.dates or self.weekdays or self.times or self.codes or self.amounts)


def find_values(text: str) -> Values:
    """Values of normalised `text`; each stretch of it counts for one kind only (times before dates before codes before
    amounts), so that the 3 of "3 pm" is no amount and the 4 of "March 4" no number."""
    if not _HINT.search(text):
        return Values()
    times, rest = find_times(text)
    dates, weekdays, rest = find_dates(rest)
    codes, rest = find_codes(rest)
    return Values(tuple(dates), tuple(weekdays), tuple(times), tuple(codes), tuple(find_amounts(rest)))


def merge(values: Iterable[Values]) -> Values:
    return sum(values, Values())


def knows_date(known: Values, value: Date) -> bool:
    """Whether `known` states this date as far as `value` states it. A known date without a year fits any year, unless
    the same day is also known with one; a known day without a month counts only where no month is known at all."""
    if value.day is not None and value.month is not None:
        same = [date for date in known.dates if (date.month, date.day) == (value.month, value.day)]
        if same:
            years = {date.year for date in same} - {None}
            return value.year is None or not years or value.year in years
        if any(date.month is not None and date.day is not None for date in known.dates):
            return False
        return any(date.month is None and date.day == value.day for date in known.dates)
    if value.day is not None:
        return any(date.day == value.day for date in known.dates)
    if value.month is not None:
        same = [date for date in known.dates if date.month == value.month]
        return any(value.year is None or date.year in (None, value.year) for date in same)
    years = {date.year for date in known.dates} - {None}
    return value.year in years


def knows_time(known: Values, value: Time) -> bool:
    """Whether one of the known times may be this one. "3:00" among the known counts as the afternoon where another form
    says "3 pm"."""
    exact = [time for time in known.times if len(time) == 1]
    for time in known.times:
        narrowed = [other for other in exact if other <= time] if len(time) > 1 else []
        if any(value & other for other in (narrowed or [time])):
            return True
    return False


def weekdays_of(dates: Iterable[Date]) -> set[int]:
    """Weekdays of those dates that are whole."""
    found: set[int] = set()
    for value in dates:
        if value.year is not None and value.month is not None and value.day is not None:
            try:
                found.add(date(value.year, value.month, value.day).weekday())
            except ValueError:  # 31 June: written, but no day
                continue
    return found


def knows_amount(known: Values, value: Amount) -> bool:
    if any(value & amount for amount in known.amounts):
        return True
    return any(_digits(amount) in known.codes for amount in value)


def knows_code(known: Values, code: str) -> bool:
    """A code is known with or without a prefix (EB3824 and 3824, 1-800-... and 800-...); what only looks like one
    (500-1000) is known where all its numbers are."""
    amounts = {_digits(value) for amount in known.amounts for value in amount}
    return any(
        code == other or (min(len(code), len(other)) >= 3 and (code.endswith(other) or other.endswith(code)))
        for other in (*known.codes, *amounts)
    )


def _digits(value: Decimal) -> str:
    return format(value.normalize(), "f")
