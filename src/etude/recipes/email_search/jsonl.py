"""JSON lines, plain or .xz: one mail a line, in the form of the Enron files."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from etude.errors import DataError
from etude.recipes.email_search.mail import Mail, Read


class _Row(BaseModel):
    """One line of JSON; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    message_id: str = Field(min_length=1)
    date: str
    subject: str
    sender: str = Field(alias="from")
    to: list[str]
    cc: list[str] = []
    bcc: list[str] = []
    body: str
    file_name: str = ""

    @field_validator("date")
    @classmethod
    def _iso(cls, date: str) -> str:
        if not re.match(r"\d{4}-\d\d-\d\d", date):
            raise ValueError("want ISO 8601, as in 2001-05-14T16:39:00-07:00")
        datetime.fromisoformat(date)
        return date

    def mail(self) -> Mail:
        to, cc, bcc = (tuple(address.lower() for address in kind) for kind in (self.to, self.cc, self.bcc))
        sender = self.sender.lower()
        return Mail(self.message_id, self.date, self.subject, sender, to, cc, bcc, self.body, self.file_name)


def read_jsonl(path: Path) -> Iterator[Read]:
    """Every mail of the file. Raises DataError with file and line number for what is broken."""
    size = max(path.stat().st_size, 1)
    number = 0
    packed = path.suffix == ".xz"
    with path.open("rb") as raw, lzma.open(raw) if packed else nullcontext(raw) as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield Read(_parse(line, path, number), raw.tell() / size)
        except (lzma.LZMAError, EOFError) as error:
            raise DataError(f"{path}:{number + 1}: the compressed file is broken or cut off ({error})") from error


def _parse(line: bytes, path: Path, number: int) -> Mail:
    try:
        return _Row.model_validate_json(line).mail()
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "line"
        raise DataError(f"{path}:{number}: {field}: {first['msg']}") from error
