"""The kinds of values that mails state and questions ask for: how they are drawn, written, read and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Protocol

from etude.recipes.email_demo.names import NameKind

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

NAME = "[A-Z][a-z]+"
PERSON = f"{NAME} {NAME}"
DATE = rf"(?:(?:{'|'.join(WEEKDAYS)}),? )?(?:\d{{1,2}} (?:{'|'.join(MONTHS)})|(?:{'|'.join(MONTHS)}) \d{{1,2}})"
ROOM = r"[Rr]oom \d{3}"
HALL = f"{NAME} (?:Hall|House|Club)"


@dataclass(frozen=True, slots=True)
class Value:
    """text: the value in its plainest form, which is the answer. day: the calendar day, for dates only."""

    text: str
    day: date | None = None


class Source(Protocol):
    """Where values that are names come from."""

    def some_person(self) -> str: ...

    def new_name(self, part: str) -> str: ...

    def some(self, kind: NameKind) -> str: ...

    def cause(self) -> str: ...


Draw = Callable[[Random, date, Source], Value]


@dataclass(frozen=True, slots=True)
class ValueKind:
    """answer_type: as in the question rows. pattern: matches every way of writing it. draw: a value for a mail of that
    day. write: one of the ways of writing it.

    read: from the written form to `Value.text`. accepted: lower-case forms of which a right answer holds one.
    other_forms: other whole answers that are right.
    """

    answer_type: str
    pattern: str
    draw: Draw
    write: Callable[[Value, Random], str] = lambda value, rng: value.text
    read: Callable[[str], str] = str
    accepted: Callable[[Value], list[str]] = lambda value: [value.text.lower()]
    other_forms: Callable[[Value], list[str]] = lambda value: []


def _workday(day: date) -> date:
    return day + timedelta(days=(7 - day.weekday()) % 7 if day.weekday() >= 5 else 0)


def _date_value(day: date) -> Value:
    return Value(f"{day.day} {MONTHS[day.month - 1]}", day)


def _write_date(value: Value, rng: Random) -> str:
    assert value.day is not None
    number, month, weekday = value.day.day, MONTHS[value.day.month - 1], WEEKDAYS[value.day.weekday()]
    return rng.choice(
        (f"{weekday} {number} {month}", f"{number} {month}", f"{month} {number}", f"{weekday}, {month} {number}")
    )


def _read_date(written: str) -> str:
    words = [word for word in written.replace(",", "").split() if word not in WEEKDAYS]
    return " ".join(sorted(words, key=lambda word: not word.isdigit()))


def ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _accepted_dates(value: Value) -> list[str]:
    assert value.day is not None
    number, nth, month = value.day.day, ordinal(value.day.day), MONTHS[value.day.month - 1].lower()
    forms = [f"{number} {month}", f"{month} {number}", f"{nth} {month}", f"{nth} of {month}", f"{month} {nth}"]
    short = month[:3]
    if short != month:
        forms += [f"{number} {short}", f"{short} {number}", f"{nth} {short}", f"{short} {nth}"]
    return [*forms, f"{value.day.month}/{number}", value.day.isoformat()]


def _dates(soonest: int, latest: int) -> ValueKind:
    return ValueKind(
        "date",
        DATE,
        lambda rng, day, names: _date_value(_workday(day + timedelta(days=rng.randint(soonest, latest)))),
        _write_date,
        _read_date,
        _accepted_dates,
        lambda value: [" ".join(reversed(value.text.split())), f"{value.text} {value.day.year}" if value.day else ""],
    )


def _accepted_times(value: Value) -> list[str]:
    clock, half = value.text.split()
    hour, minute = clock.split(":")
    day_hour = int(hour) % 12 + (12 if half == "pm" else 0)
    forms = [f"{clock} {half}", f"{clock}{half}", f"{clock} {half[0]}.m", f"{day_hour:02}:{minute}", clock]
    if minute == "00":
        forms += [f"{hour} {half}", f"{hour}{half}", f"{hour} {half[0]}.m"]
    return list(dict.fromkeys(forms))


def _draw_time(rng: Random, day: date, names: Source) -> Value:
    hour = rng.randint(7, 19)
    return Value(f"{(hour - 1) % 12 + 1}:{rng.choice(('00', '15', '30', '45'))} {'am' if hour < 12 else 'pm'}")


def _money(low: int, high: int, step: int) -> ValueKind:
    return ValueKind(
        "money",
        r"\$\d{1,3}(?:,\d{3})*",
        lambda rng, day, names: Value(f"${rng.randrange(low, high, step):,}"),
        accepted=lambda value: list(dict.fromkeys((value.text[1:], value.text[1:].replace(",", "")))),
        other_forms=lambda value: [f"{value.text[1:]} dollars"],
    )


def _number(low: int, high: int) -> ValueKind:
    return ValueKind("number", r"\d{1,3}", lambda rng, day, names: Value(str(rng.randint(low, high))))


def _letters(rng: Random, count: int) -> str:
    return "".join(rng.choices("ABCDEFGHKLMNPRSTVWXZ", k=count))


def _digits(rng: Random, count: int) -> str:
    return str(rng.randint(1, 9)) + "".join(rng.choices("0123456789", k=count - 1))


def _code(letters: int, joint: str, digits: int) -> ValueKind:
    def accepted(value: Value) -> list[str]:
        low = value.text.lower()
        return [low] if not joint else [low, low.replace(joint, ""), low.replace(joint, " "), low.replace(joint, "-")]

    return ValueKind(
        "code",
        rf"[A-Z]{{{letters}}}{joint}\d{{{digits}}}" if letters else rf"\d{{{digits}}}",
        lambda rng, day, names: Value(f"{_letters(rng, letters)}{joint}{_digits(rng, digits)}"),
        accepted=lambda value: list(dict.fromkeys(accepted(value))),
        other_forms=lambda value: [f"code {value.text}"],
    )


def _lower_first(text: str) -> str:
    return text[0].lower() + text[1:]


def _read_room(written: str) -> str:
    return _lower_first(written) if written.lower().startswith("room ") else written


def _accepted_places(value: Value) -> list[str]:
    low = value.text.lower()
    return [low] + [word for word in low.split() if word not in ("room", "hall", "house", "club", "hotel", "inn")]


def _draw_room(rng: Random, day: date, names: Source) -> Value:
    return Value(f"room {rng.randint(101, 499)}")


def _draw_hall(rng: Random, day: date, names: Source) -> Value:
    return Value(f"{names.new_name('house')} {rng.choice(('Hall', 'House', 'Club'))}")


def _draw_venue(rng: Random, day: date, names: Source) -> Value:
    return _draw_room(rng, day, names) if rng.random() < 0.65 else _draw_hall(rng, day, names)


def _draw_hotel(rng: Random, day: date, names: Source) -> Value:
    name = names.new_name("house")
    return Value(rng.choice((f"Hotel {name}", f"{name} Inn")))


def _place(pattern: str, draw: Draw) -> ValueKind:
    return ValueKind("place", pattern, draw, read=_read_room, accepted=_accepted_places)


def _accepted_causes(value: Value) -> list[str]:
    low = value.text.lower()
    return list(dict.fromkeys((low, re.sub(r"^(?:a|an|the) ", "", low))))


def _named(kind: NameKind, share_of_new: float) -> ValueKind:
    def draw(rng: Random, day: date, names: Source) -> Value:
        return Value(names.new_name(kind) if rng.random() < share_of_new else names.some(kind))

    return ValueKind("text", NAME, draw)


def _person(pick: Callable[[Source], str]) -> ValueKind:
    return ValueKind(
        "person",
        PERSON,
        lambda rng, day, names: Value(pick(names)),
        accepted=lambda value: [value.text.lower().split()[-1]],
        other_forms=lambda value: [value.text.split()[-1]],
    )


VALUE_KINDS: Mapping[str, ValueKind] = {
    "person": _person(lambda names: names.some_person()),
    "outsider": _person(lambda names: names.new_name("person")),
    "company": _named("company", 0.5),
    "project": _named("project", 0.2),
    "near_date": _dates(12, 40),
    "mid_date": _dates(14, 70),
    "far_date": _dates(30, 200),
    "time": ValueKind("time", r"\d{1,2}:\d\d [ap]m", _draw_time, accepted=_accepted_times),
    "small_money": _money(5, 96, 1),
    "money": _money(210, 9990, 10),
    "big_money": _money(20_000, 900_000, 500),
    "head_count": _number(3, 48),
    "quantity": _number(20, 480),
    "guests": _number(30, 320),
    "percent": ValueKind(
        "number",
        r"\d{1,2} percent",
        lambda rng, day, names: Value(f"{rng.randint(2, 30)} percent"),
        accepted=lambda value: [value.text.split()[0]],
        other_forms=lambda value: [f"{value.text.split()[0]}%"],
    ),
    "job_code": _code(2, "-", 4),
    "contract_code": _code(1, "-", 5),
    "booking_code": _code(3, "", 3),
    "flight": _code(2, " ", 3),
    "invoice_code": _code(0, "", 5),
    "door_code": _code(0, "", 4),
    "extension": _code(0, "", 4),
    "room": _place(ROOM, _draw_room),
    "hall": _place(HALL, _draw_hall),
    "venue": _place(f"(?:{ROOM}|{HALL})", _draw_venue),
    "hotel": _place(f"(?:Hotel {NAME}|{NAME} Inn)", _draw_hotel),
    "cause": ValueKind("text", "", lambda rng, day, names: Value(names.cause()), accepted=_accepted_causes),
}


def draw_other(kind: ValueKind, rng: Random, day: date, names: Source, than: Sequence[str]) -> Value:
    """A value that is none of `than`, so that a change is a change and nothing ever changes back."""
    for _ in range(100):
        value = kind.draw(rng, day, names)
        if value.text not in than:
            return value
    raise AssertionError(f"no {kind.answer_type} other than {list(than)}")
