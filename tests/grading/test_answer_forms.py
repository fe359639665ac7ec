"""Fair forms of right answers: what people and models write for the same date, time, amount or name must pass."""

from __future__ import annotations

from typing import Any

import pytest

from etude.errors import DataError
from etude.grading.answer import check_answer, says_i_dont_know

DATE = {
    "id": "q-date",
    "question": "When is the budget review with the desk?",
    "answer": "March 4, 2001",
    "aliases": ["Mar 4", "3/4/01"],
    "must": [["march 4", "march 4th", "4 march", "4th of march", "mar 4", "mar. 4", "3/4", "2001-03-04"]],
    "answer_type": "date",
}
TIME = {
    "id": "q-time",
    "question": "At what time is the call with the auditors?",
    "answer": "3:00 PM",
    "aliases": ["3 pm"],
    "must": [["3:00", "3 pm", "3pm", "3 p.m", "15:00"]],
    "answer_type": "time",
}
MONEY = {
    "id": "q-money",
    "question": "How much is the guaranty for the storage deal?",
    "answer": "$1.5 million",
    "aliases": ["1.5MM"],
    "must": [["1.5 million", "1.5mm", "1,500,000", "1.5m"]],
    "answer_type": "money",
}
PERSON = {
    "id": "q-person",
    "question": "Which attorney at FERC was on the October 18 staff call with Ray?",
    "answer": "Bob Pease",
    "aliases": ["Pease"],
    "must": [["pease"]],
    "answer_type": "person",
}
PLACE = {
    "id": "q-place",
    "question": "What hotel are we using for the operations offsite?",
    "answer": "The Warwick Hotel",
    "aliases": ["Warwick"],
    "must": [["warwick"]],
    "answer_type": "place",
}
TEXT = {
    "id": "q-text",
    "question": "What did I decide on the request for early payment?",
    "answer": "rejected, due to poor credit quality",
    "aliases": ["denied"],
    "must": [["rejected", "reject", "denied"]],
    "answer_type": "text",
}
LIST = {
    "id": "q-list",
    "question": "Who is AEP sending to the February 29 meeting?",
    "answer": "Henry Fayne and Craig Baker",
    "aliases": ["Fayne (CFO) and Baker (VP)"],
    "must": [["fayne"], ["baker"]],
    "answer_type": "list",
}
CODE = {
    "id": "q-code",
    "question": "What passcode goes with the May 23 call?",
    "answer": "EB-3824",
    "aliases": ["EB 3824"],
    "must": [["3824", "eb3824"]],
    "answer_type": "code",
}


def each(row: dict[str, Any], answers: str) -> list[tuple[dict[str, Any], str]]:
    """One case for each of the answers, which are set apart by bars."""
    return [(row, " ".join(answer.split())) for answer in answers.split("|")]


RIGHT = [
    *each(
        DATE,
        """
        March 4 | 4 March 2001 | 3/4/01 | 3/4/2001 | Mar. 4th | the 4th of March | March the 4th, 2001 |
        March 4, 2001 at 3 pm | 2001-03-04 | Sunday, March 4, 2001 | sunday march 4 2001 | MARCH 4 | 04-Mar-01 |
        The meeting is on March 4, 2001 in Houston. | It is due by March 4. | no later than March 4, 2001 |
        **March 4, 2001** | “March 4” | It's March 4th — a Sunday. | - March 4, 2001 |
        The budget review with the desk is on March 4, 2001, at 9:30 a.m. in EB 3824. |
        According to the mail from Jeff Dasovich on May 3, 2001, it is March 4. |
        March 4 (per the email from Jim Steffes, dated 2/28/2001) | I think it's March 4.
        """,
    ),
    *each(
        TIME,
        """
        3:00 PM | 3pm | 15:00 | 3 p.m. | 3:00 p.m. CST | at 3 o'clock | 3 in the afternoon, i.e. 15:00 |
        The call is at 3 pm on March 4. | 03:00 PM | Tuesday at 3:00
        """,
    ),
    *each(
        MONEY,
        """
        $1.5 million | 1,500,000 | $1.5MM | $1,500,000.00 | 1.5m | US$1.5 million | USD 1,500,000 | $1500000 |
        about $1.5 million | The guaranty is $1.5 million for the storage deal. | 1.5 million dollars | $1,500K |
        The guaranty came to $1.5 million in 2001.
        """,
    ),
    *each(
        PERSON,
        """
        Bob Pease | Pease | Robert Pease | Mr. Pease | Pease, Bob | bob pease | BOB PEASE | Bob Pease of FERC |
        Bob Pease, FERC enforcement attorney | It was Bob Pease, according to the mail from Jim Steffes. |
        The attorney on the October 18 staff call was Bob Pease. | R. Pease | Bob J. Pease |
        Bob Pease, who works at the Office of Enforcement | The answer is Bob Pease from Washington.
        """,
    ),
    *each(
        PLACE,
        """
        the Warwick | Warwick Hotel, Houston | The Warwick Hotel in Houston, Texas | at the Warwick Hotel |
        We are using the Warwick for the offsite. | Warwick Hotel (5701 Main Street)
        """,
    ),
    *each(
        TEXT,
        """
        It was rejected. | The request was denied because of poor credit. | denied | You decided to reject it.
        """,
    ),
    *each(
        LIST,
        """
        Fayne and Baker | Craig Baker, Henry Fayne | Baker & Fayne | AEP is sending Henry Fayne and Craig Baker.
        """,
    ),
    *each(
        CODE,
        """
        EB3824 | EB-3824 | 3824 | eb 3824 | The passcode is EB3824. | EB3824#
        """,
    ),
    (DATE, "March\xa04"),
    (LIST, "1. Henry Fayne\n2. Craig Baker"),
]

WRONG = [
    *each(
        DATE,
        """
        ? | March 5 | March 4, 2002 | April 4 | 4 | March | Monday, March 4, 2001 or so | March 4, 5, 6 |
        March 4 and March 5 | March 4-8 | 3/4, 3/5 | It is not March 4. | anything but March 4 | March 4 is wrong |
        March 4, but I'm not sure | I don't know. March 4 | Tuesday, March 4, 2001 | March 4. March 5. March 6. |
        not before March 4 | March 4? No. | between March 1 and March 4
        """,
    ),
    *each(
        TIME,
        """
        3:00 AM | 3 am | 3:30 pm | 3:00 PM, 4:00 PM | from 3:00 to 5:00 pm | 13:00
        """,
    ),
    *each(
        MONEY,
        """
        $1.5 billion | $15 million | $1.5 million, $2 million | 1.5 | $1,500 | 1.5-2 million
        """,
    ),
    *each(
        PERSON,
        """
        Harry Pease | Bob Pease, Jim Smith | Jim Smith of Bob Pease | jim smith, bob pease | Bob Pease and Jim Smith |
        the pease and the smith | Pease; it is Smith | Smith, according to Pease | not Pease | Pease Smith |
        anyone but Pease | Ray | bob pease jim smith mary cook | Pease/Smith/Cook | Jim Smith. Bob Pease. |
        1) Smith 2) Pease | It is Jim Smith, who works with Bob Pease.
        """,
    ),
    *each(
        PLACE,
        """
        Warwick, Marriott | the Marriott in the Warwick | Warwick or Hyatt | warwick, marriott
        """,
    ),
    *each(
        TEXT,
        """
        approved | accepted, rejected | It was not rejected. | accepted or denied
        """,
    ),
    *each(
        LIST,
        """
        Henry Fayne | Fayne, Baker, Smith | Fayne and Jim Smith and Baker | Fayne or Baker
        """,
    ),
    *each(
        CODE,
        """
        EB3825 | EB3824, EB3825 | 3824 3825 3826 | EB38240
        """,
    ),
    (DATE, ""),
    (DATE, "   "),
]


@pytest.mark.parametrize(("row", "answer"), RIGHT, ids=lambda value: value if isinstance(value, str) else value["id"])
def test_fair_form_is_right(row: dict[str, Any], answer: str) -> None:
    check = check_answer(row, answer)
    assert check.correct, check.reason


@pytest.mark.parametrize(("row", "answer"), WRONG, ids=lambda value: value if isinstance(value, str) else value["id"])
def test_wrong_or_stuffed_answer_is_refused(row: dict[str, Any], answer: str) -> None:
    assert not check_answer(row, answer).correct


NO_ANSWER = {"id": "q-none", "question": "When is the Barrett deal signed?", "answer": None, "must": []}

DECLINES = (
    "I don't know", "I don’t know.", "I do not know", "idk", "Unknown", "No answer.", "I couldn't find the answer.",
    "I could not find any mail about the signing.", "Sorry, I was unable to find it. There is no such mail.",
    "I don't know when it is.", "The date is not specified.", "No relevant emails were found.", "I'm not sure.",
    "I searched the mails, and found nothing.", "I do not have enough information to answer.", "Nobody knows",
)  # fmt: skip
DOES_NOT_DECLINE = (
    "", "March 4", "I don't know, maybe March 4", "I don't know: March 4", "March 4, but I'm not sure",
    "I don't know. Bob Pease", "I am not sure, but it is Pease", "I think it's March 4", "not March 4", "No.",
    "I don't know. " + "Then again, " * 200,
)  # fmt: skip


@pytest.mark.parametrize("text", DECLINES)
def test_declining(text: str) -> None:
    assert says_i_dont_know(text)
    assert check_answer(NO_ANSWER, text).correct
    assert not check_answer(DATE, text).correct


@pytest.mark.parametrize("text", DOES_NOT_DECLINE)
def test_not_declining(text: str) -> None:
    assert not says_i_dont_know(text)
    assert not check_answer(NO_ANSWER, text).correct


def test_the_reason_says_what_was_wrong() -> None:
    assert check_answer(DATE, "March 5").reason == "rival among dates: ?-03-05"
    assert check_answer(DATE, "March 4 or 5").reason == "offers alternatives: 'or'"
    assert check_answer(DATE, "in spring").reason == "does not state 'march 4'"
    assert check_answer(PERSON, "Harry Pease").reason == "rival name: 'Harry'"


@pytest.mark.parametrize(
    "change",
    [
        {"must": []},
        {"must": [[]]},
        {"must": [[" "]]},
        {"must": ["march 4"]},
        {"must": None},
        {"must": [[4]]},
        {"aliases": "March 4"},
        {"aliases": [None]},
    ],
)
def test_a_row_that_cannot_be_checked_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="q-date"):
        check_answer({**DATE, **change}, "March 4")


def test_a_row_without_required_words_is_an_error() -> None:
    with pytest.raises(DataError, match="must"):
        check_answer({"id": "q", "answer": "March 4"}, "March 4")
