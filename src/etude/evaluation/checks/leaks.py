"""What a model is told that it should not be: validation scenarios in training, and the reference in the prompt."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.evaluation.checks.report import Finding, shown
from etude.evaluation.checks.values import as_text, is_empty, leaves, normal, scenarios_by_split, value_at

SHARE = 1 / 3  # of the scenarios, from which a reference in the prompt is no coincidence
_SOURCE = re.compile(
    r"(?:^|_)(?:source|sources|doc|docs|document|url|uri|file|path|passage|context|article|ids?)$", re.I
)
_LONG = 200  # characters from which a field shared between splits is a shared source, whatever its name
_UNIQUE = 0.5  # distinct values a row, from which a field names sources rather than categories
_LABELS = 0.5  # distinct references a scenario, below which they are labels, which a prompt may name
_SHORT_PROMPT = 200  # characters: longer prompts may hold the text that the answer is to be found in
_NAMED = r"(?:answer|reference|gold|expected|solution|target|label|correct|truth|hint|key)"
_ALTERNATIVE = re.compile(r"^[\"'\s]*(?:or\b|/|\||,\s*\w+\s*(?:,|or\b))", re.I)
_TASK_TEXT = re.compile(
    r"[:\n\"'“‘`]|\b(?:text|sentence|word|following|below)\b", re.I
)  # the prompt brings its own text
_CHOICES = re.compile(r"\b(?:or|either|options?|choices?|choose|one of|which of|between)\b|[|]|^\s*[(]?[A-Da-d][).:]",
                      re.I | re.M)  # fmt: skip


@dataclass(frozen=True)
class Told:
    """What the model reads before its first turn."""

    instructions: str
    prompt: str


def between_splits(environment: Environment, told: Mapping[str, Told], path: str) -> Iterator[Finding]:
    """The same scenario, or the same source, in two splits. path: the reference's field, or empty."""
    splits = scenarios_by_split(environment)
    for one, other in combinations(splits, 2):
        yield from _same_scenario(one, other, splits, told, path)
        yield from _same_source(one, other, splits)


def _same_scenario(
    one: str, other: str, splits: Mapping[str, Sequence[Scenario]], told: Mapping[str, Told], path: str
) -> Iterator[Finding]:
    def key(scenario: Scenario) -> tuple[str, str, str]:
        held = value_at(scenario, path) if path else {k: v for k, v in scenario.items() if k not in ("id", "split")}
        text = told[scenario.id]
        return normal(text.prompt) or text.prompt, normal(text.instructions), normal(as_text(held))

    first = {key(each): each for each in splits[one] if each.id in told}
    both = [(first[key(each)], each) for each in splits[other] if each.id in told and key(each) in first]
    if both:
        left, right = both[0]
        yield Finding(
            "fail",
            "leak.scenario",
            f"{len(both)} of {len(splits[other])} scenarios of {other} are also in {one} (same prompt, same reference)",
            f"Take them out of one split: what is measured on {other} is otherwise memory.",
            right.id,
            {one: left.id, other: right.id, "prompt": shown(told[right.id].prompt)},
            len(both),
            len(splits[other]),
        )


def _same_source(one: str, other: str, splits: Mapping[str, Sequence[Scenario]]) -> Iterator[Finding]:
    for name in dict.fromkeys(key for row in splits[one] for key in row):
        if name in ("id", "split"):
            continue
        left, right = (_values(splits[split], name) for split in (one, other))
        if not left or not right or not (_SOURCE.search(name) or _mostly_long(left)):
            continue
        rows = sum(not is_empty(row.get(name)) for row in splits[one])
        shared = sorted(left.keys() & right.keys())
        if shared and len(left) >= _UNIQUE * rows and rows > 1:
            yield Finding(
                "warn",
                "leak.source",
                f"{one} and {other} share {len(shared)} values of {name!r}",
                "Split by source (document, conversation, mail), so that no source is trained on and measured with.",
                right[shared[0]],
                {"value": shown(shared[0], 120), one: left[shared[0]], other: right[shared[0]]},
                len(shared),
                len(right),
            )


def _values(rows: Iterable[Scenario], name: str) -> dict[str, str]:
    """Values of a field (of its items, where it is a list), each with the id of a scenario."""
    return {
        str(leaf): row.id for row in rows for leaf in leaves(row.get(name)) if not is_empty(leaf) and leaf is not True
    }


def _mostly_long(values: Mapping[str, str]) -> bool:
    return sum(len(value) >= _LONG for value in values) > len(values) / 2


def are_labels(references: Sequence[Any]) -> bool:
    """Whether references are a few labels that repeat, rather than each scenario's own."""
    texts = Counter(normal(as_text(each)) for each in references)
    return len(references) > 2 and len(texts) <= _LABELS * len(references)


def in_prompt(scenarios: Sequence[Scenario], told: Mapping[str, Told], references: Mapping[str, Any]) -> list[Finding]:
    """The reference in what the model reads first. "answer: X" is a leak; X alone in a short prompt that offers no
    choice is suspicious."""
    named: list[tuple[Scenario, str]] = []
    plain: list[tuple[Scenario, str]] = []
    known = [each for each in scenarios if each.id in told and not is_empty(references.get(each.id))]
    labels = are_labels([references[each.id] for each in known])
    for scenario in known:
        text = f"{told[scenario.id].instructions}\n{told[scenario.id].prompt}"
        value = references[scenario.id]
        if place := named_in(text, value):
            named.append((scenario, place))
        elif not labels and (place := _held_in(told[scenario.id], value)):
            plain.append((scenario, place))
    found = []
    if len(named) >= max(1, SHARE * len(known)):
        found.append(_prompt_finding("fail", "names the reference as the answer", named, len(known)))
    if len(plain) >= max(2, 0.5 * len(known)):
        found.append(_prompt_finding("warn", "holds the reference", plain, len(known)))
    return found


def _prompt_finding(severity: Any, what: str, found: Sequence[tuple[Scenario, str]], of: int) -> Finding:
    scenario, place = found[0]
    return Finding(
        severity,
        "leak.prompt",
        f"what the model reads before its first turn {what}",
        "Take it out of instructions and prompt: the model would learn to copy it, and nothing else.",
        scenario.id,
        {"text": place},
        len(found),
        of,
    )


def named_in(text: str, value: Any, names: Iterable[str] = ()) -> str:
    """Where a text says "answer: X" (or a name of `names` and then X) and offers no alternative; else empty."""
    for form in _forms(value):
        name = "|".join([_NAMED, *map(re.escape, names)])
        pattern = rf"(?:{name})\w*[\"'`*)\]]*\s*(?:\bis\b|:|=|->|\(|\[)+[\s\"'`*\[(]*{re.escape(form)}(?!\w)"
        for match in re.finditer(pattern, text, re.IGNORECASE):
            if not _ALTERNATIVE.search(text[match.end() : match.end() + 40]):
                return text[max(0, match.start() - 30) : match.end() + 20].strip()
    return ""


def _held_in(told: Told, value: Any) -> str:
    if len(told.prompt) > _SHORT_PROMPT or _CHOICES.search(told.prompt) or _TASK_TEXT.search(told.prompt):
        return ""
    for form in _forms(value):
        if len(form) >= 5 or (form.isdigit() and len(form) >= 3):
            match = re.search(rf"(?<!\w){re.escape(form)}(?!\w)", told.prompt, re.IGNORECASE)
            if match:
                return told.prompt[max(0, match.start() - 30) : match.end() + 30]
    return ""


def _forms(value: Any) -> list[str]:
    if isinstance(value, bool):
        return []
    texts = [as_text(value), *(json.dumps(value, ensure_ascii=False),) * isinstance(value, list | dict)]
    return [text for text in dict.fromkeys(texts) if text.strip() and len(text) < 2000]


def in_tool_specs(environment: Environment, references: Mapping[str, Any]) -> list[Finding]:
    """Descriptions of tools that list the references of many scenarios."""
    values = [value for value in references.values() if not is_empty(value)]
    if are_labels(values):
        return []
    held: dict[str, set[str]] = defaultdict(set)
    distinct = {form for value in values for form in _forms(value)[:1] if len(form) >= 3}
    for spec in environment.tool_specs:
        text = json.dumps(spec, ensure_ascii=False)
        held[spec["function"]["name"]] |= {
            form for form in distinct if re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text)
        }
    return [
        Finding(
            "fail",
            "leak.tool_spec",
            f"the description of the tool {name} holds the references of {len(forms)} scenarios",
            "Take them out of the docstring and the schema; examples there should be of no scenario.",
            evidence={"references": sorted(forms)[:5]},
            seen=len(forms),
            of=len(distinct),
        )
        for name, forms in held.items()
        if len(distinct) >= 4 and len(forms) >= 0.5 * len(distinct)
    ]
