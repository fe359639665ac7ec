"""Times of day in text: 3:00 PM, 3pm, 15:00, 3-5 p.m., noon."""

from __future__ import annotations

import re

Time = frozenset[int]  # minutes since midnight that it may mean: "3:00" is both 3 and 15 o'clock

_MERIDIEM = r"(?:a\.?\s?m\b\.?|p\.?\s?m\b\.?|(?<=[0-9])[ap]\b\.?)"
_I = re.IGNORECASE | re.ASCII
_NUMBER_BEFORE = r"(?<![0-9.,:/$#-])"
_CLOCK = r"(?P<h{0}>2[0-3]|1[0-9]|0?[0-9])(?:[:.](?P<m{0}>[0-5][0-9]))?"
_RANGE = re.compile(
    _NUMBER_BEFORE
    + _CLOCK.format(1)
    + rf"\s*(?P<x1>{_MERIDIEM})?\s*(?:-|to|until|till|through|and)\s*"
    + _CLOCK.format(2)
    + rf"\s*(?P<x2>{_MERIDIEM})",
    _I,
)
_SINGLE = (
    re.compile(
        r"(?:(?<![0-9.,:/$#])|(?<=[0-9]T))" + r"(?P<h>2[0-3]|1[0-9]|0?[0-9]):(?P<m>[0-5][0-9])(?::[0-5][0-9])?"
        rf"(?:\s*(?P<x>{_MERIDIEM})|(?![0-9a-z:]))",
        _I,
    ),
    re.compile(_NUMBER_BEFORE + rf"(?P<h>1[0-2]|0?[0-9])(?:[.:]?(?P<m>[0-5][0-9]))?\s*(?P<x>{_MERIDIEM})", _I),
    re.compile(_NUMBER_BEFORE + r"(?P<h>1[0-2]|0?[1-9])\s*o'?\s?clock", _I),
)
_NAMED = re.compile(r"\b(?:12(?::00)?\s*)?(?P<name>noon|midday|midnight)\b", _I)
_HALF_DAY = 12 * 60


def find_times(text: str) -> tuple[list[Time], str]:
    """Times, and the text with them blanked out."""
    times: list[Time] = []
    for match in _NAMED.finditer(text):
        times.append(frozenset({0 if match["name"].lower() == "midnight" else _HALF_DAY}))
    text = _NAMED.sub(_blank, text)
    for match in _RANGE.finditer(text):
        first_half = match["x1"] or ""
        times.append(_time(match["h1"], match["m1"], first_half))
        times.append(_time(match["h2"], match["m2"], match["x2"]))
    text = _RANGE.sub(_blank, text)
    for form in _SINGLE:
        for match in form.finditer(text):
            part = match.groupdict()
            times.append(_time(part["h"], part.get("m"), part.get("x") or ""))
        text = form.sub(_blank, text)
    return times, text


def _time(hour: str, minute: str | None, meridiem: str) -> Time:
    minutes = int(hour) * 60 + int(minute or 0)
    if int(hour) > 12:
        return frozenset({minutes})
    morning = minutes % _HALF_DAY
    afternoon = morning + _HALF_DAY
    match meridiem[:1].lower():
        case "a":
            return frozenset({morning})
        case "p":
            return frozenset({afternoon})
        case _:
            return frozenset({morning, afternoon})


def _blank(match: re.Match[str]) -> str:
    return " " * (match.end() - match.start())
