"""Where an answer is from is no part of it: ", according to the mail from Jim Steffes on May 3, 2001"."""

from __future__ import annotations

import re

_ARTICLE = r"(?:(?i:the|an?|his|her|your|this|that)\s+)?"
_DOCUMENT = rf"{_ARTICLE}(?:[\w-]+\s+)?(?i:e-?mails?|mails?|messages?|notes?|memos?|letters?|threads?|reply|replies)\b"
_NAME = r"(?:(?:[A-Z][\w.'&-]*|[\w.+-]+@[\w.-]+|<[^>\s]*>)\s?){1,4}"
_DATE = r"[A-Za-z0-9/.-]+(?:\s[0-9]{1,2}(?:st|nd|rd|th)?)?(?:,?\s(?:19|20)[0-9]{2})?(?![\w/])"
_SAID = r"(?:stated|noted|given|written|said|described|mentioned)"
_ATTRIBUTION = re.compile(
    rf"""
    (?:^|(?<=[,.;(])|\s)\s*
    (?:
        (?i:according\ to)\s+{_ARTICLE}(?:{_DOCUMENT}|{_NAME})
      | (?i:based\ on|as\ per|per|from|in|sources?\s?:|as\ {_SAID}\ (?:in|by))\s+{_DOCUMENT}
    )
    (?:\s+(?:that\s+)?(?:was\s+)?(?:sent\s+)?(?:from|by|of)\s+{_NAME})?
    (?:\s*to\s+{_NAME})?
    (?:\s*,?\s*(?:(?:dated|of|on|sent|from)\s+){{1,2}}{_DATE})?
    """,
    re.VERBOSE,
)


def without_attribution(text: str) -> str:
    """Normalised `text` with its first attribution blanked out (only one: a second name would be a second answer).

    It names a document ("in the mail from ..."), or follows "according to".
    """
    return _ATTRIBUTION.sub(lambda match: " " * len(match.group()), text, count=1)
