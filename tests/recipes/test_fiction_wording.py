"""The texts of the fictional company: whatever is written can be read back, and nothing else reads as a fact."""

from __future__ import annotations

import re
from datetime import date
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.recipes.email_demo.names import FIRST, NAME_KINDS, SPLITS, names_of
from etude.recipes.email_demo.noise import noise_fillings
from etude.recipes.email_demo.values import VALUE_KINDS, Value, ordinal
from etude.recipes.email_demo.verify import words
from etude.recipes.email_demo.wording import LISTED, STORIES, Story, Template, load_wording

WORDING = load_wording()
EACH_STORY = pytest.mark.parametrize("name", STORIES)


class _Names:
    """Names for values, without an inbox."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def some_person(self) -> str:
        return f"{self.rng.choice(names_of('given', 'train'))} {self.rng.choice(names_of('surname', 'train'))}"

    def new_name(self, part: str) -> str:
        return self.some_person() if part == "person" else self.some(part)

    def some(self, kind: str) -> str:
        return self.rng.choice(names_of(kind, "train"))  # type: ignore[arg-type]

    def cause(self) -> str:
        return self.rng.choice(list(WORDING.lists["cause"]))


def fillings(story: Story, template: Template, rng: Random) -> dict[str, str]:
    names, filled = _Names(rng), {}
    for slot in sorted(template.slots):
        if slot in LISTED:
            filled[slot] = rng.choice(list(WORDING.lists[slot]))
        elif slot == "year":
            filled[slot] = str(rng.randint(2012, 2030))
        elif slot in story.key:
            filled[slot] = names.new_name(slot)
        else:
            kind = story.attributes[slot.removeprefix("old_")].kind
            filled[slot] = kind.write(kind.draw(rng, date(2024, 5, 14), names), rng)
    return filled


@EACH_STORY
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_every_sentence_reads_back_as_what_was_written(name: str, seed: int) -> None:
    story = WORDING.stories[name]
    rng = Random(seed)
    asked = [t for a in story.attributes.values() for t in (*a.asks, *a.unseen)]
    for template in (*story.subjects, *story.says, *story.moves, *story.chat, *asked):
        filled = fillings(story, template, rng)
        written = template.write(rng, filled)
        read = template.read(written)
        assert read is not None, written
        assert {slot: text.lower() for slot, text in read.items()} == {s: t.lower() for s, t in filled.items()}


@EACH_STORY
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_sentence_states_one_thing_only(name: str, seed: int) -> None:
    story = WORDING.stories[name]
    rng = Random(seed)
    for template in (*story.says, *story.moves):
        written = template.write(rng, fillings(story, template, rng))
        assert re.search(r"[.!?]\s", written) is None, "a statement is one sentence"
        readers = [other for other in (*story.says, *story.moves) if other.read(written) is not None]
        assert {story.states(other) for other in readers} == {story.states(template)}, written


@EACH_STORY
def test_every_attribute_can_be_stated_changed_and_asked_with_the_key_named(name: str) -> None:
    story = WORDING.stories[name]
    for attribute in story.attributes.values():
        for texts in (story.says, story.moves) if attribute.moves else (story.says,):
            assert any(story.states(t) == {attribute.name} and story.names_key(t) for t in texts), attribute.name
        assert len(attribute.asks) >= 4
        assert len(attribute.unseen) >= 2
        assert all(story.names_key(template) for template in (*attribute.asks, *attribute.unseen))
        held = {word for t in (*story.says, *story.moves) if attribute.name in t.slots for word in words(t.text)}
        assert held.issuperset(attribute.hints), "a hint is a word of the mails"


def test_what_is_said_besides_states_no_fact() -> None:
    rng = Random(1)
    said = [text for texts in WORDING.phrases.values() for text in texts]
    said += [template.write(rng, fillings(s, template, rng)) for s in WORDING.stories.values() for template in s.chat]
    for _, body in (*WORDING.talk, *WORDING.announce):
        said.append(body.write(rng, noise_fillings(rng) | {"given": "Tara"}))
    statements = [t for story in WORDING.stories.values() for t in (*story.says, *story.moves)]
    for sentence in (sentence for text in said for sentence in re.split(r"(?<=[.!?])\s+", text)):
        assert not any(template.read(sentence) for template in statements), sentence


def test_unseen_questions_have_other_templates_of_words_that_training_has() -> None:
    asks = [template for s in WORDING.stories.values() for a in s.attributes.values() for template in a.asks]
    unseen = [template for s in WORDING.stories.values() for a in s.attributes.values() for template in a.unseen]
    mails = [template for s in WORDING.stories.values() for template in (*s.subjects, *s.says, *s.moves, *s.chat)]
    known = {word for template in (*asks, *mails) for word in words(template.text)}
    assert {word for template in unseen for word in words(template.text)} - known == set()
    assert {template.text for template in unseen}.isdisjoint(template.text for template in asks)


def test_the_vocabulary_is_small() -> None:
    assert len(WORDING.vocabulary) < 1500


def test_names_are_many_and_no_two_splits_share_one() -> None:
    for kind in NAME_KINDS:
        owners = {split: set(names_of(kind, split)) for split in SPLITS}
        assert min(len(names) for names in owners.values()) >= 700
        for split, names in owners.items():
            others = {
                name for other in SPLITS if other != split for kinds in NAME_KINDS for name in names_of(kinds, other)
            }
            assert names.isdisjoint(others)
            assert {first for first in FIRST if any(name.startswith(first) for name in names)} == set(FIRST)


def test_no_name_is_an_everyday_word() -> None:
    names = {name.lower() for kind in NAME_KINDS for split in SPLITS for name in names_of(kind, split)}
    assert names.isdisjoint(WORDING.vocabulary)


@pytest.mark.parametrize("written", ["14 May", "May 14", "Tuesday 14 May", "Tuesday, May 14"])
def test_a_date_reads_the_same_however_it_is_written(written: str) -> None:
    kind = VALUE_KINDS["near_date"]
    assert re.fullmatch(kind.pattern, written)
    assert kind.read(written) == "14 May"


@pytest.mark.parametrize(
    ("kind", "value", "accepted"),
    [
        ("time", Value("3:00 pm"), ["3:00 pm", "3:00pm", "3:00 p.m", "15:00", "3:00", "3 pm", "3pm", "3 p.m"]),
        ("time", Value("12:15 pm"), ["12:15 pm", "12:15pm", "12:15 p.m", "12:15"]),
        ("money", Value("$12,500"), ["12,500", "12500"]),
        ("person", Value("Balo Tavetz"), ["tavetz"]),
        ("venue", Value("room 214"), ["room 214", "214"]),
        ("hotel", Value("Hotel Tosella"), ["hotel tosella", "tosella"]),
        ("job_code", Value("KR-4417"), ["kr-4417", "kr4417", "kr 4417"]),
        ("percent", Value("12 percent"), ["12"]),
        ("cause", Value("a broken pump"), ["a broken pump", "broken pump"]),
    ],
)
def test_which_forms_of_a_value_are_right(kind: str, value: Value, accepted: list[str]) -> None:
    assert VALUE_KINDS[kind].accepted(value) == accepted


def test_dates_are_accepted_in_the_usual_forms() -> None:
    accepted = VALUE_KINDS["near_date"].accepted(Value("3 June", date(2024, 6, 3)))
    assert {"3 june", "june 3", "3rd june", "june 3rd", "3rd of june", "jun 3", "6/3", "2024-06-03"} <= set(accepted)


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (22, "22nd")],
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text
