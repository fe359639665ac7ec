"""Reference values: where a scenario holds them, how they are written as an answer, and what looks like them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.grading.hedges import says_i_dont_know

# Names under which data sets keep the right answer; the earlier, the surer.
CONVENTIONAL = (
    "answer", "reference", "gold", "expected", "target", "label", "solution", "ground_truth", "correct_answer",
    "gold_answer", "expected_answer", "reference_answer", "expected_output", "correct", "output", "answers",
    "references", "golds", "targets", "labels", "solutions", "canonical_solution", "completion", "result", "truth",
)  # fmt: skip
_CONVENTIONAL_PART = re.compile(r"answer|reference|gold|expected|target|label|solution|truth|correct", re.IGNORECASE)
_OTHER_FORMS = re.compile(r"alias|alternative|accept|also|variant|synonym|must|allowed", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+")
_WORD = re.compile(r"\w+")
MOST_LISTED = 200  # items of a list that are looked at


def is_empty(value: Any) -> bool:
    """Nothing to answer with, or a reference that says that there is none: then declining is right."""
    if value is None or (isinstance(value, str | Sequence | Mapping) and len(value) == 0):
        return True
    if isinstance(value, str):
        return not value.strip() or value.strip().lower() in _NOTHING or says_i_dont_know(value)
    return isinstance(value, Sequence) and all(is_empty(item) for item in value)


_NOTHING = frozenset({"none", "n/a", "na", "null", "unknown", "unanswerable", "no answer", "not available"})


def scenarios_by_split(environment: Environment) -> dict[str, list[Scenario]]:
    """Splits that have scenarios."""
    return {split: list(environment.scenarios_of(split)) for split, rows in environment.scenarios.items() if rows}


def as_text(value: Any) -> str:
    """One way to write a value as the text of an answer."""
    return renderings(value)[0]


def renderings(value: Any) -> list[str]:
    """Ways to write a value as the text of an answer, the plainest first; at least one."""
    if isinstance(value, str):
        return [value]
    if value is None:
        return [""]
    if isinstance(value, bool):
        return [str(value), str(value).lower(), "yes" if value else "no", str(int(value))]
    if isinstance(value, Mapping):
        lines = "\n".join(f"{key}: {as_text(item)}" for key, item in value.items())
        return [_json(value), lines, ", ".join(as_text(item) for item in value.values())]
    if isinstance(value, Sequence):
        items = [as_text(item) for item in value[:MOST_LISTED]]
        return list(dict.fromkeys([", ".join(items), *items[:1], _json(list(value)), "\n".join(items)]))
    return [str(value)]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def normal(text: str) -> str:
    """One form for texts that differ in case, spaces and punctuation."""
    return " ".join(_WORD.findall(text.casefold()))


def number_of(value: Any) -> float | None:
    """A value that is nothing but a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip().strip("$€£% ")):
        return float(value.strip().strip("$€£% ").replace(",", ""))
    return None


def leaves(value: Any) -> Iterator[Any]:
    """The plain values inside lists and mappings."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value[:MOST_LISTED]:
            yield from leaves(item)
    else:
        yield value


def items_of(value: Any) -> list[Any]:
    """The answers in a value: items of a list (mappings whole), else the value itself."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [inner for item in value[:MOST_LISTED] for inner in items_of(item)]
    return [value]


def decoy(like: Any, number: int) -> Any:
    """An invented answer of the same kind; another for each number from 0."""
    if isinstance(like, Mapping):
        return {key: decoy(item, number) for key, item in like.items()}
    held = number_of(like)
    if held is None:
        return f"option {number}"
    made = held * 2 + 1001 * (1 + number)
    plain: int | float = int(made) if held.is_integer() else round(made + 0.37, 2)
    return str(plain) if isinstance(like, str) else plain


def same(text: str, value: Any) -> bool:
    """Whether an answer is one of the forms of a value: then it is no wrong answer."""
    forms = [*renderings(value), *(as_text(leaf) for leaf in leaves(value))]
    if any(normal(text) == normal(form) for form in forms):
        return True
    number = number_of(text)
    return number is not None and any(number_of(form) == number for form in forms)


def overlap(text: str, value: Any) -> float:
    """The share of the value's words that a text holds, from 0 to 1; of a list, of the item held best."""
    held = words(text)
    parts = [*leaves(value), value] if isinstance(value, Sequence | Mapping) and not isinstance(value, str) else [value]
    shares = []
    for part in parts:
        wanted = words(as_text(part))
        if wanted:
            shares.append(len(wanted & held) / len(wanted))
    return max(shares, default=0.0)


def fields_of(scenario: Scenario, prompt_key: str | None) -> list[str]:
    """Paths ("answer", "meta.answer") of the fields that may hold a reference: conventional names first."""
    paths: list[str] = []
    for key, value in scenario.items():
        if key in ("id", "split", prompt_key):
            continue
        paths.append(key)
        if isinstance(value, Mapping):
            paths += [f"{key}.{inner}" for inner in value if isinstance(inner, str) and "." not in inner]
    return sorted(paths, key=_rank)


def is_conventional(path: str) -> bool:
    return _rank(path) <= len(CONVENTIONAL)


def _rank(path: str) -> int:
    name = path.rpartition(".")[2].lower()
    if name in CONVENTIONAL:
        return CONVENTIONAL.index(name)
    return len(CONVENTIONAL) + (0 if _CONVENTIONAL_PART.search(name) and not _OTHER_FORMS.search(name) else 1)


def value_at(scenario: Mapping[str, Any], path: str) -> Any:
    """The value at a path; None where there is none."""
    if path in scenario:
        return scenario[path]
    outer, _, inner = path.partition(".")
    value = scenario.get(outer)
    return value.get(inner) if isinstance(value, Mapping) else None


def accepted(scenario: Scenario, reference: Any) -> list[Any]:
    """The reference and all other values of the scenario that may be right as well (aliases, other conventional
    fields): an answer that equals one of them is no wrong answer."""
    others = [value for key, value in scenario.items() if _OTHER_FORMS.search(key) or is_conventional(key)]
    return [reference, *others]


def wrong_values(right: Sequence[Any], others: Sequence[Any], count: int = 3, *, invent: bool = True) -> list[Any]:
    """Values of the reference's own kind that are wrong here: other scenarios' references, else invented ones.
    right: as `accepted` gives it. others: references of other scenarios. invent: else only theirs."""
    reference = right[0]
    found: dict[str, Any] = {}
    for value in others:
        if not is_empty(value) and not _may_be_right(value, right):
            found.setdefault(as_text(value), value)
    # Those that share least with the right answer first: what shares much of it may rightly earn much.
    ordered = sorted(found.values(), key=lambda value: overlap(as_text(value), reference))
    if len(ordered) >= count or not invent:
        return ordered[:count]
    return (ordered + [value for value in _invented(reference) if not _may_be_right(value, right)])[:count]


def distractors(scenario: Scenario, reference: Any) -> list[Any]:
    """Items of the scenario's own lists (options, choices) that hold the reference: the likeliest wrong answers."""
    found: list[Any] = []
    for value in scenario.values():
        items = list(value.values()) if isinstance(value, Mapping) else value
        if isinstance(items, list | tuple) and value is not reference and 1 < len(items) <= MOST_LISTED:
            texts = [normal(as_text(item)) for item in items]
            if not isinstance(reference, list) and normal(as_text(reference)) in texts:
                found += [item for item in items if normal(as_text(item)) != normal(as_text(reference))]
    return found


def _may_be_right(value: Any, right: Sequence[Any]) -> bool:
    text = as_text(value)
    if any(same(text, each) for each in right):
        return True
    if isinstance(value, Sequence) and not isinstance(value, str):  # lists that share an item are partly right
        mine = {normal(as_text(item)) for item in leaves(value)}
        return any(normal(as_text(leaf)) in mine for each in right for leaf in leaves(each))
    number = number_of(text)
    close = [number_of(leaf) for each in right for leaf in leaves(each)]
    return number is not None and any(
        each is not None and abs(each - number) <= 0.25 * max(abs(each), abs(number)) for each in close
    )


def _invented(reference: Any) -> list[Any]:
    if isinstance(reference, bool):
        return [not reference]
    number = number_of(reference)
    if number is not None:
        values = [number * 3 + 17, -number - 1001, number * 40 + 90001]
        made = [int(each) if float(each).is_integer() else round(each, 2) for each in values]
        return [str(each) for each in made] if isinstance(reference, str) else list(made)
    if isinstance(reference, Mapping):
        return [{key: (_invented(item) or [None])[0] for key, item in reference.items()}]
    if isinstance(reference, Sequence) and not isinstance(reference, str):
        return [[(_invented(item) or ["qux"])[0] for item in reference] or ["qux"]]
    if normal(as_text(reference)) in ("yes", "no", "true", "false"):
        opposite = {"yes": "no", "no": "yes", "true": "false", "false": "true"}[normal(as_text(reference))]
        return [opposite]
    length = max(1, len(as_text(reference).split()))
    stock = ["Velmora", "Tandeck", "quibble", "Ostrander", "plinth", "Garvane", "moot", "Hexley", "brindle", "Corvast"]
    return [" ".join(stock[(start + i) % len(stock)] for i in range(length)) for start in (0, 3)]
