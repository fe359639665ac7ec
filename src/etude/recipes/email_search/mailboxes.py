"""mbox and Maildir: real mail, with its headers in every state of repair."""

from __future__ import annotations

import hashlib
import mailbox
from collections.abc import Iterator
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message as EmailMessage
from email.utils import getaddresses, parsedate_to_datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

from etude.recipes.email_search.mail import Mail, Read, Skipped


def read_mailbox(path: Path, form: Literal["mbox", "maildir"]) -> Iterator[Read]:
    """Every mail of an mbox file or a Maildir folder. A mail without a readable date is skipped: nobody could say
    from which day on it is visible."""
    box: mailbox.Mailbox[Any]
    box = mailbox.mbox(path, create=False) if form == "mbox" else mailbox.Maildir(path, create=False)
    try:
        keys = list(box.keys())
        for done, key in enumerate(keys, start=1):
            yield Read(_mail(box[key], file_name=path.name), done / len(keys))
    finally:
        box.close()


def _mail(message: EmailMessage, file_name: str) -> Mail | Skipped:
    try:
        date = parsedate_to_datetime(_header(message, "Date")).isoformat()
    except (TypeError, ValueError):
        return Skipped("no readable date")
    subject, body = _header(message, "Subject"), _body(message)
    senders = _addresses(message, "From")
    sender = senders[0] if senders else ""
    message_id = _header(message, "Message-ID")
    if not message_id:
        digest = hashlib.sha256("\0".join((date, sender, subject, body)).encode("utf-8", "replace"))
        message_id = f"<{digest.hexdigest()[:32]}@no-message-id>"
    to, cc, bcc = (_addresses(message, name) for name in ("To", "Cc", "Bcc"))
    return Mail(message_id, date, subject, sender, to, cc, bcc, body, file_name)


def _header(message: EmailMessage, name: str) -> str:
    raw = message.get(name, "")
    try:
        text = str(make_header(decode_header(raw)))
    except (HeaderParseError, LookupError, UnicodeError):
        text = str(raw)  # an encoding that nobody knows: as it was sent
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


def _addresses(message: EmailMessage, name: str) -> tuple[str, ...]:
    fields = [str(value) for value in message.get_all(name, [])]
    return tuple(dict.fromkeys(address.lower() for _, address in getaddresses(fields) if "@" in address))


def _body(message: EmailMessage) -> str:
    """The first plain text that is no attachment; failing that, the text of the first HTML part."""
    texts: dict[str, str] = {}
    for part in message.walk():
        kind = part.get_content_type()
        if kind in ("text/plain", "text/html") and part.get_content_disposition() != "attachment":
            texts.setdefault(kind, _decoded(part))
    if "text/plain" in texts:
        return texts["text/plain"]
    if "text/html" in texts:
        reader = _Text()
        reader.feed(texts["text/html"])
        reader.close()
        return reader.text()
    return ""


def _decoded(part: EmailMessage) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        text = data.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:
        text = data.decode("utf-8", "replace")
    return text.replace("\r\n", "\n").strip()


class _Text(HTMLParser):
    """What a person would read of an HTML mail, one line a block."""

    _BLOCKS = frozenset({"p", "div", "br", "tr", "li", "h1", "h2", "h3", "h4", "table", "blockquote"})
    _HIDDEN = frozenset({"script", "style", "head", "title"})

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in self._HIDDEN
        if tag in self._BLOCKS:
            self._parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._HIDDEN:
            self._hidden = max(self._hidden - 1, 0)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._parts.append(data)

    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._parts).split("\n"))
        return "\n".join(line for line in lines if line)
