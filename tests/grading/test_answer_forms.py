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

RIGHT = [
    *(
        (DATE, text)
        for text in (
            "March 4", "4 March 2001", "3/4/01", "3/4/2001", "Mar. 4th", "the 4th of March", "March the 4th, 2001",
            "March 4, 2001 at 3 pm", "2001-03-04", "Sunday, March 4, 2001", "sunday march 4 2001", "MARCH 4", "04-Mar-01",
            "The meeting is on March 4, 2001 in Houston.", "It is due by March 4.", "no later than March 4, 2001",
            "**March 4, 2001**", "“March 4”", "March\u00a04", "It's March 4th — a Sunday.", "- March 4, 2001",
            "The budget review with the desk is on March 4, 2001, at 9:30 a.m. in EB 3824.",
            "According to the mail from Jeff Dasovich on May 3, 2001, it is March 4.",
            "March 4 (per the email from Jim Steffes, dated 2/28/2001)", "I think it's March 4.",
        )
    ),
    *(
        (TIME, text)
        for text in (
            "3:00 PM", "3pm", "15:00", "3 p.m.", "3:00 p.m. CST", "at 3 o'clock", "3 in the afternoon, i.e. 15:00",
            "The call is at 3 pm on March 4.", "03:00 PM", "Tuesday at 3:00",
        )
    ),
    *(
        (MONEY, text)
        for text in (
            "$1.5 million", "1,500,000", "$1.5MM", "$1,500,000.00", "1.5m", "US$1.5 million", "USD 1,500,000", "$1500000",
            "about $1.5 million", "The guaranty is $1.5 million for the storage deal.", "1.5 million dollars",
            "$1,500K", "The guaranty came to $1.5 million in 2001.",
        )
    ),
    *(
        (PERSON, text)
        for text in (
            "Bob Pease", "Pease", "Robert Pease", "Mr. Pease", "Pease, Bob", "bob pease", "BOB PEASE", "Bob Pease of FERC",
            "Bob Pease, FERC enforcement attorney", "It was Bob Pease, according to the mail from Jim Steffes.",
            "The attorney on the October 18 staff call was Bob Pease.", "R. Pease", "Bob J. Pease",
            "Bob Pease, who works at the Office of Enforcement", "The answer is Bob Pease from Washington.",
        )
    ),
    *(
        (PLACE, text)
        for text in (
            "the Warwick", "Warwick Hotel, Houston", "The Warwick Hotel in Houston, Texas", "at the Warwick Hotel",
            "We are using the Warwick for the offsite.", "Warwick Hotel (5701 Main Street)",
        )
    ),
    *(
        (TEXT, text)
        for text in ("It was rejected.", "The request was denied because of poor credit.", "denied", "You decided to reject it.")
    ),
    *(
        (LIST, text)
        for text in (
            "Fayne and Baker", "Craig Baker, Henry Fayne", "Baker & Fayne", "AEP is sending Henry Fayne and Craig Baker.",
            "1. Henry Fayne\n2. Craig Baker",
        )
    ),
    *((CODE, text) for text in ("EB3824", "EB-3824", "3824", "eb 3824", "The passcode is EB3824.", "EB3824#")),
]  # fmt: skip

WRONG = [
    *(
        (DATE, text)
        for text in (
            "", "   ", "?", "March 5", "March 4, 2002", "April 4", "4", "March", "Monday, March 4, 2001 or so",
            "March 4, 5, 6", "March 4 and March 5", "March 4-8", "3/4, 3/5", "It is not March 4.", "anything but March 4",
            "March 4 is wrong", "March 4, but I'm not sure", "I don't know. March 4", "Tuesday, March 4, 2001",
            "March 4. March 5. March 6.", "not before March 4", "March 4? No.", "between March 1 and March 4",
        )
    ),
    *((TIME, text) for text in ("3:00 AM", "3 am", "3:30 pm", "3:00 PM, 4:00 PM", "from 3:00 to 5:00 pm", "13:00")),
    *((MONEY, text) for text in ("$1.5 billion", "$15 million", "$1.5 million, $2 million", "1.5", "$1,500", "1.5-2 million")),
    *(
        (PERSON, text)
        for text in (
            "Harry Pease", "Bob Pease, Jim Smith", "Jim Smith of Bob Pease", "jim smith, bob pease", "Bob Pease and Jim Smith",
            "the pease and the smith", "Pease; it is Smith", "Smith, according to Pease", "not Pease", "Pease Smith",
            "anyone but Pease", "Ray", "bob pease jim smith mary cook", "Pease/Smith/Cook", "Jim Smith. Bob Pease.",
            "1) Smith 2) Pease", "It is Jim Smith, who works with Bob Pease.",
        )
    ),
    *((PLACE, text) for text in ("Warwick, Marriott", "the Marriott in the Warwick", "Warwick or Hyatt", "warwick, marriott")),
    *((TEXT, text) for text in ("approved", "accepted, rejected", "It was not rejected.", "accepted or denied")),
    *((LIST, text) for text in ("Henry Fayne", "Fayne, Baker, Smith", "Fayne and Jim Smith and Baker", "Fayne or Baker")),
    *((CODE, text) for text in ("EB3825", "EB3824, EB3825", "3824 3825 3826", "EB38240")),
]  # fmt: skip


@pytest.mark.parametrize(("row", "answer"), RIGHT)
def test_fair_form_is_right(row: dict[str, Any], answer: str) -> None:
    check = check_answer(row, answer)
    assert check.correct, check.reason


@pytest.mark.parametrize(("row", "answer"), WRONG)
def test_wrong_or_stuffed_answer_is_refused(row: dict[str, Any], answer: str) -> None:
    assert not check_answer(row, answer).correct
