"""The checker of questions and mails finds what is wrong with them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest

from etude.recipes.email_demo.corpus import generate
from etude.recipes.email_demo.reading import Reader
from etude.recipes.email_demo.rows import MailRow, QuestionRow
from etude.recipes.email_demo.verify import Problem, holds, verify, verify_disjoint
from etude.recipes.email_demo.wording import load_wording

INBOX = "tara.menetz@bolix.example"


def mail(message_id: str, day: str, body: str, subject: str = "News") -> MailRow:
    return {
        "message_id": message_id,
        "date": f"{day}T09:00:00+00:00",
        "subject": subject,
        "from": "lara.bodink@bolix.example",
        "to": [INBOX],
        "cc": [],
        "bcc": [],
        "body": body,
        "file_name": "tara.menetz/inbox",
    }


def question(**changes: object) -> QuestionRow:
    row: QuestionRow = {
        "id": "test-1-00000",
        "inbox": INBOX,
        "question": "What time does the Kemora progress check begin?",
        "answer": "3:30 pm",
        "aliases": [],
        "must": [["3:30 pm", "15:30"]],
        "answer_type": "time",
        "message_ids": ["m2"],
        "also_ids": ["m3"],
        "query_date": "2024-05-10",
        "how_realistic": 0.8,
        "wording": "seen",
        "kind": "meeting.time",
    }
    return {**row, **changes}  # type: ignore[typeddict-item]


UNANSWERED = {"answer": "", "aliases": [], "must": [], "message_ids": [], "also_ids": []}
MAILS = [
    mail("m1", "2024-05-01", "The Kemora review is on 20 May at 10:00 am. Call me if you have questions."),
    mail("m2", "2024-05-06", "There is a change. The Kemora review has moved from 10:00 am to 3:30 pm."),
    mail("m3", "2024-05-07", "Fine with me.\n\nLara Bodink wrote:\n> It now starts at 3:30 pm.", "Re: Kemora review"),
    mail("m4", "2024-05-20", "The Kemora review now starts at 5:00 pm, not at 3:30 pm."),
    mail("m5", "2024-05-08", "The Kemora workshop starts at 9:15 am."),
]


def found(row: QuestionRow, mails: list[MailRow] = MAILS) -> list[str]:
    return [problem.what for problem in verify([row], mails)]


def test_a_question_answered_by_the_last_visible_mail_is_right() -> None:
    assert found(question()) == []


def test_the_answer_of_a_later_day_is_that_of_the_later_mail() -> None:
    later = question(query_date="2024-05-21", answer="5:00 pm", must=[["5:00 pm"]], message_ids=["m4"], also_ids=[])
    assert found(later) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_date": "2024-05-21"}, "the last mail says 5:00 pm, not 3:30 pm"),
        ({"answer": "10:00 am", "must": [["10:00 am"]], "message_ids": ["m1"]}, "the last mail says 3:30 pm"),
        ({"query_date": "2024-04-30"}, "no mail that is visible gives the answer"),
        ({"inbox": "someone.else@bolix.example", "question": "What time does the Kemora review begin?"}, "no mail"),
        ({"query_date": "2024-05-06", "also_ids": []}, "before the day after its source"),
        ({"also_ids": []}, "its sources are"),
        ({"also_ids": ["m1"]}, "its sources are"),
        ({"message_ids": ["m3"], "also_ids": ["m2"]}, "its sources are"),
        ({"must": [["3:45 pm"]]}, "holds none of the accepted forms"),
        ({"must": []}, "nothing says which answers are right"),
        ({"aliases": ["half past four"]}, "its alias half past four holds none"),
        ({"wording": "unseen"}, "its wording is not unseen"),
        ({"question": "What colour is the Kemora review?"}, "no question of kind meeting.time"),
        ({"question": "Tell me what time we begin the Kemora review."}, "its wording is not seen"),
        (UNANSWERED, "has no answer, but m1 says 10:00 am"),
        (
            {**UNANSWERED, "kind": "meeting.place", "question": "Where is the review for Kemora?", "must": [["x"]]},
            "but sources or",
        ),
    ],
)
def test_what_is_wrong_with_a_question_is_found(changes: dict[str, object], message: str) -> None:
    assert any(message in what for what in found(question(**changes))), found(question(**changes))


def test_what_no_visible_mail_says_has_no_answer() -> None:
    place = {**UNANSWERED, "kind": "meeting.place", "question": "Where is the review for Kemora?"}
    assert found(question(**place)) == []
    early = {**UNANSWERED, "query_date": "2024-04-30"}
    assert found(question(**early)) == []


def test_a_quotation_of_an_old_value_changes_nothing() -> None:
    late = mail("m6", "2024-05-08", "Noted, thank you.\n\nLara wrote:\n> It starts at 10:00 am.", "Re: Kemora review")
    assert found(question(), [*MAILS, late]) == []


def test_a_forwarded_mail_states_what_it_holds() -> None:
    late = mail("m6", "2024-05-08", "Please see below.\n\nLara Bodink wrote:\nThe Kemora review starts at 4:00 pm.")
    assert "the last mail says 4:00 pm, not 3:30 pm" in found(question(), [*MAILS, late])


def test_repeated_ids_mails_and_questions_are_found() -> None:
    row = question()
    problems = verify([row, row], [*MAILS, MAILS[0]])
    assert {problem.what for problem in problems} >= {
        "id occurs twice", "message id occurs twice", "two mails are the same", "asked twice",
    }  # fmt: skip


def test_a_name_in_two_splits_is_found() -> None:
    train = generate("train", 1, 1, 60, 5)
    test = generate("test", 1, 1, 60, 5)
    assert verify_disjoint([train, test, train]) == []
    leaked = replace(test, mails=(*test.mails, mail("m1", "2024-05-01", "Kemora has a new lead.")))
    leaking = replace(train, mails=(mail("m1", "2024-05-01", "How is Kemora going?"),))
    assert Problem("train and test", "share the name kemora") in verify_disjoint([leaking, leaked])


@pytest.mark.parametrize(
    ("form", "text", "held"),
    [
        ("17", "17 people", True), ("17", "17,000", False), ("17", "117", False),
        ("2", "1.2", False), ("2", "2.", True), ("room 214", "in Room\n214.", True),
        ("ann", "Joanna", False), ("4,250", "$4,250.", True), ("4,250", "14,250", False),
    ],
)  # fmt: skip
def test_forms_are_found_as_whole_words_and_numbers(form: str, text: str, held: bool) -> None:
    assert holds([form], text) is held


@pytest.mark.parametrize("spoil", ["drop the source", "change the source", "hide the source"])
def test_spoiling_any_source_of_a_generated_corpus_is_found(spoil: str) -> None:
    corpus = generate("test", 5, 1, 200, 20)
    spoiled: dict[str, Callable[[MailRow], MailRow | None]] = {
        "drop the source": lambda m: None,
        "change the source": lambda m: {**m, "body": "Nothing new."},
        "hide the source": lambda m: {**m, "date": "2099-01-01T09:00:00+00:00"},
    }
    for row in corpus.questions:
        if row["answer"]:
            source = row["message_ids"][0]
            mails = [spoiled[spoil](m) if m["message_id"] == source else m for m in copy.deepcopy(corpus.mails)]
            assert verify([row], [m for m in mails if m is not None]) != []


def test_the_reader_knows_other_words_for_everyday_things() -> None:
    story, attribute, key, unseen = Reader(load_wording()).question(question())
    assert (story.name, attribute.name, key, unseen) == ("meeting", "time", ("Kemora", "review"), False)
