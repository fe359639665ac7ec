"""One mail, as plain data, from wherever it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail. Addresses are lower-case; date is ISO 8601, in the sender's own zone."""

    message_id: str
    date: str
    subject: str
    sender: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    bcc: tuple[str, ...]
    body: str
    file_name: str

    @property
    def recipients(self) -> Mapping[str, tuple[str, ...]]:
        return {"to": self.to, "cc": self.cc, "bcc": self.bcc}


@dataclass(frozen=True, slots=True)
class Skipped:
    """A mail that cannot be used, and why; it is counted, not lost unnoticed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Read:
    """One mail of a source; share: how much of the source is read by now, from 0 to 1."""

    mail: Mail | Skipped
    share: float
