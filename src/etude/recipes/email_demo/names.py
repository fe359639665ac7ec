"""Invented names, put together from syllables. Each split has its own: no name of one is a name of another.

All splits use all syllables, so a model that has read the names of one split can spell those of the others, and only
a combination of first syllable, middle and ending is new to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import Literal, get_args

Split = Literal["pretrain", "train", "validation", "test"]
NameKind = Literal["given", "surname", "company", "project", "city", "house"]

SPLITS: tuple[Split, ...] = get_args(Split)
NAME_KINDS: tuple[NameKind, ...] = get_args(NameKind)

FIRST = (
    "Ba", "Be", "Bo", "Bra", "Bre", "Bri", "Bro", "Da", "De", "Do", "Dra", "Dre", "Fa", "Fe", "Fi", "Flo", "Ga",
    "Go", "Gra", "Ha", "He", "Ho", "Hu", "Ja", "Jo", "Ka", "Ke", "Ko", "La", "Le", "Lo", "Lu", "Ma", "Me", "Mi",
    "Mo", "Na", "Ne", "No", "Pa", "Pe", "Po", "Pra", "Ra", "Re", "Ro", "Ru", "Sa", "Se", "So", "Sta", "Sto",
    "Ta", "Te", "To", "Tra", "Tri", "Va", "Ve", "Vo", "Wa", "We", "Wo", "Za", "Ze", "Zo",
)  # fmt: skip
MIDDLE = (
    "l", "r", "n", "m", "v", "d", "t", "s", "k", "b", "g", "p", "ll", "nd", "nt", "st", "rd", "lt",
)  # fmt: skip
ENDING: Mapping[NameKind, tuple[str, ...]] = {
    "given": ("a", "o", "in", "en", "ia", "ara", "iel", "ulo", "eth", "una"),
    "surname": ("ano", "esko", "ardt", "ulin", "ovic", "otti", "idge", "orne", "anko", "ulay", "etz", "ink"),
    "company": ("ax", "ix", "ex", "orp", "ico", "uma", "urn", "exo", "otec", "aris", "anto", "ilux"),
    "project": ("ora", "ela", "ith", "ium", "essa", "ado", "ima", "yra", "oro", "ulu", "anda", "isk"),
    "city": ("burg", "ford", "ham", "port", "stad", "ville", "mouth", "field", "wick", "holm", "dale", "bury"),
    "house": ("ette", "osa", "ique", "avia", "andra", "onia", "erra", "ummer", "oria", "ello", "ivar", "enza"),
}
# A city's ending begins with a consonant, which only these carry well.
CITY_MIDDLE = ("l", "r", "n", "m", "s")

# What the syllables spell by chance, but is a word or a brand already.
TAKEN = frozenset(
    (
        "Begin", "Broken", "Fedex", "Fedora", "Felix", "Hello", "Kotex", "Latex", "Lurex", "Pandora",
        "Relax", "Remax", "Return", "Rolex", "Seven", "Taken", "Telex",
    )
)  # fmt: skip

# Of ten combinations, which go to whom. Pretraining needs the most variety.
_SHARE: Mapping[int, Split] = dict(enumerate(("pretrain",) * 4 + ("train",) * 2 + ("validation",) * 2 + ("test",) * 2))


@lru_cache(maxsize=1)
def _all_names() -> Mapping[tuple[NameKind, Split], tuple[str, ...]]:
    taken = set(TAKEN)
    names: dict[tuple[NameKind, Split], list[str]] = {(kind, split): [] for kind in NAME_KINDS for split in SPLITS}
    for kind in NAME_KINDS:
        parts = (FIRST, CITY_MIDDLE if kind == "city" else MIDDLE, ENDING[kind])
        for (i, first), (j, middle), (k, ending) in product(*map(enumerate, parts)):
            name = first + middle + ending
            if name not in taken:  # two combinations may spell the same name: the first one owns it
                taken.add(name)
                names[kind, _SHARE[(i + 3 * j + 7 * k) % 10]].append(name)
    return MappingProxyType({key: tuple(found) for key, found in names.items()})


def names_of(kind: NameKind, split: Split) -> tuple[str, ...]:
    """All names of a kind that a split may use (700 to 5,000), in a fixed order."""
    return _all_names()[kind, split]
