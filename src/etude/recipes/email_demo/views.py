"""How mails and search hits are shown to a model: as in `email_search`, or in few tokens for a small one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from etude.environment.tools import render
from etude.recipes.email_demo.values import MONTHS
from etude.recipes.email_search.database import SNIPPET_WORDS, Hit
from etude.recipes.email_search.mail import Mail
from etude.recipes.email_search.tools import as_text

NOTHING_FOUND = "nothing found"
COMPACT_SNIPPET_WORDS = 10

_HIT = re.compile(r"^(m\d+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class View:
    """What the tools show of hits and of a mail. snippet_words: length of a hit's snippet."""

    hits: Callable[[Sequence[Hit]], str]
    mail: Callable[[Mail], str]
    snippet_words: int


def compact_ids(shown: str) -> list[str]:
    """The message ids in what a search showed, best first; also where it was cut."""
    return _HIT.findall(shown)


def _full_hits(hits: Sequence[Hit]) -> str:
    return render([{"message_id": hit.message_id, "snippet": hit.snippet} for hit in hits])


def _compact_hits(hits: Sequence[Hit]) -> str:
    """One line a hit. A snippet has no line ends, so nothing in a mail can look like another hit."""
    return "\n".join(f"{hit.message_id} {_short_day(hit.date)}: {hit.snippet}" for hit in hits) or NOTHING_FOUND


def _compact_mail(mail: Mail) -> str:
    body = re.sub(r"\n{2,}", "\n", mail.body)
    return f"{_short_day(mail.date)}, {_name(mail.sender)}: {mail.subject}\n{body}"


def _short_day(moment: str) -> str:
    day = date.fromisoformat(moment[:10])
    return f"{day.day} {MONTHS[day.month - 1][:3]}"


def _name(address: str) -> str:
    return " ".join(part.capitalize() for part in address.partition("@")[0].split("."))


FULL = View(_full_hits, as_text, SNIPPET_WORDS)
COMPACT = View(_compact_hits, _compact_mail, COMPACT_SNIPPET_WORDS)
