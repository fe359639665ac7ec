"""Dates and weekdays in text, in the forms that people write: March 4, 4 March 2001, 3/4/01, Mar. 4th, the 4th."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_MONTH = rf"(?P<month>{MONTH})\b\.?"
_DAY = r"(?:0?[1-9]|[12][0-9]|3[01])(?:\s?(?:st|nd|rd|th)\b|(?![0-9a-z]))(?![.:][0-9])"
_BETWEEN = r"\s*(?:-|/|to|through|thru|until|till|,?\s*and|,?\s*or|&|,)\s*(?:the\s+)?"
_DAYS = rf"(?P<days>{_DAY}(?:{_BETWEEN}{_DAY}){{0,8}})"  # bounded: an endless list would take quadratic time
_YEAR = r"(?:(?P<year>(?:19|20)[0-9]{2})(?![0-9])|'(?P<year2>[0-9]{2})(?![0-9]))"
_I = re.IGNORECASE | re.ASCII

_M = r"(?P<m>1[0-2]|0?[1-9])"
_D = r"(?P<d>3[01]|[12][0-9]|0?[1-9])"
_LONG = r"(?:19|20)[0-9]{2}"

_FORMS = tuple(
    re.compile(form, _I)
    for form in (
        # 2001-03-04
        rf"(?<![0-9-])(?P<year>{_LONG})[-/]{_M}[-/]{_D}(?![0-9])",
        # 3/4/01, 3/4/2001, 3-4-01
        rf"(?<![0-9/.-]){_M}(?P<mark>[/-]){_D}(?P=mark)(?P<y>(?:19|20)?[0-9]{{2}})(?![0-9/-])",
        # 3/2001
        rf"(?<![0-9/.]){_M}/(?P<year>{_LONG})(?![0-9/])",
        # 3/4
        rf"(?<![0-9/.$]){_M}/{_D}(?![0-9/%a-z]|[.,][0-9])",
        # 27-Nov-01
        rf"(?<![0-9-]){_D}-{_MONTH}-(?P<y>(?:19|20)?[0-9]{{2}})(?![0-9-])",
        # 7 June 01, 27-28 Nov 01
        rf"(?<![0-9.,:$]){_DAYS}\s{_MONTH}\s(?P<y>0[0-9]|9[0-9])(?![0-9:.-])",
        # March 4, March 4-6 2001, March the 4th, May 26/94
        rf"\b{_MONTH}[\s,-]*(?:the\s+)?{_DAYS}(?:\s*[,/]?\s*(?:of\s+)?{_YEAR}|/(?P<y>[0-9]{{2}})(?![0-9]))?",
        # 4 March 2001, 4th of March, 4-6 March
        rf"(?<![0-9.,:$])(?:the\s+)?{_DAYS}[\s-]*(?:of\s+)?{_MONTH}"
        rf"(?:[\s,-]*(?:of\s+)?{_YEAR})?",
        # March 2001, Feb '02
        rf"\b{_MONTH}\s*,?\s*(?:of\s+)?{_YEAR}",
    )
)
_ORDINAL = re.compile(r"(?<![0-9.,])(?P<d>3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th)\b", _I)
# "may" and "march" are words too: a month that stands alone is written with a capital.
_LONE_MONTH = re.compile(
    r"\b(?P<month>January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?i:jan|feb|apr|jun|jul|aug|sept?|oct|nov)\b\.?|Mar\b\.?|Dec\b\.?"
    r"|january|february|april|june|july|august|september|october|november|december)(?![a-z])"
)
_LONE_YEAR = re.compile(
    r"(?P<context>\b(?:in|of|for|by|since|during|from|through|until|till|year|early|late|mid|calendar|summer|fall|spring"
    r"|winter|autumn|after|before|end|quarter|fy|cal|q[1-4]|[1-4]q)\b\s*-?\s*)?"
    r"(?<![0-9$#.,/])(?P<year>(?:19|20)[0-9]{2})(?![0-9a-z%/-]|[.,][0-9])",
    _I,
)
_WEEKDAY = re.compile(
    r"\b(?:(?P<long>mon|tues|wednes|thurs|fri|satur|sun)days?|(?P<short>mon|tues?|wed|thur?s?|fri)\b\.?(?!-)"
    r"|(?P<rare>sat|sun)\b(?=[.,]?\s*(?:[0-9]|$|at\b|the\b)))",
    _I,
)


@dataclass(frozen=True, slots=True)
class Date:
    """A date as far as it is written: any part may be None. A year of two digits is 1970-2069."""

    year: int | None = None
    month: int | None = None
    day: int | None = None


def find_dates(text: str) -> tuple[list[Date], list[int], str]:
    """Dates, weekdays (0 is Monday), and the text with all of these blanked out. A bare "2001" is not blanked out where
    nothing says that it is a year: it may be an amount as well."""
    dates: list[Date] = []
    for form in (*_FORMS, _ORDINAL, _LONE_MONTH, _LONE_YEAR):
        for match in form.finditer(text):
            dates += _read(match)
        text = form.sub(_blank, text)
    weekdays = [_WEEKDAYS.index(next(filter(None, match.groups()))[:3].lower()) for match in _WEEKDAY.finditer(text)]
    return dates, weekdays, _WEEKDAY.sub(_blank, text)


def _read(match: re.Match[str]) -> Iterator[Date]:
    part = match.groupdict()
    year = part.get("year") or part.get("year2") or part.get("y")
    full_year = None if year is None else _full_year(int(year))
    if part.get("month"):
        month: int | None = _MONTHS.index(part["month"][:3].lower()) + 1
    else:
        month = int(part["m"]) if part.get("m") else None
    if part.get("days"):
        for day in re.findall(r"[0-9]+", part["days"]):
            yield Date(full_year, month, int(day))
    else:
        yield Date(full_year, month, int(part["d"]) if part.get("d") else None)


def _full_year(year: int) -> int:
    if year >= 100:
        return year
    return year + (1900 if year >= 70 else 2000)


def _blank(match: re.Match[str]) -> str:
    if match.re is _LONE_YEAR and not match["context"]:
        return match.group()
    return " " * (match.end() - match.start())
