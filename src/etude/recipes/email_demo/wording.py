"""Sentences with slots: written for mails and questions, and read back from them by the validity checker.

The texts are in `wording/*.yaml`. A template is literal text with `{slot}`s and free choices `[a|b|]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from random import Random
from typing import Any

import yaml

from etude.recipes.email_demo.values import MONTHS, NAME, PERSON, VALUE_KINDS, WEEKDAYS, ValueKind

STORIES = ("project", "meeting", "purchase", "trip", "own_trip", "staff", "event", "contract")
LISTED = ("occasion", "item", "event")

_WORDS_OF_VALUES = frozenset(
    word.lower()
    for word in (
        *("am", "pm", "percent", "code", "room", "hall", "house", "club", "hotel", "inn", "dollars", "wrote"),
        *("re", "fwd", "the", "front", "office", "news", "example", *MONTHS, *WEEKDAYS),
    )
)
_PIECE = re.compile(r"\{(\w+)\}|\[([^\]]*)\]")


@dataclass(frozen=True)
class Template:
    """One sentence with slots. `patterns` maps each slot's name to the regular expression of its fillings."""

    text: str
    patterns: Mapping[str, str]

    @cached_property
    def slots(self) -> frozenset[str]:
        return frozenset(match[1] for match in _PIECE.finditer(self.text) if match[1])

    def write(self, rng: Random, fillings: Mapping[str, str]) -> str:
        """The sentence with its slots filled and its choices made, beginning with a capital."""

        def fill(match: re.Match[str]) -> str:
            return fillings[match[1]] if match[1] else rng.choice(match[2].split("|"))

        text = " ".join(_PIECE.sub(fill, self.text).split()).replace(" ?", "?").replace(" .", ".")
        return text[0].upper() + text[1:]

    def read(self, sentence: str) -> dict[str, str] | None:
        """The fillings of the slots, if the sentence is an instance of this template."""
        match = self._regex.fullmatch(sentence)
        return match.groupdict() if match else None

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        pattern, end = "", 0
        for match in _PIECE.finditer(self.text):
            pattern += _literal(self.text[end : match.start()])
            if match[1]:
                pattern += f"(?P<{match[1]}>{self.patterns[match[1]]})"
            else:
                pattern += f"(?:{'|'.join(map(_literal, match[2].split('|')))})"
            end = match.end()
        return re.compile(pattern + _literal(self.text[end:]))


def _literal(text: str) -> str:
    # An empty choice takes a space with it, so the spaces between words are not counted.
    return r"\s*".join(re.escape(part) for part in re.split(r"\s+", text))


@dataclass(frozen=True)
class Attribute:
    """Something that mails state of a story. stated, moves: how probable it is that mails state it, and change it.

    asks: question templates of all splits; unseen: of validation and test only. hints: words that such mails hold.
    """

    name: str
    kind: ValueKind
    stated: float
    moves: float
    hints: tuple[str, ...]
    asks: tuple[Template, ...]
    unseen: tuple[Template, ...]


@dataclass(frozen=True)
class Story:
    """A thread of events about one key (for instance project and occasion), and the sentences that tell it.

    says: first statements, reminders and round-ups; moves: changes; chat: names the key and states nothing.
    """

    name: str
    key: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    subjects: tuple[Template, ...]
    says: tuple[Template, ...]
    moves: tuple[Template, ...]
    chat: tuple[Template, ...]

    def names_key(self, template: Template) -> bool:
        return template.slots.issuperset(self.key)

    def states(self, template: Template) -> frozenset[str]:
        return template.slots.intersection(self.attributes)


@dataclass(frozen=True)
class Wording:
    """All texts. lists: everyday things, each with its other words for questions; phrases: openings, endings, ...
    vocabulary: the lower-case words of letters that mails and questions consist of, apart from names."""

    stories: Mapping[str, Story]
    lists: Mapping[str, Mapping[str, tuple[str, ...]]]
    phrases: Mapping[str, tuple[str, ...]]
    talk: tuple[tuple[Template, Template], ...]
    announce: tuple[tuple[Template, Template], ...]
    newsletter: Mapping[str, tuple[Template, ...]]
    vocabulary: frozenset[str]

    def listed_name(self, kind: str, written: str) -> str:
        """The mails' word for an everyday thing, given any of its words in any case."""
        low = written.lower()
        return next(word for word, others in self.lists[kind].items() if low == word or low in others)

    def attribute(self, kind: str) -> tuple[Story, Attribute]:
        """Of a question's kind, for instance "meeting.time". Raises KeyError if there is none."""
        story, _, attribute = kind.partition(".")
        return self.stories[story], self.stories[story].attributes[attribute]


@lru_cache(maxsize=1)
def load_wording() -> Wording:
    """The texts of the package, read once."""
    raw_lists = _load("lists")
    lists = {kind: {word: tuple(others) for word, others in raw_lists[kind].items()} for kind in (*LISTED, "cause")}
    phrases = {name: tuple(texts) for name, texts in raw_lists.items() if name not in lists}
    patterns = _key_patterns(lists)
    noise = _load("noise")
    raw_stories = {name: _load(name) for name in STORIES}
    return Wording(
        stories={name: _story(name, raw, patterns) for name, raw in raw_stories.items()},
        lists=lists,
        phrases=phrases,
        talk=_pairs(noise["talk"]),
        announce=_pairs(noise["announce"]),
        newsletter={part: _templates(texts, {}) for part, texts in noise["newsletter"].items()},
        vocabulary=frozenset(_words((raw_lists, noise, *raw_stories.values()))) | _WORDS_OF_VALUES,
    )


def _load(name: str) -> dict[str, Any]:
    return yaml.safe_load(files(__package__).joinpath("wording", f"{name}.yaml").read_text(encoding="utf-8"))


def _words(texts: Any) -> Iterator[str]:
    """All words of nested texts, the left sides of lists among them."""
    if isinstance(texts, str):
        yield from re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", texts).lower())
    elif isinstance(texts, Mapping):
        for name, nested in texts.items():
            yield from _words(name)
            yield from _words(nested)
    elif isinstance(texts, Sequence):
        for nested in texts:
            yield from _words(nested)


def _key_patterns(lists: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, str]:
    patterns = {"project": NAME, "company": NAME, "city": NAME, "person": PERSON, "year": r"\d{4}"}
    for kind in LISTED:
        words = [word for word, others in lists[kind].items() for word in (word, *others)]
        patterns[kind] = f"(?i:{'|'.join(map(re.escape, words))})"
    patterns["cause"] = "|".join(map(re.escape, lists["cause"]))
    return patterns


def _story(name: str, raw: Mapping[str, Any], patterns: Mapping[str, str]) -> Story:
    known: dict[str, str] = {part: patterns[part] for part in raw["key"]}
    for attribute, settings in raw["attributes"].items():
        pattern = VALUE_KINDS[settings["type"]].pattern or patterns[settings["type"]]
        known |= {attribute: pattern, f"old_{attribute}": pattern}
    attributes = {
        attribute: Attribute(
            attribute,
            replace(VALUE_KINDS[settings["type"]], pattern=known[attribute]),
            settings["stated"],
            settings["moves"],
            tuple(settings["hints"]),
            _templates(raw["asks"][attribute], known),
            _templates(raw["unseen"][attribute], known),
        )
        for attribute, settings in raw["attributes"].items()
    }
    texts = {part: _templates(raw[part], known) for part in ("subjects", "says", "moves", "chat")}
    return Story(name, tuple(raw["key"]), attributes, **texts)


def _templates(texts: Iterable[str], patterns: Mapping[str, str]) -> tuple[Template, ...]:
    return tuple(Template(text, patterns) for text in texts)


def _pairs(pairs: Iterable[Sequence[str]]) -> tuple[tuple[Template, Template], ...]:
    return tuple((Template(subject, {}), Template(body, {})) for subject, body in pairs)
