"""The rows of the files, in the formats of the real mail and its questions."""

from __future__ import annotations

from typing import Literal, TypedDict

# In the form of a call, because "from" cannot be the name of a field.
MailRow = TypedDict(
    "MailRow",
    {
        "message_id": str,
        "date": str,
        "subject": str,
        "from": str,
        "to": list[str],
        "cc": list[str],
        "bcc": list[str],
        "body": str,
        "file_name": str,
    },
)


class QuestionRow(TypedDict):
    """A question about one inbox, asked at the end of the day `query_date`.

    answer is "" where the inbox does not hold it; then must, message_ids and also_ids are empty. must: a right answer
    holds one string of each list. also_ids: mails that give the whole answer as well. kind: story and attribute, for
    instance "meeting.time". wording: "unseen" if no training or pretraining question is worded like this.
    """

    id: str
    inbox: str
    question: str
    answer: str
    aliases: list[str]
    must: list[list[str]]
    answer_type: str
    message_ids: list[str]
    also_ids: list[str]
    query_date: str
    how_realistic: float
    wording: Literal["seen", "unseen"]
    kind: str
