"""How a story comes about in mails: first statements, changes, replies that quote, reminders, resent mails, chatter.

A later statement of a fact always holds against an earlier one, and a quotation states nothing new. The events of a
story are on different days, and a value that was replaced never comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

from etude.recipes.email_demo.cast import Cast
from etude.recipes.email_demo.drafts import Claim, Draft, Parties, Writer, workday
from etude.recipes.email_demo.values import Value, draw_other
from etude.recipes.email_demo.wording import Attribute, Story, Template, Wording

# How often a statement is answered, sent again, repeated days later, or reaches the inbox as a forwarded mail.
REPLY, RESENT, REMINDER, FORWARD = 0.25, 0.07, 0.15, 0.08
OWNER_WRITES = 0.15
VAGUE_SUBJECT = 0.55


@dataclass(frozen=True, slots=True)
class _Event:
    """On one day some attributes get values. `old` are those that they had before; empty for first statements."""

    when: datetime
    new: Mapping[str, Value]
    old: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class _Telling:
    """A story about one key. direct: it speaks to the owner of the inbox ("your flight")."""

    story: Story
    key: tuple[str, ...]

    @property
    def subject(self) -> tuple[str, ...]:
        return (self.story.name, *self.key)

    @property
    def direct(self) -> bool:
        return self.story.name.startswith("own_")


class Teller:
    """Tells the stories of one inbox."""

    def __init__(self, wording: Wording, cast: Cast, writer: Writer, rng: Random) -> None:
        self._wording, self._cast, self._writer, self._rng = wording, cast, writer, rng

    def tell(self, story: Story, key: tuple[str, ...], start: datetime) -> list[Draft]:
        """All mails of a story about `key`, in order of time."""
        telling = _Telling(story, key)
        events = self._events(telling, start)
        drafts: list[Draft] = []
        for number, event in enumerate(events):
            statement = self._statement(telling, event)
            drafts += [statement, *self._echoes(telling, event, statement, events[number + 1 :])]
        drafts += [self._chatter(telling, start) for _ in range(self._rng.choice((0, 0, 1, 1, 2, 3)))]
        return sorted(drafts, key=lambda draft: draft.when)

    def restate(self, story: Story, key: tuple[str, ...], values: Mapping[str, Value]) -> tuple[str, frozenset[str]]:
        """A sentence that names the key and holds some of the values; and which of them. "" if there is none."""
        usable = [t for t in story.says if story.names_key(t) and story.states(t) and story.states(t) <= values.keys()]
        if not usable:
            return "", frozenset()
        template = self._rng.choice(usable)
        return self._write(_Telling(story, key), template, values, {}), story.states(template)

    # ------------------------------------------------------------------ what happens

    def _events(self, telling: _Telling, start: datetime) -> list[_Event]:
        rng, attributes = self._rng, telling.story.attributes
        history: dict[str, list[Value]] = {}
        events: list[_Event] = []
        earliest = start
        for day, names in sorted(self._plan(telling.story, start)):
            when = self._writer.at_work(workday(max(day, earliest)))
            earliest = when + timedelta(days=1)
            old = {name: history[name][-1] for name in names if name in history}
            new: dict[str, Value] = {}
            for name in names:
                taken = [*telling.key, *(value.text for values in history.values() for value in values)]
                new[name] = draw_other(attributes[name].kind, rng, when.date(), self._cast, taken)
                history.setdefault(name, []).append(new[name])
            events.append(_Event(when, new, old))
        return events

    def _plan(self, story: Story, start: datetime) -> list[tuple[datetime, tuple[str, ...]]]:
        """Days, each with the attributes that are stated for the first time, or those that change."""
        rng = self._rng
        stated = [a for a in story.attributes.values() if rng.random() < a.stated] or [
            rng.choice(list(story.attributes.values()))
        ]
        rng.shuffle(stated)
        plan: list[tuple[datetime, tuple[str, ...]]] = []
        day = start
        since: dict[str, datetime] = {}
        while stated:
            size = rng.choice((1, 2, 2, 3))
            chosen, stated = stated[:size], stated[size:]
            plan.append((day, tuple(a.name for a in chosen)))
            since |= dict.fromkeys((a.name for a in chosen), day)
            day += timedelta(days=rng.randint(1, 9))
        for attribute in [a for name, a in story.attributes.items() if name in since]:
            plan += self._moves(story, attribute, since)
        return plan

    def _moves(
        self, story: Story, attribute: Attribute, since: Mapping[str, datetime]
    ) -> list[tuple[datetime, tuple[str, ...]]]:
        rng = self._rng
        together = [story.states(t) for t in story.moves if attribute.name in story.states(t)]
        moves: list[tuple[datetime, tuple[str, ...]]] = []
        day = since[attribute.name]
        while len(moves) < 2 and rng.random() < (attribute.moves if not moves else 0.25):
            day += timedelta(days=rng.randint(1, 10))
            names = rng.choice(together)
            if any(name not in since or since[name] >= day for name in names):
                names = frozenset({attribute.name})
            moves.append((day, tuple(sorted(names))))
        return moves

    # ------------------------------------------------------------------ what is written of it

    def _statement(self, telling: _Telling, event: _Event) -> Draft:
        rng, writer = self._rng, self._writer
        parties = self._parties(telling, event)
        subject, names_key = self._subject(telling)
        said = self._sentences(telling, event.new, event.old, names_key)
        claims = tuple(Claim(telling.subject, name, value) for name, value in event.new.items())
        if not telling.direct and rng.random() < FORWARD:
            writers = [person for person in self._cast.colleagues if person not in (parties.sender, *parties.to)]
            forwarded = f"{writer.phrase('forward')}\n\n{rng.choice(writers).full} wrote:\n{said}"
            return Draft(
                event.when, parties, f"Fwd: {subject}", writer.letter(parties, forwarded, ending=0), said, claims
            )
        opening = writer.phrase("change" if event.old else "opening") if rng.random() < 0.6 else ""
        return Draft(event.when, parties, subject, writer.letter(parties, opening, said), said, claims)

    def _echoes(self, telling: _Telling, event: _Event, statement: Draft, later: Sequence[_Event]) -> list[Draft]:
        """Mails that say the same again: resent, quoted in a reply, or as a reminder before anything of it changes."""
        rng, writer = self._rng, self._writer
        echoes = []
        if rng.random() < RESENT:
            body = writer.letter(statement.parties, writer.phrase("resend"), statement.said)
            echoes.append(replace(statement, when=writer.soon_after(event.when), body=body))
        if rng.random() < REPLY:
            echoes.append(self._reply(telling, statement))
        if rng.random() < REMINDER:
            day = workday(event.when + timedelta(days=rng.randint(1, 8)))
            changes = [other.when for other in later if other.new.keys() & event.new.keys()]
            if not changes or day.date() < changes[0].date():
                parties = self._parties(telling, event)
                said = self._sentences(telling, event.new, {}, names_key=False)
                body = writer.letter(parties, writer.phrase("reminder"), said)
                subject, _ = self._subject(telling)
                echoes.append(Draft(writer.at_work(day), parties, subject, body, said, statement.claims))
        return echoes

    def _reply(self, telling: _Telling, statement: Draft) -> Draft:
        writer, owner = self._writer, self._cast.owner
        asked = statement.parties
        if asked.sender == owner:
            parties = Parties(asked.to[0], (owner,))
        else:
            others = [person for person in (*asked.to, *asked.cc) if person != owner]
            replier = self._rng.choice([owner, *others]) if not telling.direct else owner
            parties = Parties(replier, (asked.sender,), () if replier == owner else (owner,))
        quote = f"\n\n{asked.sender.full} wrote:\n> {statement.said}"
        body = writer.letter(parties, writer.phrase("reply"), ending=0.15) + quote
        subject = statement.subject if statement.subject.startswith("Re: ") else f"Re: {statement.subject}"
        claims = tuple(Claim(c.subject, c.attribute, c.value, quoted=True) for c in statement.claims)
        return Draft(writer.soon_after(statement.when), parties, subject, body, "", claims)

    def _chatter(self, telling: _Telling, start: datetime) -> Draft:
        writer, rng = self._writer, self._rng
        parties = writer.people(from_owner=0.0 if telling.direct else 0.25, direct=telling.direct, but=telling.key)
        said = self._write(telling, rng.choice(telling.story.chat), {}, {})
        when = writer.at_work(workday(start + timedelta(days=rng.randint(-4, 40))))
        opening = writer.phrase("hello") if rng.random() < 0.4 else ""
        return Draft(when, parties, self._subject(telling)[0], writer.letter(parties, opening, said))

    def _parties(self, telling: _Telling, event: _Event) -> Parties:
        about = {*telling.key, *(value.text for value in (*event.new.values(), *event.old.values()))}
        share = 0.0 if telling.direct else OWNER_WRITES
        return self._writer.people(from_owner=share, direct=telling.direct, but=about)

    def _subject(self, telling: _Telling) -> tuple[str, bool]:
        """A subject line, and whether it names the whole key."""
        if self._rng.random() < VAGUE_SUBJECT:
            return self._writer.phrase("subject"), False
        template = self._rng.choice(telling.story.subjects)
        return self._write(telling, template, {}, {}), telling.story.names_key(template)

    def _sentences(self, telling: _Telling, new: Mapping[str, Value], old: Mapping[str, Value], names_key: bool) -> str:
        """Sentences that state all of `new`; the first names the key unless something before it does."""
        story = telling.story
        left, sentences = set(new), []
        while left:
            fitting = [
                t
                for t in (story.moves if old else story.says)
                if story.states(t) and story.states(t) <= left and (names_key or story.names_key(t))
            ]
            template = self._rng.choice(fitting)
            sentences.append(self._write(telling, template, new, old))
            left -= story.states(template)
            names_key = True
        return " ".join(sentences)

    def _write(self, telling: _Telling, template: Template, new: Mapping[str, Value], old: Mapping[str, Value]) -> str:
        kinds, rng = telling.story.attributes, self._rng
        fillings = dict(zip(telling.story.key, telling.key, strict=True))
        fillings |= {name: kinds[name].kind.write(value, rng) for name, value in new.items()}
        fillings |= {f"old_{name}": kinds[name].kind.write(value, rng) for name, value in old.items()}
        return template.write(rng, fillings)
