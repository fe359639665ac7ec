"""The search of the real tool, in memory and for many questions a second: same matches, same order, same snippets."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from etude.recipes.email_demo.rows import MailRow
from etude.recipes.email_search.database import SNIPPET_WORDS, Hit, match_expression


class MailIndex:
    """Mails of several inboxes. Held by one thread."""

    def __init__(self, mails: Sequence[MailRow]) -> None:
        self.mails = {mail["message_id"]: mail for mail in mails}
        self._rows = list(mails)
        self._people = [{mail["from"], *mail["to"], *mail["cc"], *mail["bcc"]} for mail in mails]
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("CREATE VIRTUAL TABLE mails USING fts5 (subject, body, tokenize = 'porter unicode61')")
        self._connection.executemany(
            "INSERT INTO mails (rowid, subject, body) VALUES (?, ?, ?)",
            ((number, mail["subject"], mail["body"]) for number, mail in enumerate(mails)),
        )

    def search(
        self,
        keywords: Sequence[str],
        *,
        inbox: str,
        visible_until: str,
        limit: int,
        snippet_words: int = SNIPPET_WORDS,
    ) -> list[Hit]:
        """As `MailDatabase.search`."""
        match = match_expression(keywords)
        if match is None:
            return []
        found = self._connection.execute("SELECT bm25(mails), rowid FROM mails WHERE mails MATCH ?", (match,))
        visible = [
            (score, number)
            for score, number in found
            if inbox in self._people[number] and self._rows[number]["date"][:10] <= visible_until
        ]
        newest_first = sorted(visible, key=lambda hit: self._rows[hit[1]]["date"], reverse=True)
        best = [number for _, number in sorted(newest_first, key=lambda hit: hit[0])[:limit]]
        return [self._hit(match, number, snippet_words) for number in best]

    def _hit(self, match: str, number: int, snippet_words: int) -> Hit:
        mail = self._rows[number]
        return Hit(mail["message_id"], self._snippet(match, number, snippet_words), mail["date"])

    def _snippet(self, match: str, number: int, snippet_words: int) -> str:
        query = "SELECT snippet(mails, -1, '', '', ' ... ', ?) FROM mails WHERE mails MATCH ? AND rowid = ?"
        with closing(self._connection.execute(query, (snippet_words, match, number))) as rows:
            return " ".join(str(next(rows)[0]).split())
