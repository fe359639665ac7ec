"""Mails in the making: who writes what to whom, which facts it states, and how the text is put together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from etude.recipes.email_demo.cast import Cast, Person
from etude.recipes.email_demo.values import Value
from etude.recipes.email_demo.wording import Wording


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact as a mail states it. `subject`: the story's name and key. quoted: it stands in a quoted older mail."""

    subject: tuple[str, ...]
    attribute: str
    value: Value
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Parties:
    sender: Person
    to: tuple[Person, ...]
    cc: tuple[Person, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A mail without its id. said: the sentences that matter, which a reply may quote."""

    when: datetime
    parties: Parties
    subject: str
    body: str
    said: str = ""
    claims: tuple[Claim, ...] = ()


class Writer:
    """Puts mails together: greeting, a few words around the point, signature. All in the style of one office."""

    def __init__(self, wording: Wording, cast: Cast, rng: Random) -> None:
        self._wording, self._cast, self._rng = wording, cast, rng

    def phrase(self, name: str) -> str:
        return self._rng.choice(self._wording.phrases[name])

    def people(self, *, from_owner: float, direct: bool = False, but: Collection[str] = ()) -> Parties:
        """Who writes to whom, the owner of the inbox among them.

        from_owner: how often the owner writes. direct: else the owner is the first that it is written to, not one of
        several. but: full names of people who do not write this, because it is about them.
        """
        rng, owner = self._rng, self._cast.owner
        first, second, third = rng.sample([person for person in self._cast.colleagues if person.full not in but], 3)
        cc = (third,) if rng.random() < 0.2 else ()
        if rng.random() < from_owner:
            return Parties(owner, (first,), cc)
        if not direct and rng.random() < 0.1:
            return Parties(first, (second,), (owner,))
        return Parties(first, (owner, second) if not direct and rng.random() < 0.2 else (owner,), cc)

    def letter(self, parties: Parties, *text: str, ending: float = 0.45) -> str:
        """A whole body around the text, of which parts may be empty. ending: how often a polite sentence follows."""
        rng = self._rng
        lines = []
        if rng.random() < 0.55:
            lines.append(rng.choice(self._wording.phrases["greeting"]).format(given=parties.to[0].given))
        last = self.phrase("ending") if rng.random() < ending else ""
        lines.append(" ".join(part for part in (*text, last) if part))
        if rng.random() < 0.7:
            signature = parties.sender.full if rng.random() < 0.15 else parties.sender.given
            lines.append(f"{self.phrase('closing')}\n{signature}" if rng.random() < 0.6 else signature)
        return "\n\n".join(lines)

    def soon_after(self, when: datetime) -> datetime:
        """Later on the same day."""
        return when + timedelta(minutes=self._rng.randint(8, 280))

    def at_work(self, day: datetime) -> datetime:
        """A moment in the working hours of that day."""
        return day.replace(hour=self._rng.randint(7, 17), minute=self._rng.randint(0, 59), second=0)


def workday(day: datetime) -> datetime:
    """The day, or the Monday after it."""
    return day + timedelta(days=7 - day.weekday() if day.weekday() >= 5 else 0)
