"""`etude mail`, as a person uses it."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from etude.cli.mail import DEFAULT_DATABASE, app
from etude.errors import ConfigError
from etude.recipes.email_search import environment

ROW = {
    "message_id": "<plan@x>",
    "date": "2001-05-12T23:30:00-07:00",
    "subject": "Planning meetings",
    "from": "bob@example.com",
    "to": ["ann@example.com"],
    "body": "On [Friday] at 3 pm.",
}
ANN = ("--inbox", "ann@example.com")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mail.jsonl").write_text(json.dumps(ROW) + "\n" + json.dumps(ROW) + "\n")
    return tmp_path


def mail(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_import_then_look(folder: Path) -> None:
    output = mail("import", "mail.jsonl")
    assert "1 mails in .etude/mail/enron.db" in output
    assert "1 left out: message id seen before" in output
    assert (folder / DEFAULT_DATABASE).is_file()
    assert "ann@example.com" in mail("stats")
    assert mail("search", *ANN, "meeting") == "<plan@x>\n    Planning meetings\n"
    assert mail("search", *ANN, "meeting", "--as-of", "2001-05-11") == (
        "nothing in the inbox of ann@example.com holds all of: meeting\n"
    )
    assert mail("read", *ANN, "<plan@x>") == (
        "Date: 2001-05-12T23:30:00-07:00\nSubject: Planning meetings\nFrom: bob@example.com\nTo: ann@example.com\n\n"
        "On [Friday] at 3 pm.\n"
    )


def test_what_cannot_be_done_is_said(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no mail database"):
        mail("stats")
    mail("import", "mail.jsonl")
    with pytest.raises(ConfigError, match="add --force"):
        mail("import", "mail.jsonl")
    mail("import", "mail.jsonl", "--force", "--keep-duplicates", "--max-body", "0")
    with pytest.raises(ConfigError, match="nothing to search for"):
        mail("search", *ANN, "...")
    with pytest.raises(ConfigError, match="holds no mail <other@x>"):
        mail("read", *ANN, "<other@x>")


def test_the_environment_looks_where_the_import_writes() -> None:
    assert Path(inspect.signature(environment).parameters["database"].default) == DEFAULT_DATABASE
