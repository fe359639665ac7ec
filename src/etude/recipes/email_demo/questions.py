"""Questions about one inbox: each about one fact as it stood on some day, or about a fact that no mail gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from random import Random

from etude.errors import ConfigError
from etude.recipes.email_demo.cast import Cast
from etude.recipes.email_demo.drafts import Claim, Draft
from etude.recipes.email_demo.rows import QuestionRow
from etude.recipes.email_demo.values import Value
from etude.recipes.email_demo.wording import LISTED, Attribute, Story, Wording

Subject = tuple[str, ...]

NO_ANSWER_SHARE = 0.1
LATEST_DAYS = 30
OTHER_WORD = 0.5
# A question without an answer asks this often about something that no mail mentions; else about something that is
# mentioned, but not in this respect, or only later.
UNMENTIONED_SHARE = 0.4
# Facts that replaced another come up sooner: that the last mail wins is what has to be learnt.
CHANGED_FIRST = 0.4
# So many rows in a row that were asked before mean that there is hardly anything new to ask.
PATIENCE = 200


@dataclass(frozen=True, slots=True)
class _Fact:
    """A value while it held. mails: those that give it, with their days; the first one set it. changed: it replaced
    another. replaced: the day on which another replaced it."""

    subject: Subject
    attribute: str
    value: Value
    mails: tuple[tuple[str, date], ...]
    changed: bool
    replaced: date | None = None

    def query_days(self) -> list[date]:
        """Days on which one may ask for it; for a day to come, only days before it, if there are any."""
        days = [self.mails[0][1] + timedelta(days=number) for number in range(1, LATEST_DAYS + 1)]
        days = [day for day in days if self.replaced is None or day < self.replaced]
        return [day for day in days if self.value.day and day < self.value.day] or days


class Asker:
    """Makes up the questions of one inbox. drafts: its mails by message id. unseen_share: how many of the questions
    are worded as no training question is."""

    def __init__(
        self, wording: Wording, cast: Cast, drafts: Mapping[str, Draft], unseen_share: float, rng: Random
    ) -> None:
        self._wording, self._cast, self._unseen_share, self._rng = wording, cast, unseen_share, rng
        self._inbox = cast.owner.address
        self._facts: dict[tuple[Subject, str], list[_Fact]] = {}
        self._first_day: dict[Subject, date] = {}
        for message_id, draft in sorted(drafts.items(), key=lambda item: (item[1].when, item[0])):
            for claim in draft.claims:
                self._note(claim, message_id, draft.when.date())

    def ask(self, count: int) -> list[QuestionRow]:
        """That many rows without ids, of all kinds alike often. Raises ConfigError if the inbox has no facts for so
        many questions, even when they are asked in other words and on other days."""
        vain = round(count * NO_ANSWER_SHARE)
        rows = _different(self._answered(), count - vain) + _different(self._unanswered(), vain)
        self._rng.shuffle(rows)
        return rows

    def _note(self, claim: Claim, message_id: str, day: date) -> None:
        self._first_day.setdefault(claim.subject, day)
        facts = self._facts.setdefault((claim.subject, claim.attribute), [])
        if facts and facts[-1].value.text == claim.value.text:
            facts[-1] = replace(facts[-1], mails=(*facts[-1].mails, (message_id, day)))
        elif not claim.quoted:  # a quoted other value is an old one
            if facts:
                facts[-1] = replace(facts[-1], replaced=day)
            facts.append(_Fact(claim.subject, claim.attribute, claim.value, ((message_id, day),), bool(facts)))

    def _answered(self) -> Iterator[QuestionRow]:
        """Round after round one of each kind; when all facts were asked for, from the start again."""
        by_kind: dict[str, list[_Fact]] = {}
        for (subject, attribute), facts in self._facts.items():
            askable = [fact for fact in facts if fact.query_days()]
            by_kind.setdefault(f"{subject[0]}.{attribute}", []).extend(askable)
        while any(by_kind.values()):
            queues = [self._in_turn(facts) for facts in by_kind.values()]
            while queues := [queue for queue in queues if queue]:
                for queue in self._rng.sample(queues, len(queues)):
                    yield self._about(queue.pop())

    def _in_turn(self, facts: list[_Fact]) -> list[_Fact]:
        """Shuffled; the next one is the last of the list."""
        turns = [(self._rng.random() * (CHANGED_FIRST if fact.changed else 1), fact) for fact in facts]
        return [fact for _, fact in sorted(turns, key=lambda turn: turn[0], reverse=True)]

    def _about(self, fact: _Fact) -> QuestionRow:
        story, attribute = self._wording.attribute(f"{fact.subject[0]}.{fact.attribute}")
        day = self._rng.choice(fact.query_days())
        row = self._row(story, attribute, fact.subject[1:], day, how_realistic=0.8)
        row["answer"] = fact.value.text
        row["aliases"] = attribute.kind.other_forms(fact.value)
        row["must"] = [attribute.kind.accepted(fact.value)]
        row["message_ids"] = [fact.mails[0][0]]
        row["also_ids"] = [message_id for message_id, sent in fact.mails[1:] if sent <= day]
        return row

    def _unanswered(self) -> Iterator[QuestionRow]:
        subjects = list(self._first_day)
        while subjects:
            subject = self._rng.choice(subjects)
            story = self._wording.stories[subject[0]]
            attribute = self._rng.choice(list(story.attributes.values()))
            day = self._first_day[subject] + timedelta(days=self._rng.randint(1, LATEST_DAYS))
            if self._rng.random() < UNMENTIONED_SHARE:
                other = self._other_key(story, subject[1:], subjects)
                if (story.name, *other) not in self._first_day:
                    yield self._row(story, attribute, other, day, how_realistic=0.5)
            elif not any(fact.mails[0][1] <= day for fact in self._facts.get((subject, attribute.name), ())):
                yield self._row(story, attribute, subject[1:], day, how_realistic=0.6)

    def _other_key(self, story: Story, key: tuple[str, ...], subjects: list[Subject]) -> tuple[str, ...]:
        """The key with one part exchanged: for a part of another key, or for something that is nowhere."""
        place = self._rng.randrange(len(key))
        if self._rng.random() < 0.5 or story.key[place] in (*LISTED, "year"):
            part = self._rng.choice([subject for subject in subjects if subject[0] == story.name])[1 + place]
        else:
            part = self._cast.new_name(story.key[place])
        return (*key[:place], part, *key[place + 1 :])

    def _row(
        self, story: Story, attribute: Attribute, key: tuple[str, ...], day: date, how_realistic: float
    ) -> QuestionRow:
        """A row without an answer."""
        rng = self._rng
        unseen = rng.random() < self._unseen_share
        template = rng.choice(attribute.unseen if unseen else attribute.asks)
        words = {part: self._spoken(part, text) for part, text in zip(story.key, key, strict=True)}
        return QuestionRow(
            id="",
            inbox=self._inbox,
            question=template.write(rng, words),
            answer="",
            aliases=[],
            must=[],
            answer_type=attribute.kind.answer_type,
            message_ids=[],
            also_ids=[],
            query_date=day.isoformat(),
            how_realistic=how_realistic,
            wording="unseen" if unseen else "seen",
            kind=f"{story.name}.{attribute.name}",
        )

    def _spoken(self, part: str, text: str) -> str:
        """A part of a key as a question names it: everyday things often by another word than in the mails."""
        others = self._wording.lists[part][text] if part in LISTED else ()
        return self._rng.choice(others) if others and self._rng.random() < OTHER_WORD else text


def _different(rows: Iterator[QuestionRow], count: int) -> list[QuestionRow]:
    """`count` rows, no two with the same question on the same day."""
    found: dict[tuple[str, str], QuestionRow] = {}
    in_vain = 0
    while len(found) < count and in_vain < PATIENCE and (row := next(rows, None)) is not None:
        before = len(found)
        found.setdefault((row["question"], row["query_date"]), row)
        in_vain = 0 if len(found) > before else in_vain + 1
    if len(found) < count:
        raise ConfigError(
            f"the mails of an inbox hold facts for about {len(found)} questions, not {count}: "
            "ask for fewer questions, or for more mails per inbox"
        )
    return list(found.values())
