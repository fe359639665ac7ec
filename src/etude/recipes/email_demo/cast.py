"""Who and what there is around one inbox: colleagues, partners, projects, cities. Names are handed out once each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from etude.errors import ConfigError
from etude.recipes.email_demo.names import NAME_KINDS, NameKind, Split, names_of


@dataclass(frozen=True, slots=True)
class Person:
    given: str
    surname: str
    domain: str

    @property
    def full(self) -> str:
        return f"{self.given} {self.surname}"

    @property
    def address(self) -> str:
        return f"{self.given}.{self.surname}@{self.domain}".lower()


def domain_of(company: str) -> str:
    """A domain that cannot exist (RFC 2606), so that no mail of the demo names a real address."""
    return f"{company.lower()}.example"


class Cast:
    """The names of one inbox. Everything is drawn from `rng`; a name means one thing only within the inbox."""

    def __init__(self, split: Split, company: str, mails: int, causes: Sequence[str], rng: Random) -> None:
        self._rng = rng
        self._split = split
        self._unused: dict[NameKind, Iterator[str]] = {kind: self._shuffled(kind) for kind in NAME_KINDS}
        self._known: dict[str, list[str]] = {kind: [] for kind in NAME_KINDS}
        self._causes = causes
        self.domain = domain_of(company)
        self.owner = self.new_person()
        self.colleagues = [self.new_person() for _ in range(8 + mails // 60)]

    def _shuffled(self, kind: NameKind) -> Iterator[str]:
        names = list(names_of(kind, self._split))
        self._rng.shuffle(names)
        return iter(names)

    def fresh(self, kind: NameKind) -> str:
        """A name that was not used before in this inbox. Raises ConfigError when none is left."""
        name = next(self._unused[kind], None)
        if name is None:
            raise ConfigError(
                f"the {self._split} split has only {len(names_of(kind, self._split))} names of kind {kind!r}, "
                "too few for an inbox of this size: ask for fewer mails per inbox"
            )
        self._known[kind].append(name)
        return name

    def some(self, kind: NameKind) -> str:
        """A name in use, or a new one if there is none yet."""
        return self._rng.choice(self._known[kind]) if self._known[kind] else self.fresh(kind)

    def new_person(self, domain: str | None = None) -> Person:
        """Given names recur (there are two of most in a large firm), surnames do not."""
        given = self._rng.choice(names_of("given", self._split))
        return Person(given, self.fresh("surname"), domain or self.domain)

    def new_name(self, part: str) -> str:
        """A name for a part of a key that nothing in this inbox has yet."""
        return self.new_person().full if part == "person" else self.fresh(_name_kind(part))

    def some_person(self) -> str:
        return self._rng.choice(self.colleagues).full

    def cause(self) -> str:
        return self._rng.choice(self._causes)


def _name_kind(part: str) -> NameKind:
    return next(kind for kind in NAME_KINDS if kind == part)
