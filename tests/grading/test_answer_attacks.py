"""The answer check against every question on the real mail: right answers pass, five kinds of cheating do not.

The attacks find dates, names and amounts with their own plain patterns, so that a value which the check cannot see is
still in the attack. The few attacks that pass are listed in answer_exceptions.md beside this file, with reasons.
"""

from __future__ import annotations

import json
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etude.grading.answer import check_answer

Question = Mapping[str, Any]
SPLITS = ("train", "validation", "test")

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATES = re.compile(
    rf"\b(?:{MONTHS}|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.? \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?"
    r"|\b\d{1,2}/\d{1,2}(?:/\d{2,4})?\b"
)
TIMES = re.compile(r"\b\d{1,2}:\d\d(?: ?[ap]\.?m\.?)?|\b\d{1,2} ?[ap]\.?m\b", re.IGNORECASE)
AMOUNTS = re.compile(r"\$ ?[\d,.]*\d(?: ?(?:million|billion|mm?|k)\b)?|\b\d[\d,]*(?:\.\d+)?\b", re.IGNORECASE)
CODES = re.compile(r"\b(?=\w*\d)[A-Z0-9][\w-]{3,}\b")
PERSONS = re.compile(r"\b[A-Z][a-z]+(?: [A-Z]\.?)?(?: [A-Z][a-z]+)+\b")
NAMES = re.compile(rf"{PERSONS.pattern}|\b[A-Z]{{2,}}\b")
PATTERNS = {
    "date": DATES,
    "time": TIMES,
    "money": AMOUNTS,
    "number": AMOUNTS,
    "code": CODES,
    "person": PERSONS,
    "list": NAMES,
    "place": NAMES,
    "text": NAMES,
}


@dataclass(frozen=True)
class Case:
    attack: str
    question: Question
    answer: str


def load_questions(folder: Path, split: str) -> list[Question]:
    return [json.loads(line) for line in (folder / f"questions_{split}.jsonl").open()]


def load_bodies(folder: Path, questions: list[Question]) -> dict[str, str]:
    wanted = {mail for question in questions for mail in question["message_ids"]}
    with lzma.open(folder / "arte28_inboxes.jsonl.xz", "rt") as lines:
        mails = (json.loads(line) for line in lines)
        return {mail["message_id"]: mail["body"] for mail in mails if mail["message_id"] in wanted}


def found(pattern: re.Pattern[str], text: str) -> list[str]:
    return list(dict.fromkeys(" ".join(match.group().split()) for match in pattern.finditer(text)))


def same(first: str, second: str) -> bool:
    """Whether one says no more than the other, letter by letter."""
    one, two = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (first, second))
    return not one or not two or one in two or two in one


def rivals_of(question: Question, body: str, others: list[Question]) -> list[str]:
    """Wrong answers of the same type and shape: one from the same mail, one that is another question's answer."""
    kind = question["answer_type"]
    here = found(PATTERNS[kind], body)
    there = [other["answer"] for other in others if other["answer_type"] == kind]
    return [*first_rival(question, here), *first_rival(question, there)]


def first_rival(question: Question, candidates: list[str]) -> list[str]:
    right = [question["answer"], *question["aliases"]]
    said = question["question"].lower()
    for value in candidates:
        shaped = has_digit(value) == has_digit(question["answer"])
        if (
            shaped
            and value.lower() not in said
            and not is_right(question, value)
            and not any(same(value, form) for form in right)
        ):
            return [value]
    return []


def has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def is_right(question: Question, text: str) -> bool:
    """The data's own definition of right (README of the data), alone."""
    text = " ".join(text.lower().split())
    return all(
        any(re.search(rf"(?<![a-z0-9])(?<!\d[.,]){re.escape(item)}(?![a-z0-9])(?![.,]\d)", text) for item in items)
        for items in question["must"]
    )


def mail_attacks(question: Question, body: str) -> Iterator[Case]:
    yield Case("the whole mail", question, body)
    lists = {"dates": found(DATES, body), "names": found(NAMES, body), "amounts": found(AMOUNTS, body)}
    for kind, values in lists.items():
        if len(values) > 1:
            yield Case(f"all {kind}", question, ", ".join(values))
    kind = found(PATTERNS[question["answer_type"]], body)
    if len(kind) > 1:
        yield Case("all of the kind asked for", question, "\n".join(f"- {value}" for value in kind))
        yield Case("the answer, then all of its kind", question, ", ".join([question["answer"], *kind]))


def hedge_attacks(question: Question, rivals: list[str]) -> Iterator[Case]:
    right = question["answer"]
    for rival in rivals:
        for first, second in ((right, rival), (rival, right)):
            for form in ("{} or {}", "Either {} or {}", "It is {} or {}.", "maybe {}, maybe {}"):
                yield Case("A or B", question, form.format(first, second))
            for form in ("{}, {}", "{} / {}", "{}; {}", "{} and {}", "{}\n{}"):
                yield Case("A, B", question, form.format(first, second))


DENIALS = (
    "It is not {}", "Not {}", "not {}.", "{} is wrong", "{} is incorrect.", "Anything but {}", "It isn't {}.",
    "It was never {}", "It’s definitely not {}", "{}? No.", "The answer is other than {}", "No, {} is false.",
)  # fmt: skip
IGNORANCE = (
    "{}. I don't know", "I don't know. {}", "I don't know, {}", "{} - I do not know", "I am not sure, maybe {}",
    "{}, but I'm not sure", "I couldn't find it; perhaps {}", "Unknown. Possibly {}", "{} (I don’t know)", "idk {}",
)  # fmt: skip


def said_attacks(question: Question) -> Iterator[Case]:
    yield from (Case("denied", question, form.format(question["answer"])) for form in DENIALS)
    yield from (Case("with I don't know", question, form.format(question["answer"])) for form in IGNORANCE)


def attacks_on(questions: list[Question], bodies: Mapping[str, str]) -> Iterator[Case]:
    for index, question in enumerate(questions):
        others = questions[index + 1 :] + questions[:index]
        body = "\n".join(bodies[mail] for mail in question["message_ids"])
        yield from mail_attacks(question, body)
        yield from hedge_attacks(question, rivals_of(question, body, others))
        yield from said_attacks(question)


WRAPPERS = (
    "The answer is {answer}.",
    "It was {answer}, according to the mail from Jim Steffes.",
    "According to the email from Jeff Dasovich on May 3, 2001, it is {answer}.",
    "**{answer}**",
    "Answer: {answer}",
    "I searched the mails, and found that it is {answer}.",
    "Based on the message, the answer is {answer}.",
    "I think it's {answer}.",
    "{answer} (source: the message from Louise Kitchen)",
    'The answer to "{question}" is {answer}.',
)
SAMPLE = 12  # the fast test attacks every twelfth question; `make acceptance` attacks all


@pytest.fixture(scope="module")
def questions(enron_dir: Path) -> list[Question]:
    return [question for split in SPLITS for question in load_questions(enron_dir, split)]


@pytest.fixture(scope="module")
def bodies(enron_dir: Path, questions: list[Question]) -> dict[str, str]:
    return load_bodies(enron_dir, questions)


def test_every_answer_and_alias_is_right(questions: list[Question]) -> None:
    refused = [
        (question["id"], form, check.reason)
        for question in questions
        for form in (question["answer"], *question["aliases"])
        if not (check := check_answer(question, form)).correct
    ]
    assert len(questions) == 1434
    assert refused == []


def assert_wrapped_answers_pass(questions: list[Question]) -> None:
    for wrapper in WRAPPERS:
        answers = [wrapper.format(answer=q["answer"], question=q["question"].rstrip("?")) for q in questions]
        passed = sum(check_answer(q, answer).correct for q, answer in zip(questions, answers, strict=True))
        assert passed >= 0.98 * len(questions), (wrapper, passed, len(questions))


def passing(cases: Iterable[Case]) -> tuple[dict[str, float], set[tuple[str, str]]]:
    """Share of attacks refused, by kind; and (kind, question id) of those that pass."""
    tried: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    exceptions: set[tuple[str, str]] = set()
    for case in cases:
        tried[case.attack] += 1
        if check_answer(case.question, case.answer).correct:
            passed[case.attack] += 1
            exceptions.add((case.attack, case.question["id"]))
    return {attack: 1 - passed[attack] / count for attack, count in tried.items()}, exceptions


def listed_exceptions() -> set[tuple[str, str]]:
    """Those in the table of answer_exceptions.md. "A, B" is held to a rate alone."""
    table = Path(__file__).with_name("answer_exceptions.md").read_text()
    return set(re.findall(r"^\| ([^|]+?) \| ([a-z]+-[0-9]+) \|", table, re.MULTILINE))


def test_wrapped_answers_pass_on_a_sample(questions: list[Question]) -> None:
    assert_wrapped_answers_pass(questions[::SAMPLE])


def test_attacks_fail_on_a_sample(questions: list[Question], bodies: Mapping[str, str]) -> None:
    rates, exceptions = passing(attacks_on(questions[::SAMPLE], bodies))
    assert {each for each in exceptions if each[0] != "A, B"} <= listed_exceptions()
    assert rates["A, B"] >= 0.95, rates


@pytest.mark.acceptance
def test_wrapped_answers_pass(questions: list[Question]) -> None:
    assert_wrapped_answers_pass(questions)


@pytest.mark.acceptance
def test_at_least_98_percent_of_each_attack_fail(questions: list[Question], bodies: Mapping[str, str]) -> None:
    rates, exceptions = passing(attacks_on(questions, bodies))
    assert {each for each in exceptions if each[0] != "A, B"} == listed_exceptions()
    assert all(rate >= (0.97 if attack == "A, B" else 0.98) for attack, rate in rates.items()), rates
    assert {rates[attack] for attack in ("the whole mail", "A or B", "denied", "with I don't know")} == {1.0}, rates
