"""Searchers without a model. They play through the same tools, so they are a baseline and a source of traces.

Both decide from the conversation alone, like a model: they keep nothing between turns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from etude.environment.calls import ToolCall
from etude.environment.scenario import Scenario
from etude.recipes.email_search.database import MailDatabase
from etude.recipes.email_search.guessing import guess_answer
from etude.recipes.email_search.keywords import Keyword, rank_keywords, search_plan, stem
from etude.recipes.email_search.tools import ANSWER, READ, SEARCH, found_ids
from etude.rollout.messages import Message

I_DONT_KNOW = "I don't know"


@dataclass
class _History:
    """What happened so far. searches: ids found by each set of keywords. read: text of each mail opened."""

    turns: int = 0
    searches: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> _History:
        history = cls()
        asked: dict[str, ToolCall] = {}
        for message in messages:
            if message.role == "assistant":
                history.turns += 1
                asked |= {call.id: call for call in message.tool_calls}
            elif message.role == "tool":
                call = asked[message.call_id]
                if call.name == SEARCH:
                    history.searches[tuple(call.arguments["keywords"])] = found_ids(message.content)
                elif call.name == READ:
                    history.read[call.arguments["message_id"]] = message.content
        return history

    @property
    def hits(self) -> list[str]:
        """Found by the last search that found anything."""
        return next((ids for ids in reversed(self.searches.values()) if ids), [])

    def turn(self, name: str, arguments: dict[str, Any]) -> Message:
        return Message("assistant", "", (ToolCall(name, arguments, id=f"call_{self.turns}"),))

    def answer(self, answer: str, sources: Sequence[str]) -> Message:
        return self.turn(ANSWER, {"answer": answer, "sources": list(sources)})

    def search(self, keywords: Sequence[str], max_results: int) -> Message:
        return self.turn(SEARCH, {"keywords": list(keywords), "max_results": max_results})


class _Searcher:
    def __init__(self, database: MailDatabase, *, max_turns: int, max_results: int) -> None:
        self.database = database
        self.max_turns = max_turns
        self.max_results = max_results
        self._mails = database.stats(inboxes=0).mails
        self._mails_with = cache(database.mails_with)

    def keywords(self, scenario: Scenario) -> list[Keyword]:
        return rank_keywords(scenario["question"], self._mails, self._mails_with)


class ScriptedSearcher(_Searcher):
    """Searches with the question's names and rare words, asks for less when nothing is found, opens the best hits, and
    answers with the value of the asked kind nearest to the question's words. Cites the mail that it comes from.

    max_turns: as the environment's limit. max_results: hits a search. max_reads: mails opened at most.
    """

    def __init__(
        self, database: MailDatabase, *, max_turns: int = 10, max_results: int = 5, max_reads: int = 2
    ) -> None:
        super().__init__(database, max_turns=max_turns, max_results=max_results)
        self.max_reads = max_reads

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        """The next assistant message, with one tool call."""
        history = _History.of(messages)
        keywords = self.keywords(scenario)
        if not history.hits:
            untried = [plan for plan in search_plan(keywords) if plan not in history.searches]
            if untried and history.turns < self.max_turns - 2:  # one to read, one to answer
                return history.search(untried[0], self.max_results)
            return history.answer(I_DONT_KNOW, [])
        unread = [message_id for message_id in history.hits if message_id not in history.read]
        room = min(self.max_reads - len(history.read), self.max_turns - 1 - history.turns)
        covered = {message_id: _coverage(keywords, text) for message_id, text in history.read.items()}
        if unread and room > 0 and max(covered.values(), default=0.0) < _ENOUGH:
            return history.turn(READ, {"message_id": unread[0]})
        best = max(covered, key=lambda message_id: covered[message_id])
        body = history.read[best].partition("\n\n")[2]
        return history.answer(guess_answer(scenario["question"], keywords, body) or I_DONT_KNOW, [best])


class GuidedSearcher(_Searcher):
    """Knows the right mails and the right answer, but has to find the mails: of the scripted searcher's searches it
    makes the first that finds one, opens it, and gives the gold answer. Where none does, it does not know.

    A source of traces that are right and legitimate; as a baseline it means nothing. max_misses: searches that find
    nothing at all which it makes before, so that the traces show what to do then.
    """

    def __init__(
        self, database: MailDatabase, *, max_turns: int = 10, max_results: int = 5, max_misses: int = 1
    ) -> None:
        super().__init__(database, max_turns=max_turns, max_results=max_results)
        self.max_misses = max_misses

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        """The next assistant message, with one tool call."""
        history = _History.of(messages)
        wanted = _still_wanted(scenario, history)
        if not wanted:
            right = {*scenario["message_ids"], *scenario["also_ids"]}
            return history.answer(scenario["answer"] or I_DONT_KNOW, [each for each in history.read if each in right])
        found = {message_id for ids in history.searches.values() for message_id in ids}
        if to_read := [message_id for message_id in wanted if message_id in found]:
            return history.turn(READ, {"message_id": to_read[0]})
        plan = self._next_search(scenario, history, wanted)
        if plan is None or history.turns >= self.max_turns - 2:
            return history.answer(I_DONT_KNOW, [])
        return history.search(plan, self.max_results)

    def _next_search(self, scenario: Scenario, history: _History, wanted: Sequence[str]) -> tuple[str, ...] | None:
        inbox, day = scenario["inbox"], scenario["query_date"]
        misses = sum(not ids for ids in history.searches.values())
        for plan in search_plan(self.keywords(scenario)):
            hits = self.database.search(plan, inbox=inbox, visible_until=day, limit=self.max_results)
            shows_a_miss = not hits and misses < self.max_misses and plan not in history.searches
            if shows_a_miss or any(hit.message_id in wanted for hit in hits):
                return plan
        return None


def _still_wanted(scenario: Scenario, history: _History) -> list[str]:
    """Mails of which one has to be opened next; none once what was opened gives the whole answer."""
    needed, alone = list(scenario["message_ids"]), list(scenario["also_ids"])
    if any(message_id in history.read for message_id in alone):
        return []
    missing = [message_id for message_id in needed if message_id not in history.read]
    return missing if len(missing) < len(needed) else [*missing, *alone]


_ENOUGH = 0.8  # of the keywords' weight in a mail: no need to open another


def _coverage(keywords: Sequence[Keyword], text: str) -> float:
    """How much of the keywords' weight a text holds, from 0 to 1."""
    total = sum(keyword.weight for keyword in keywords)
    lower = text.lower()
    held = sum(
        keyword.weight for keyword in keywords if re.search(rf"(?<![a-z0-9]){re.escape(stem(keyword.word))}", lower)
    )
    return held / total if total else 1.0
