"""Reading values from text, against plain twins that write them; and that no text whatever breaks the check."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etude.grading.amounts import find_amounts, find_codes
from etude.grading.answer import check_answer, says_i_dont_know
from etude.grading.dates import Date, find_dates
from etude.grading.text import normalise, occurs_pattern
from etude.grading.times import find_times
from etude.grading.values import Values, find_values, knows_date

DAYS = st.dates(datetime.date(1980, 1, 1), datetime.date(2039, 12, 31))
DATE_FORMATS = (
    "%B %-d, %Y", "%b %-d %Y", "%b. %-d, %Y", "%-d %B %Y", "%-m/%-d/%Y", "%m/%d/%Y", "%m/%d/%y", "%-m-%-d-%y",
    "%Y-%m-%d", "%A, %B %-d, %Y", "%d-%b-%y", "%-d of %B, %Y", "%B the %-d, %Y",
)  # fmt: skip


@given(DAYS, st.sampled_from(DATE_FORMATS), st.sampled_from(["{}", "on {}.", "({})", "{} in Houston", "by {}, sharp"]))
def test_dates_are_read_as_they_were_written(day: datetime.date, form: str, around: str) -> None:
    dates, weekdays, rest = find_dates(around.format(day.strftime(form)))
    assert dates == [Date(day.year, day.month, day.day)]
    assert weekdays == ([day.weekday()] if "%A" in form else [])
    assert not any(character.isdigit() for character in rest)


@given(st.times(), st.sampled_from(["%-I:%M %p", "%-I:%M%p", "%H:%M", "%I:%M %p", "%-I:%M p.m."]))
def test_times_are_read_as_they_were_written(time: datetime.time, form: str) -> None:
    if form.endswith("p.m."):
        time = time.replace(hour=time.hour % 12 + 12)
    times, rest = find_times(f"at {time.strftime(form)} sharp")
    minutes = time.hour * 60 + time.minute
    assert len(times) == 1
    assert minutes in times[0]
    assert times[0] <= {minutes, (minutes + 720) % 1440}
    assert rest.split() == ["at", "sharp"]


@given(
    st.decimals(min_value=0, max_value=10**9, places=2),
    st.sampled_from(["{:f}", "${:,f}", "USD {:,f}", "{:f} dollars"]),
)
def test_amounts_are_read_as_they_were_written(amount: Decimal, form: str) -> None:
    assert find_amounts(form.format(amount)) == [{amount}]


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("$1.5 million", [["1500000"]]),
        ("1.5MM", [["1500000"]]),
        ("$250k", [["250000"]]),
        ("2.4 B", [["2400000000"]]),
        ("17 cents", [["0.17"]]),
        ("17¢", [["0.17"]]),
        ("37%", [["37"]]),
        ("$50-$100k", [["50", "50000"], ["100000"]]),
        ("$5 to $15 million", [["5", "5000000"], ["15000000"]]),
        ("forty-five", [["45"]]),
        ("two hundred and ten thousand", [["210000"]]),
        ("half", [["0.5", "50"]]),
        ("the one", []),
        ("14, 18, 38", [["14"], ["18"], ["38"]]),
        ("1,234,567.89", [["1234567.89"]]),
        ("400 MW", [["400"]]),
    ],
)
def test_amounts_golden(text: str, amounts: list[list[str]]) -> None:
    assert find_amounts(text) == [frozenset(map(Decimal, meanings)) for meanings in amounts]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("EB3824", ["eb3824"]),
        ("RM01-10", ["rm0110"]),
        ("A-110059", ["a110059"]),
        ("464-3827", ["4643827"]),
        ("(503) 464-3827", ["5034643827"]),
        ("44 20 7783 8225", ["442077838225"]),
        ("166.49.120.18", ["1664912018"]),
        ("L-1536-01", ["l153601"]),
        ("4:00cv4108", ["400cv4108"]),
        ("10-day", []),
        ("40MW", []),
        ("5.1 and 6.1", []),
        ("40-50", []),
        ("1,500,000", []),
    ],
)
def test_codes_golden(text: str, codes: list[str]) -> None:
    assert find_codes(text)[0] == codes


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("September 10, 11 and 12", [(None, 9, 10), (None, 9, 11), (None, 9, 12)]),
        ("27-28 Nov 01", [(2001, 11, 27), (2001, 11, 28)]),
        ("2/28-3/7", [(None, 2, 28), (None, 3, 7)]),
        ("the 8th and 9th", [(None, None, 8), (None, None, 9)]),
        ("May 2002", [(2002, 5, None)]),
        ("Feb '02", [(2002, 2, None)]),
        ("in 1992", [(1992, None, None)]),
        ("it may be", []),
        ("march on", []),
        ("24/7", []),
        ("3/4 of", [(None, 3, 4)]),
    ],
)
def test_dates_golden(text: str, dates: list[tuple[int | None, int | None, int | None]]) -> None:
    assert find_dates(text)[0] == [Date(*date) for date in dates]


def test_each_stretch_counts_for_one_kind() -> None:
    values = find_values("Thursday, June 7, 2001 at 3:00 PM in EB3824, 25 copies")
    assert values == Values(
        dates=(Date(2001, 6, 7),),
        weekdays=(3,),
        times=(frozenset({900}),),
        codes=("eb3824",),
        amounts=(frozenset({Decimal(25)}),),
    )


def test_known_dates() -> None:
    known = Values(dates=(Date(2001, 3, 4), Date(None, 5, 6), Date(None, None, 9)))
    fits = [Date(2001, 3, 4), Date(None, 3, 4), Date(1999, 5, 6), Date(None, None, 4), Date(None, 3), Date(2001)]
    rivals = [Date(2002, 3, 4), Date(None, 3, 5), Date(None, 7, 9), Date(None, None, 5), Date(None, 4), Date(2002)]
    assert [date for date in fits if not knows_date(known, date)] == []
    assert [date for date in rivals if knows_date(known, date)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("17", True),
        ("$17.", True),
        ("17,000", False),
        ("1.17", False),
        ("117", False),
        ("x17", False),
        ("a 17, b", True),
    ],
)
def test_strings_occur_as_whole_numbers_only(text: str, found: bool) -> None:
    assert bool(occurs_pattern(("17",)).search(text)) is found


ROWS = [
    {"question": "When?", "answer": "March 4, 2001", "must": [["march 4"]], "answer_type": "date"},
    {"question": "Who?", "answer": "Bob Pease", "must": [["pease"]], "answer_type": "person"},
    {"question": "How much?", "answer": "$1.5 million", "must": [["1.5mm", "1.5"]], "answer_type": "money"},
    {"question": "Where?", "answer": "EB 3824, Houston", "must": [["3824"], ["houston"]], "answer_type": "place"},
    {"question": "What time?", "answer": "noon", "must": [["noon", "12:00"]], "answer_type": "time"},
    {"question": "Why?", "answer": "", "must": []},
]
SCRAPS = (
    "March 4", "Bob Pease", "1.5mm", "3824", "noon", "or", "not", "I don't know", ", ", "; ", "\n", "and", "(",
    ")", "2001",
    "3/4/01", "31 June", "99", "$", "١٢", "½", "İ", "according to the mail from", "half", "one hundred",
    "a.m.", "12:", "-",
    ".", "'s", "Houston", "#", "\u200b", "\x00", "\ud800",
)  # fmt: skip
PIECES = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(SCRAPS)), max_size=30).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(PIECES, st.sampled_from(ROWS))
@example("31 June 2001", ROWS[0])
@example("9" * 2000, ROWS[2])
@example("." * 2000, ROWS[1])
@example("1-" * 1000, ROWS[0])
def test_any_text_can_be_checked(answer: str, row: dict[str, object]) -> None:
    check = check_answer(row, answer)
    assert check.reason
    assert check == check_answer(row, answer)
    assert not (says_i_dont_know(answer) and check.correct and row["answer"])


@given(PIECES)
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


HEDGED = st.sampled_from(
    ["{} or {}", "either {} or {}", "{}, maybe {}", "not {} but {}", "{} and {}", "{}, {}", "{}; {}", "{} / {}"]
)


@given(DAYS, DAYS, HEDGED, st.sampled_from(DATE_FORMATS), st.sampled_from(DATE_FORMATS), st.booleans())
def test_two_dates_are_never_an_answer(
    right: datetime.date, wrong: datetime.date, hedge: str, form: str, other_form: str, swap: bool
) -> None:
    row = {
        "question": "When is the review?",
        "answer": right.strftime("%B %-d, %Y"),
        "must": [[right.strftime("%B %-d").lower()]],
        "answer_type": "date",
    }
    pair = [right.strftime(form), wrong.strftime(other_form)]
    assert check_answer(row, pair[0]).correct
    if right != wrong:
        assert not check_answer(row, hedge.format(*(reversed(pair) if swap else pair))).correct


@given(st.integers(2, 10**8), st.integers(2, 10**8), HEDGED, st.booleans())
def test_two_amounts_are_never_an_answer(right: int, wrong: int, hedge: str, swap: bool) -> None:
    row = {"question": "How much?", "answer": f"${right:,}", "must": [[f"{right:,}"]], "answer_type": "money"}
    pair = [f"${right}", f"${wrong:,}"]
    assert check_answer(row, pair[0]).correct
    if right != wrong:
        assert not check_answer(row, hedge.format(*(reversed(pair) if swap else pair))).correct
