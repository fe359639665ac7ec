"""Traces of a clumsy searcher, for a model to learn the tools and the format from, and to read an answer off a mail.

At each move it thinks or it does not. Without thought it takes its keywords from the question at random (now and then
useless ones), opens hits at random, sometimes takes a wrong mail for the right one, and sometimes gives up. So a model
that imitates it has all the good moves among its moves, and which of them pay is left to reinforcement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from etude.environment.calls import ToolCall
from etude.errors import ConfigError
from etude.recipes.email_demo.corpus import Corpus
from etude.recipes.email_demo.index import MailIndex
from etude.recipes.email_demo.reading import Reader, Reading
from etude.recipes.email_demo.rows import MailRow, QuestionRow
from etude.recipes.email_demo.verify import words
from etude.recipes.email_demo.views import FULL, View
from etude.recipes.email_demo.wording import load_wording
from etude.recipes.email_search.keywords import STOP_WORDS
from etude.recipes.email_search.mail import Mail
from etude.recipes.email_search.tools import ANSWER, READ, SEARCH
from etude.rollout.messages import Message

I_DONT_KNOW = "I don't know"
MOST_SEARCHES, MOST_READS = 3, 3

# How often the searcher: reads on although it has an answer; searches again rather than open another hit; and, without
# thought: takes a value from a mail that is about something else; gives up.
DOUBT, SEARCHES_AGAIN, MISREADS, GIVES_UP = 0.07, 0.5, 0.25, 0.4
# What it does without thought. Keywords: how often they hold a name, and then one name rather than all; how often a
# further word, which is one that such a mail may hold, one that is in every mail, or else any of the question's. Hits:
# how often it opens the first.
NAMES, ONE_NAME, FURTHER, HINTS, USELESS, FIRST_HIT = 0.75, 0.65, 0.35, 0.5, 0.2, 0.5
# With thought: all the names, and how often a word that such a mail may hold.
THOUGHTFUL_HINT = 0.75


@dataclass(frozen=True, slots=True)
class Step:
    """A call, and what the tool showed: "" for the final answer."""

    call: ToolCall
    shown: str


@dataclass(frozen=True, slots=True)
class Trace:
    """An attempt at a question; the last step is the answer."""

    question: QuestionRow
    steps: tuple[Step, ...]

    def messages(self) -> tuple[Message, ...]:
        """The conversation after the prompt: assistant and tool messages in turn, ending with the answer."""
        messages = []
        for step in self.steps:
            messages.append(Message("assistant", "", (step.call,)))
            if step.shown:
                messages.append(Message("tool", step.shown, call_id=step.call.id, name=step.call.name))
        return tuple(messages)


def clumsy_traces(
    corpus: Corpus,
    seed: int,
    *,
    skill: float,
    results: int,
    say_results: bool = False,
    rounds: int = 1,
    view: View = FULL,
) -> Iterator[Trace]:
    """`rounds` attempts at each question of the corpus, in random order.

    skill: how often a move is made with thought, from 0 to 1 (which still cannot know what a mail is called, nor what
    is in a mail of which a hit shows nothing). results: how
    many hits a search shows. say_results: whether the call says so (`max_results`), which is needed unless `results` is
    what the tool shows anyway. view: how it is shown. Raises ConfigError for a skill outside 0 to 1.
    """
    if not 0 <= skill <= 1:
        raise ConfigError(f"skill must be from 0 to 1, not {skill}")
    rng = Random(f"traces {seed}")
    office = _Office(corpus, results, say_results, view)
    for _ in range(rounds):
        for row in rng.sample(corpus.questions, len(corpus.questions)):
            yield Trace(row, _Attempt(office, row, skill, rng).steps())


class _Office:
    """What all attempts share: the mails, their search, and the ability to read."""

    def __init__(self, corpus: Corpus, results: int, say_results: bool, view: View) -> None:
        self.wording = load_wording()
        self.reader = Reader(self.wording)
        self.index = MailIndex(corpus.mails)
        self.results, self.say_results, self.view = results, say_results, view


class _Attempt:
    def __init__(self, office: _Office, row: QuestionRow, skill: float, rng: Random) -> None:
        self._office, self._row, self._skill, self._rng = office, row, skill, rng
        self._story, self._attribute, self._key, _ = office.reader.question(row)
        self._steps: list[Step] = []
        self._tried: set[frozenset[str]] = set()
        self._read: list[MailRow] = []

    def steps(self) -> tuple[Step, ...]:
        self._finish(*self._look())
        return tuple(self._steps)

    def _look(self) -> tuple[str, list[str]]:
        """Search and read; returns the answer with its sources."""
        for _ in range(MOST_SEARCHES):
            hits = self._search()
            while hits and len(self._read) < MOST_READS:
                mail = self._open(hits)
                if mail is None:
                    break
                if self._facts(mail):
                    if self._happens(DOUBT):
                        continue
                    return self._best_known()
                wrong = self._misread(mail)
                if wrong and self._happens(MISREADS * (1 - self._skill)):
                    return wrong, [mail["message_id"]]
                if self._happens(SEARCHES_AGAIN):
                    break
            if any(map(self._facts, self._read)) or self._happens(GIVES_UP * (1 - self._skill)):
                break
        return self._best_known()

    def _best_known(self) -> tuple[str, list[str]]:
        """What the newest of the mails says that were read, if they say anything of it."""
        for mail in sorted(self._read, key=lambda mail: mail["date"], reverse=True):
            for reading in self._facts(mail):
                return reading.written, [mail["message_id"]]
        return I_DONT_KNOW, []

    # ------------------------------------------------------------------ the three tools

    def _search(self) -> list[str]:
        """Ids of what was found and not yet read."""
        keywords = self._new_keywords()
        row, office = self._row, self._office
        found = office.index.search(
            keywords,
            inbox=row["inbox"],
            visible_until=row["query_date"],
            limit=office.results,
            snippet_words=office.view.snippet_words,
        )
        arguments: dict[str, Any] = {"keywords": keywords}
        if office.say_results:
            arguments["max_results"] = office.results
        self._step(SEARCH, arguments, office.view.hits(found))
        read = {mail["message_id"] for mail in self._read}
        return [hit.message_id for hit in found if hit.message_id not in read]

    def _open(self, hits: list[str]) -> MailRow | None:
        """Read one of the hits, and take it off them; None to search again rather than read any of them."""
        telling = [name for name in hits if self._facts(self._office.index.mails[name])]
        if self._happens(self._skill):
            if not telling:
                return None
            chosen = max(telling, key=lambda name: self._office.index.mails[name]["date"])
        else:
            chosen = hits[0] if self._happens(FIRST_HIT) else self._rng.choice(hits)
        hits.remove(chosen)
        mail = self._office.index.mails[chosen]
        self._read.append(mail)
        self._step(READ, {"message_id": chosen}, self._office.view.mail(_as_mail(mail)))
        return mail

    def _finish(self, answer: str, sources: list[str]) -> None:
        self._step(ANSWER, {"answer": answer, "sources": sources}, "")

    def _step(self, tool: str, arguments: dict[str, Any], shown: str) -> None:
        self._steps.append(Step(ToolCall(tool, arguments, f"call_{len(self._steps)}"), shown))

    # ------------------------------------------------------------------ what it thinks

    def _happens(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _facts(self, mail: MailRow) -> list[Reading]:
        """What the mail says of what is asked; what it says itself before what it quotes."""
        readings = self._office.reader.facts(mail, self._story, self._key)
        asked = [reading for reading in readings if reading.attribute == self._attribute.name]
        return sorted(asked, key=lambda reading: reading.quoted)

    def _misread(self, mail: MailRow) -> str:
        """Anything in the mail that looks like an answer, or "" if nothing does."""
        pattern = rf"(?<![\w$:,.-])(?:{self._attribute.kind.pattern})(?!\w|[:.,-]\d)"
        found = [match.group() for match in re.finditer(pattern, mail["body"])]
        if self._attribute.kind.answer_type in ("person", "text"):
            common = self._office.wording.vocabulary
            found = [text for text in found if common.isdisjoint(words(text))]
        return self._rng.choice(found) if found else ""

    def _new_keywords(self) -> list[str]:
        """Keywords that were not tried yet, if that is easily found."""
        for _ in range(10):
            keywords = self._keywords()
            if frozenset(keywords) not in self._tried:
                break
        self._tried.add(frozenset(keywords))
        return keywords

    def _keywords(self) -> list[str]:
        """Some of the question's names, and some other word: of the question, or one that such mails may hold."""
        rng = self._rng
        said = list(dict.fromkeys(re.findall(r"\w+", self._row["question"])))
        names = [word for word in said if any(word in part.split() for part in self._key)]
        if names and self._happens(self._skill):
            hint = [rng.choice(self._attribute.hints)] if self._happens(THOUGHTFUL_HINT) else []
            return list(dict.fromkeys(rng.sample(names, len(names)) + hint))
        chosen: list[str] = []
        if names and self._happens(NAMES):
            chosen = rng.sample(names, 1 if self._happens(ONE_NAME) else len(names))
        if not chosen or self._happens(FURTHER):
            chosen.append(self._further_word([word for word in said if word not in names]))
        return list(dict.fromkeys(chosen))

    def _further_word(self, said: list[str]) -> str:
        """A keyword that is no name; said: the question's words that are none."""
        useless = [word for word in said if word.lower() in STOP_WORDS]
        others = [word for word in said if word.lower() not in STOP_WORDS]
        if self._happens(HINTS):
            return self._rng.choice(self._attribute.hints)
        return self._rng.choice(useless if (useless and self._happens(USELESS)) or not others else others)


def _as_mail(mail: MailRow) -> Mail:
    people = (tuple(mail["to"]), tuple(mail["cc"]), tuple(mail["bcc"]))
    return Mail(
        mail["message_id"], mail["date"], mail["subject"], mail["from"], *people, mail["body"], mail["file_name"]
    )
