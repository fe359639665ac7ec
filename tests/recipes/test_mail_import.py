"""Importing mail: all of it or nothing, from every form that people keep mail in."""

from __future__ import annotations

import json
import lzma
import mailbox
import resource
import sqlite3
from collections.abc import Callable
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from etude.errors import ConfigError, DataError, StorageError
from etude.recipes.email_search.database import MailDatabase
from etude.recipes.email_search.importing import Filters, import_mail

ANN = "ann@example.com"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_every_field_comes_back(small: MailDatabase) -> None:
    mail = small.read("<cc@x>", inbox=ANN, visible_until=None)
    assert mail is not None
    assert (mail.date, mail.subject, mail.body) == ("2001-05-11T11:00:00-07:00", "Turbines", "Turbine prices")
    assert (mail.sender, mail.to, mail.cc, mail.bcc) == (
        "bob@example.com",
        ("bob@example.com",),
        (ANN,),
        ("eve@example.com",),
    )


def test_recipients_hold_the_id_of_their_email(small: MailDatabase) -> None:
    """Fault 2 of the public example: recipients looked up by the wrong id are always empty."""
    with sqlite3.connect(small.path) as connection:
        rows = connection.execute(
            "SELECT e.message_id, r.recipient_address, r.recipient_type"
            " FROM recipients r JOIN emails e ON e.id = r.email_id WHERE e.message_id = '<cc@x>' ORDER BY r.rowid"
        ).fetchall()
        assert rows == [
            ("<cc@x>", "bob@example.com", "to"),
            ("<cc@x>", ANN, "cc"),
            ("<cc@x>", "eve@example.com", "bcc"),
        ]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_the_index_is_exactly_the_mails(small: MailDatabase) -> None:
    """Fault 6: triggers on external content leave stale rows. There are none, and the index agrees with its content."""
    with sqlite3.connect(small.path) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone() == (0,)
        connection.execute("INSERT INTO emails_fts (emails_fts, rank) VALUES ('integrity-check', 1)")


def test_a_second_import_needs_force(tmp_path: Path, small_rows: list[dict[str, Any]]) -> None:
    file, database = write(tmp_path / "mail.jsonl", small_rows), tmp_path / "mail.db"
    import_mail([file], database)
    with pytest.raises(ConfigError, match="exists already, with 6 mails imported from the same mail: add --force"):
        import_mail([file], database)
    other = write(tmp_path / "other.jsonl", small_rows[:2])
    with pytest.raises(ConfigError, match=r"imported from .*mail\.jsonl: add --force"):
        import_mail([other], database)
    import_mail([other], database, force=True)
    assert MailDatabase(database).stats().mails == 2


def test_force_does_not_replace_what_is_no_mail_database(tmp_path: Path, small_rows: list[dict[str, Any]]) -> None:
    file, precious = write(tmp_path / "mail.jsonl", small_rows), tmp_path / "thesis.txt"
    precious.write_text("ten years of work, and it is long enough to be a database header" * 4)
    with pytest.raises(ConfigError, match=r"thesis\.txt is no mail database"):
        import_mail([file], precious, force=True)
    assert precious.read_text().startswith("ten years")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE work (years)")
    with pytest.raises(ConfigError, match=r"other\.db is no mail database, but another SQLite file"):
        import_mail([file], other, force=True)


def test_force_replaces_a_database_of_another_version(tmp_path: Path, small: MailDatabase) -> None:
    with closing(sqlite3.connect(small.path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="--force"):
        import_mail([tmp_path / "mail.jsonl"], small.path)
    import_mail([tmp_path / "mail.jsonl"], small.path, force=True)
    assert MailDatabase(small.path).stats().mails == 6


def test_a_full_disk_is_a_storage_error_and_leaves_nothing(tmp_path: Path, small_rows: list[dict[str, Any]]) -> None:
    file = write(tmp_path / "mail.jsonl", small_rows)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (20_000, hard)
    )  # no file may grow beyond: the nearest thing to a full disk
    try:
        with pytest.raises(StorageError, match=r"mail\.db was not built: .*What was there before is unchanged"):
            import_mail([file], tmp_path / "mail.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["mail.jsonl"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "line: Invalid JSON"),
        ('{"message_id": "<a@x>"}', r"date: Field required"),
        ("[1, 2]", "line: Input should be"),
        (None, "date: Value error, want ISO 8601"),
    ],
)
def test_a_broken_line_is_named_and_nothing_is_left(
    tmp_path: Path, small_rows: list[dict[str, Any]], line: str | None, message: str
) -> None:
    lines = [json.dumps(row) for row in small_rows]
    lines[3] = line if line is not None else json.dumps(small_rows[3] | {"date": "12 May"})
    file, database = tmp_path / "mail.jsonl", tmp_path / "mail.db"
    file.write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"mail\.jsonl:4: {message}"):
        import_mail([file], database)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mail.jsonl"]


def test_a_failed_import_leaves_the_old_database(tmp_path: Path, small_rows: list[dict[str, Any]]) -> None:
    database = tmp_path / "mail.db"
    import_mail([write(tmp_path / "mail.jsonl", small_rows)], database)
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b'{"message_id": "\xff"}\n')
    with pytest.raises(DataError, match=r"broken\.jsonl:1"):
        import_mail([broken], database, force=True)
    assert MailDatabase(database).stats().mails == 6


def test_a_cut_off_xz_file_is_named(tmp_path: Path, small_rows: list[dict[str, Any]]) -> None:
    packed = lzma.compress("".join(json.dumps(row) + "\n" for row in small_rows).encode())
    whole, cut = tmp_path / "mail.jsonl.xz", tmp_path / "cut.jsonl.xz"
    whole.write_bytes(packed)
    cut.write_bytes(packed[:-40])
    assert import_mail([whole], tmp_path / "mail.db").mails == 6
    with pytest.raises(DataError, match=r"cut\.jsonl\.xz:\d+: the compressed file is broken or cut off"):
        import_mail([cut], tmp_path / "cut.db")


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path, small_rows: list[dict[str, Any]]) -> None:
    file = write(tmp_path / "mail.jsonl", small_rows)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="was not built"):
        import_mail([file], tmp_path / "file" / "mail.db")


def test_filters_drop_and_count(tmp_path: Path, mail_row: Callable[..., dict[str, Any]]) -> None:
    day = "2001-05-10T09:00:00-07:00"
    many = [f"p{number}@example.com" for number in range(30)]
    rows = [
        mail_row("<1>", day, "a", "x" * 5000),
        mail_row("<2>", day, "b", "x" * 5001),
        mail_row("<3>", day, "c", "text", to=many, cc=many, bcc=many),  # 30 people, however often each is named
        mail_row("<4>", day, "d", "text", to=many, cc=[ANN]),
        mail_row("<1>", day, "e", "another mail under the same id"),
        mail_row("<5>", day, "c", "text"),
        mail_row("<6>", day, "c", "text", sender=ANN),
    ]
    file = write(tmp_path / "mail.jsonl", rows)
    report = import_mail([file], tmp_path / "mail.db")
    assert report.mails == 3
    assert report.dropped == {
        "body over 5000 characters": 1,
        "more than 30 recipients": 1,
        "message id seen before": 1,
        "same subject, body and sender as a mail before": 1,
    }
    everything = Filters(max_body=None, max_recipients=None, drop_duplicates=False)
    assert import_mail([file], tmp_path / "all.db", filters=everything).mails == 6


def message(**headers: str) -> EmailMessage:
    mail = EmailMessage()
    defaults = {"From": "Bob <BOB@example.com>", "To": "Ann <ann@example.com>, eve@example.com", "Subject": "Grüße"}
    for name, value in (defaults | {"Date": "Sat, 12 May 2001 23:30:00 -0700"} | headers).items():
        mail[name] = value
    mail.set_content("Wir treffen uns am Montag.\n")
    return mail


@pytest.mark.parametrize("form", ["mbox", "maildir"])
def test_mbox_and_maildir(tmp_path: Path, form: str) -> None:
    path = tmp_path / "box"
    box: Any = mailbox.mbox(path) if form == "mbox" else mailbox.Maildir(path)
    html = EmailMessage()
    for name in ("From", "To", "Date"):
        html[name] = message()[name]
    html["Message-ID"] = "<html@x>"
    html.set_content("<style>p {}</style><p>Dinner &amp; <b>talk</b></p><p>at 8</p>", subtype="html")
    for mail in (message(**{"Message-ID": "<plain@x>"}), html, message(Date="yesterday", Subject="no date"), message()):
        box.add(mail)
    box.close()
    report = import_mail([path], tmp_path / "mail.db", filters=Filters(drop_duplicates=False))
    assert (report.mails, report.dropped) == (3, {"no readable date": 1})
    database = MailDatabase(tmp_path / "mail.db")
    plain = database.read("<plain@x>", inbox=ANN, visible_until="2001-05-12")
    assert plain is not None
    assert (plain.subject, plain.body) == ("Grüße", "Wir treffen uns am Montag.")
    assert (plain.sender, plain.to) == ("bob@example.com", (ANN, "eve@example.com"))
    assert plain.date == "2001-05-12T23:30:00-07:00"
    dinner = database.read("<html@x>", inbox="eve@example.com", visible_until=None)
    assert dinner is not None
    assert dinner.body == "Dinner & talk\nat 8"
    hits = database.search(["montag"], inbox=ANN, visible_until=None)
    assert sorted(hit.message_id.endswith("@no-message-id>") for hit in hits) == [False, True]


@pytest.mark.parametrize("header", ["=?utf-8?b?w?=", "=?klingon?q?x?=", "\udcff raw bytes", "ok\x00nul"])
def test_broken_headers_do_not_stop_an_import(tmp_path: Path, header: str) -> None:
    path = tmp_path / "mail.mbox"
    raw = f"From bob\nDate: Sat, 12 May 2001 23:30:00 -0700\nFrom: b@x.y\nTo: {ANN}\nSubject: {header}\n\nlunch\n"
    path.write_bytes(raw.encode("utf-8", "surrogateescape"))
    assert import_mail([path], tmp_path / "mail.db").mails == 1
    assert MailDatabase(tmp_path / "mail.db").search(["lunch"], inbox=ANN, visible_until=None)


def test_what_is_no_mail_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    for path, message_text in (
        (tmp_path / "nothing", "no file"),
        (tmp_path / "notes.txt", "is no mail that can be read"),
        (tmp_path, "is no Maildir"),
    ):
        with pytest.raises(DataError, match=message_text):
            import_mail([path], tmp_path / "mail.db")


def test_a_lone_surrogate_in_json_is_named(tmp_path: Path, small_rows: list[dict[str, Any]]) -> None:
    file = write(tmp_path / "mail.jsonl", [*small_rows, small_rows[0] | {"message_id": "<s@x>", "body": "\ud800"}])
    with pytest.raises(DataError, match=r"mail\.jsonl:7: line: Invalid JSON"):
        import_mail([file], tmp_path / "mail.db")


def test_the_real_mail_is_whole(enron: MailDatabase) -> None:
    stats = enron.stats(inboxes=1)
    assert stats.mails == 46_329
    assert (stats.first[:10], stats.last[:10]) == ("1979-12-31", "2002-09-22")
    assert stats.inboxes == (("louise.kitchen@enron.com", 5099),)
