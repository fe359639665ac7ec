"""ToolRL's reward for a turn that is to hold certain tool calls: form and correctness, scored apart.

    R_correct = 6·S/S_max − 3                                 from −3 to 3
    S_max     = 1 + Σ_expected (1 + |parameters|)
    S         = J(names) + Σ_expected, best unused prediction of that name [J(keys) + number of equal values]

J is the Jaccard index of multisets. What cannot be parsed scores −3; where no call is expected, R_correct is 0.
Source: ToolRL (2025), and the article's gate R_format·(R_correct + 3)/6, in which form never buys back a wrong call.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from etude.environment.calls import ToolCall

_TAGS = ("think", "tool_call", "response")
_TAG = re.compile(r"</?(?:think|tool_call|response)>")
_CALLS = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_WORST, _BEST = -3.0, 3.0


@dataclass(frozen=True, slots=True)
class ToolRLScore:
    """format: 0 or 1. correct: from −3 to 3."""

    format: float
    correct: float

    @property
    def sum(self) -> float:
        """ToolRL's own reward, from −3 to 4."""
        return self.format + self.correct

    @property
    def gate(self) -> float:
        """The product, from 0 to 1."""
        return self.format * (self.correct - _WORST) / (_BEST - _WORST)


def toolrl_score(text: str, expected: Sequence[ToolCall], response_expected: bool) -> ToolRLScore:
    """Score one sampled turn, `<think>...</think>` followed by `<tool_call>` with one JSON object a line and/or
    `<response>`. response_expected: whether the reference turn has a response to the user."""
    tags = [tag for tag in _TAGS if tag == "think" or (expected if tag == "tool_call" else response_expected)]
    wanted = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    return ToolRLScore(format=float(_TAG.findall(text) == wanted), correct=_correctness(text, expected))


def _correctness(text: str, expected: Sequence[ToolCall]) -> float:
    if not expected:
        return 0.0
    predicted = _parse_calls(text)
    if predicted is None:
        return _WORST
    best_possible = 1 + sum(1 + len(call.arguments) for call in expected)
    score = _jaccard((call.name for call in expected), (call.name for call in predicted))
    unused = list(predicted)
    for call in expected:
        matches = [(_match(call, other), place) for place, other in enumerate(unused) if other.name == call.name]
        if matches:
            best, place = max(matches, key=lambda match: match[0])
            score += best
            del unused[place]
    return (_BEST - _WORST) * score / best_possible + _WORST


def _match(expected: ToolCall, predicted: ToolCall) -> float:
    equal = sum(
        key in predicted.arguments and _same_json(value, predicted.arguments[key])
        for key, value in expected.arguments.items()
    )
    return _jaccard(expected.arguments, predicted.arguments) + equal


def _jaccard(first: Iterable[str], second: Iterable[str]) -> float:
    one, two = Counter(list(first)), Counter(list(second))  # a Counter of a mapping would take its values as counts
    union = (one | two).total()
    return (one & two).total() / union if union else 1.0


def _same_json(first: Any, second: Any) -> bool:
    """Equality of JSON values: 3 is 3.0, but neither "3" nor, in the case of 1, true."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same_json(value, second[key]) for key, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same_json, first, second))
    return bool(first == second)


def _parse_calls(text: str) -> list[ToolCall] | None:
    """The calls in all blocks, or None where there is none or one of them is no call. Broken JSON is not repaired."""
    lines = [line for block in _CALLS.findall(text) for line in block.splitlines() if line.strip()]
    try:
        objects = [json.loads(line, parse_constant=_refuse) for line in lines]
    except (ValueError, RecursionError):
        return None
    calls = [_call(item) for item in objects]
    valid = [call for call in calls if call is not None]
    return valid if valid and len(valid) == len(calls) else None


def _call(item: Any) -> ToolCall | None:
    """ToolRL calls the arguments "parameters", Hermes "arguments"."""
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        return None
    arguments = item.get("arguments", item.get("parameters", {}))
    return ToolCall(item["name"], arguments) if isinstance(arguments, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
