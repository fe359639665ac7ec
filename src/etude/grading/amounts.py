"""Amounts and codes in text. Amounts: $1.5 million, 1,500,000, $1.5MM, 17 cents, 37 %, twenty-five.
Codes: whatever mixes digits with letters or dashes and is no amount, as EB3824, 464-3827, 166.49.120.18."""

from __future__ import annotations

import re
from decimal import Decimal

Amount = frozenset[Decimal]  # values that it may mean: the 50 of "$50-100k" is 50 or 50,000

_I = re.IGNORECASE | re.ASCII
_SCALES = {
    "k": 3,
    "thousand": 3,
    "m": 6,
    "mm": 6,
    "mn": 6,
    "mil": 6,
    "mill": 6,
    "million": 6,
    "b": 9,
    "bn": 9,
    "billion": 9,
}
_SCALE = r"(?:\s?(?P<scale{0}>thousand|million|billion|mill?|mm|mn|bn|[kmb])(?![a-z]))?"
_DIGITS = r"(?P<digits{0}>[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_NUMBER = _DIGITS.format("") + _SCALE.format("")
_AMOUNT = re.compile(_NUMBER + r"(?:\s?(?P<cents>cents?\b|¢|c\b))?", _I)
_RANGE = re.compile(
    _DIGITS.format(1) + _SCALE.format(1) + r"\s*(?:-|to|and|or|/)\s*[$€£]?" + _DIGITS.format(2) + _SCALE.format(2), _I
)
_FRACTIONS = {
    "half": Decimal("0.5"),
    "one-half": Decimal("0.5"),
    "a third": Decimal("33"),
    "one-third": Decimal("33"),
    "a quarter": Decimal("0.25"),
    "one-quarter": Decimal("0.25"),
}
_FRACTION = re.compile(r"\b(?:half|one-half|(?:a|one)[\s-](?:third|quarter))\b", _I)

_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_WORDS = {name: value for value, name in enumerate(_UNITS)} | {name: 10 * n for n, name in enumerate(_TENS, 2)}
_NAMED_SCALES = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
NUMBER_NAME = "(?:" + "|".join(sorted((*_NUMBER_WORDS, *_NAMED_SCALES, "hundred"), key=len, reverse=True)) + ")"
_NAMED = re.compile(rf"\b{NUMBER_NAME}(?:(?:-|\s+(?:and\s+)?){NUMBER_NAME})*\b", _I)

_TOKEN = re.compile(r"(?<![\w$.])(?=[\w./:#-]*[0-9])[A-Za-z0-9]+(?:[-./:#_(]+[A-Za-z0-9]+)*", re.ASCII)
_PHONE = re.compile(
    r"(?<![\w.-])(?:\+?[0-9]{1,3}[\s.-]?)?\(?[0-9]{3}\)?[\s.-]?[0-9]{3}[\s.-][0-9]{4}(?![\w-])"
    r"|(?<![\w.-])\+?[0-9]{2,3}(?:[\s-][0-9]{2,4}){3,4}(?![\w-])",
    re.ASCII,
)
# a number with its unit or a word: 40MW, 2000MMBtu, 50k, 1st, 10-day, 8-hour, 22-inch
_PLAIN = re.compile(
    r"[0-9][0-9.]*(?:k|m|mm|mn|mil|mill|million|b|bn|billion|thousand|c|mws?|mwh|kw|kwh|kv|gw|bcfs?|mmcf|mmbtus?|btu"
    r"|dth|d|ft|hr|hrs|min|mos?|yrs?|x|st|nd|rd|th|day|days|per|s)?",
    _I,
)
_MIXED = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])", re.ASCII)


def squash(code: str) -> str:
    """Letters and digits only, lower case: how codes are compared."""
    return re.sub(r"[^a-z0-9]", "", code.lower())


def find_codes(text: str) -> tuple[list[str], str]:
    """Codes, squashed, and the text with them blanked out."""
    codes = [squash(match.group()) for match in _PHONE.finditer(text)]
    text = _PHONE.sub(_blank, text)
    kept: list[str] = []

    def take(match: re.Match[str]) -> str:
        if not _is_code(match.group()):
            return match.group()
        kept.append(squash(match.group()))
        return _blank(match)

    text = _TOKEN.sub(take, text)
    return codes + kept, text


def _is_code(token: str) -> bool:
    parts = re.split(r"[-./:#_(]+", token)
    if any(_MIXED.match(part) and not _PLAIN.fullmatch(part) for part in parts):
        return True
    numbers = [part for part in parts if part.isdigit()]
    letters = [part for part in parts if part.isalpha()]
    if letters:
        # "10-day" and "mid-2000" are words; "A-110059", "CS-2001-02881" and "4(b" are codes
        return bool(numbers) and not token.isalnum() and (len(letters[0]) < 3 or len(numbers) > 1)
    if "-" in token:
        return len(parts) > 1 and max(map(len, parts)) >= 3 and len("".join(parts)) >= 7
    return "." in token and len(numbers) >= 4


def find_amounts(text: str) -> list[Amount]:
    """Amounts in order of form. A lone "one" counts as none: it is more often a pronoun."""
    amounts: list[Amount] = []
    for match in _RANGE.finditer(text):
        if match["scale2"] and not match["scale1"]:
            amounts.append(frozenset({_value(match["digits1"], None), _value(match["digits1"], match["scale2"])}))
            amounts.append(frozenset({_value(match["digits2"], match["scale2"])}))
            text = text[: match.start()] + _blank(match) + text[match.end() :]
    for match in _AMOUNT.finditer(text):
        value = _value(match["digits"], match["scale"])
        amounts.append(frozenset({value / 100 if match["cents"] else value}))
    text = _AMOUNT.sub(_blank, text)
    for match in _FRACTION.finditer(text):
        value = _FRACTIONS[re.sub(r"\s+", " ", match.group().lower()).replace("one ", "one-")]
        amounts.append(frozenset({value, value * 100}))
    for match in _NAMED.finditer(_FRACTION.sub(_blank, text)):
        names = [name for name in re.split(r"[\s-]+", match.group().lower()) if name != "and"]
        if names != ["one"]:
            amounts.append(frozenset({_named_value(names)}))
    return amounts


def _value(digits: str, scale: str | None) -> Decimal:
    value = Decimal(digits.replace(",", ""))
    return value.scaleb(_SCALES[scale.lower()]) if scale else value


def _named_value(names: list[str]) -> Decimal:
    """ "two hundred thousand" is 200,000. Words that do not add up ("one two") give some number, never an error."""
    total, group = 0, 0
    for name in names:
        if name == "hundred":
            group = max(group, 1) * 100
        elif name in _NAMED_SCALES:
            total += max(group, 1) * _NAMED_SCALES[name]
            group = 0
        else:
            group += _NUMBER_WORDS[name]
    return Decimal(total + group)


def _blank(match: re.Match[str]) -> str:
    return " " * (match.end() - match.start())
