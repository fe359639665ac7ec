"""Which forms of mail can be read: JSON lines (also .xz), mbox, Maildir; each as a stream of mails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from etude.errors import DataError
from etude.recipes.email_search.jsonl import read_jsonl
from etude.recipes.email_search.mail import Read
from etude.recipes.email_search.mailboxes import read_mailbox

Form = Literal["jsonl", "mbox", "maildir"]


def detect_form(path: Path) -> Form:
    """Which form of mail a path holds. Raises DataError if it does not exist or is none of them."""
    if path.is_dir():
        if (path / "cur").is_dir() or (path / "new").is_dir():
            return "maildir"
        raise DataError(f"{path} is a folder without cur/ or new/, so it is no Maildir: name a file or a Maildir")
    if not path.is_file():
        raise DataError(f"no file {path}")
    if path.name.endswith((".jsonl", ".jsonl.xz")):
        return "jsonl"
    with path.open("rb") as file:
        if path.suffix == ".mbox" or file.read(5) == b"From ":
            return "mbox"
    raise DataError(f"{path} is no mail that can be read here: want .jsonl, .jsonl.xz, mbox, or a Maildir folder")


def read_mails(path: Path) -> Iterator[Read]:
    """Every mail of a file or Maildir, in its order. Raises DataError with file and line for what is broken."""
    form = detect_form(path)
    return read_jsonl(path) if form == "jsonl" else read_mailbox(path, form)
