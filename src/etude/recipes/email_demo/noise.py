"""Mails without a fact that anyone asks about: small talk, announcements, newsletters."""

from __future__ import annotations

from datetime import datetime
from random import Random

from etude.recipes.email_demo.cast import Cast, Person, domain_of
from etude.recipes.email_demo.drafts import Draft, Parties, Writer
from etude.recipes.email_demo.values import WEEKDAYS
from etude.recipes.email_demo.wording import Wording


class Noise:
    """Writes what fills an inbox."""

    def __init__(self, wording: Wording, cast: Cast, writer: Writer, rng: Random) -> None:
        self._wording, self._cast, self._writer, self._rng = wording, cast, writer, rng
        self._publishers = [cast.fresh("company") for _ in range(3)]

    def talk(self, when: datetime) -> Draft:
        parties = self._writer.people(from_owner=0.25)
        subject, body = self._rng.choice(self._wording.talk)
        fillings = noise_fillings(self._rng) | {"given": self._rng.choice(self._cast.colleagues).given}
        text = body.write(self._rng, fillings)
        return Draft(when, parties, subject.write(self._rng, fillings), self._writer.letter(parties, text, ending=0.2))

    def newsletter(self, when: datetime) -> Draft:
        rng, texts = self._rng, self._wording.newsletter
        company = rng.choice(self._publishers)
        fillings = {"company": company, "number": str(rng.randint(20, 400))}
        lines = [template.write(rng, noise_fillings(rng)) for template in rng.sample(texts["lines"], rng.randint(4, 7))]
        body = "\n\n".join(
            (
                rng.choice(texts["opening"]).write(rng, fillings),
                "\n".join(f"- {line}" for line in lines),
                rng.choice(texts["ending"]).write(rng, fillings),
            )
        )
        sender = Person(company, "News", domain_of(company))
        subject = rng.choice(texts["titles"]).write(rng, fillings)
        return Draft(when, Parties(sender, (self._cast.owner,)), subject, body)


def noise_fillings(rng: Random) -> dict[str, str]:
    return {"weekday": rng.choice(WEEKDAYS[:5]), "number": str(rng.randint(2, 40))}
