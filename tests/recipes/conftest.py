"""Mail for the recipe's tests: a small inbox written by hand, and the real one, imported once a session."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from etude.recipes.email_search.database import MailDatabase
from etude.recipes.email_search.importing import import_mail

Row = dict[str, Any]
MailRow = Callable[..., Row]
ImportRows = Callable[[Sequence[Row]], MailDatabase]


@pytest.fixture(scope="session")
def mail_row() -> MailRow:
    """A line of JSONL: from Bob to Ann, unless said otherwise (`sender` stands for "from")."""

    def row(message_id: str, date: str, subject: str, body: str, sender: str = "bob@example.com", **fields: Any) -> Row:
        rest = {"from": sender, "to": ["ann@example.com"], "cc": [], "bcc": [], "file_name": "test"} | fields
        return {"message_id": message_id, "date": date, "subject": subject, "body": body} | rest

    return row


@pytest.fixture(scope="session")
def small_rows(mail_row: MailRow) -> list[Row]:
    ann, bob, eve = "ann@example.com", "bob@example.com", "eve@example.com"
    return [
        mail_row("<plan@x>", "2001-05-10T09:00:00-07:00", "Planning meeting", "We meet on Friday at 3 pm in room 12."),
        mail_row("<moved@x>", "2001-05-12T23:30:00-07:00", "Meetings moved", "It is on Monday now. Budget: $9.9MM."),
        mail_row("<eve@x>", "2001-05-11T10:00:00-07:00", "Secret meeting", "Only for Bob.", sender=eve, to=[bob]),
        mail_row("<cc@x>", "2001-05-11T11:00:00-07:00", "Turbines", "Turbine prices", to=[bob], cc=[ann], bcc=[eve]),
        mail_row("<later@x>", "2001-05-14T00:10:00-07:00", "Late meeting", "Forget the meeting; the budget is $1."),
        mail_row("<unknown@x>", "1979-12-31T16:00:00-08:00", "Undated", "An undated note on lunch."),
    ]


@pytest.fixture
def import_rows(tmp_path: Path) -> ImportRows:
    def build(rows: Sequence[Row]) -> MailDatabase:
        file, database = tmp_path / "mail.jsonl", tmp_path / "mail.db"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        import_mail([file], database)
        return MailDatabase(database)

    return build


@pytest.fixture
def small(import_rows: ImportRows, small_rows: list[Row]) -> MailDatabase:
    return import_rows(small_rows)


@pytest.fixture(scope="session")
def enron(enron_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> MailDatabase:
    database = tmp_path_factory.mktemp("mail") / "enron.db"
    import_mail([enron_dir / "arte28_inboxes.jsonl.xz"], database)
    return MailDatabase(database)


@pytest.fixture(scope="session")
def questions(enron_dir: Path) -> dict[str, list[Row]]:
    """The questions by split."""
    return {
        split: [
            json.loads(line)
            for line in (enron_dir / f"questions_{split}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for split in ("train", "validation", "test")
    }
