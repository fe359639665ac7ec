"""Everything that reaches or leaves one inbox: stories until it is three quarters full, and noise for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from etude.recipes.email_demo.cast import Cast
from etude.recipes.email_demo.drafts import Claim, Draft, Writer, workday
from etude.recipes.email_demo.noise import Noise
from etude.recipes.email_demo.stories import Teller
from etude.recipes.email_demo.values import Value
from etude.recipes.email_demo.wording import Story, Wording

# How often a new story is of which sort.
SHARES: Mapping[str, float] = {
    "project": 0.20, "meeting": 0.28, "purchase": 0.16, "trip": 0.09,
    "own_trip": 0.05, "staff": 0.09, "event": 0.06, "contract": 0.07,
}  # fmt: skip
STORY_SHARE, ROUNDUP_SHARE, NEWSLETTER_SHARE = 0.74, 0.02, 0.06
MAILS_PER_DAY, SHORTEST_SPAN = 6, 60
ROUNDUP_AGE = timedelta(days=21)


class Inbox:
    """The mails of one person over a stretch of time that grows with their number."""

    def __init__(self, wording: Wording, cast: Cast, start: datetime, mails: int, rng: Random) -> None:
        self._wording, self._cast, self._rng = wording, cast, rng
        self._start, self._days = start, max(SHORTEST_SPAN, mails // MAILS_PER_DAY)
        self._writer = Writer(wording, cast, rng)
        self._teller = Teller(wording, cast, self._writer, rng)
        self._told: set[tuple[str, ...]] = set()

    def drafts(self, mails: int) -> list[Draft]:
        """Exactly that many mails, no two with the same subject, body and sender."""
        drafts = _Distinct()
        while len(drafts.kept) < round(STORY_SHARE * mails):
            story = self._wording.stories[self._rng.choices(list(SHARES), list(SHARES.values()))[0]]
            start = self._some_day()
            for draft in self._teller.tell(story, self._new_key(story, start), start):
                drafts.add(draft)
        # The end of the last story may be too much: later mails depend on earlier ones, never the other way round.
        del drafts.kept[round(STORY_SHARE * mails) :]
        for roundup in self._roundups(drafts.kept, round(ROUNDUP_SHARE * mails)):
            drafts.add(roundup)
        noise = Noise(self._wording, self._cast, self._writer, self._rng)
        while len(drafts.kept) < mails:
            letter = self._rng.random() < NEWSLETTER_SHARE / (1 - STORY_SHARE - ROUNDUP_SHARE)
            drafts.add((noise.newsletter if letter else noise.talk)(self._writer.at_work(workday(self._some_day()))))
        return drafts.kept

    def _some_day(self) -> datetime:
        return self._start + timedelta(days=self._rng.randrange(self._days))

    def _new_key(self, story: Story, start: datetime) -> tuple[str, ...]:
        """What the story is about: mostly names in use, in a combination that was not told yet."""
        for attempt in range(100):
            newness = 0.3 if attempt < 20 else 1.0
            key = tuple(self._key_part(part, start, newness) for part in story.key)
            if (story.name, *key) not in self._told:
                self._told.add((story.name, *key))
                return key
        raise AssertionError(f"no new key for a story of kind {story.name}")

    def _key_part(self, part: str, start: datetime, newness: float) -> str:
        rng, new = self._rng, self._rng.random() < newness
        match part:
            case "year":
                return str((start + timedelta(days=45)).year)
            case "person":
                return self._cast.new_person().full if new else self._cast.some_person()
            case "project" | "company" | "city":
                return self._cast.fresh(part) if new else self._cast.some(part)
            case _:
                return rng.choice(list(self._wording.lists[part]))

    def _roundups(self, drafts: Sequence[Draft], count: int) -> Iterator[Draft]:
        """Mails that say again what held at that time, of several stories at once."""
        told = sorted((draft for draft in drafts if draft.claims), key=lambda draft: draft.when)
        for _ in range(count):
            when = self._writer.at_work(workday(self._some_day()))
            current: dict[tuple[str, ...], dict[str, Value]] = {}
            fresh: dict[tuple[str, ...], None] = {}
            for draft in told:
                if draft.when >= when:
                    break
                for claim in draft.claims:
                    if not claim.quoted and not claim.subject[0].startswith("own_"):
                        current.setdefault(claim.subject, {})[claim.attribute] = claim.value
                        if draft.when > when - ROUNDUP_AGE:
                            fresh[claim.subject] = None
            if len(fresh) >= 2:
                chosen = self._rng.sample(list(fresh), min(len(fresh), self._rng.randint(2, 3)))
                yield self._roundup(when, {subject: current[subject] for subject in chosen})

    def _roundup(self, when: datetime, facts: Mapping[tuple[str, ...], Mapping[str, Value]]) -> Draft:
        names = [text for subject, values in facts.items() for text in (*subject, *(v.text for v in values.values()))]
        parties = self._writer.people(from_owner=0.1, but=names)
        claims: list[Claim] = []
        sentences: list[str] = []
        for subject, values in facts.items():
            sentence, stated = self._teller.restate(self._wording.stories[subject[0]], subject[1:], values)
            sentences.append(sentence)
            claims += [Claim(subject, name, values[name]) for name in sorted(stated)]
        said = " ".join(sentences)
        body = self._writer.letter(parties, self._writer.phrase("roundup"), said, ending=0.1)
        return Draft(when, parties, self._writer.phrase("subject"), body, said, tuple(claims))


class _Distinct:
    """Drafts that an importer keeps: it takes the first of several with the same subject, body and sender."""

    def __init__(self) -> None:
        self.kept: list[Draft] = []
        self._seen: set[tuple[str, str, str]] = set()

    def add(self, draft: Draft) -> None:
        content = (draft.subject, draft.body, draft.parties.sender.address)
        if content not in self._seen:
            self._seen.add(content)
            self.kept.append(draft)
