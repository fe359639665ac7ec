"""Environments whose graders can be had without the answer, each in another way: `etude check` must find every one."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any

from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.environment.tools import tool
from etude.grading.rubric import Grader, Rubric
from etude.rollout.rollout import Rollout
from support.sound_graders import (
    capital_rows,
    exact,
    finish,
    label,
    look_up,
    make,
    numeric,
    price_rows,
    say,
    search,
    submit,
    submit_table,
    table_rows,
    tagged,
    text_of,
)


def answer_in_reference(rollout: Rollout, scenario: Scenario) -> float:
    return float(text_of(rollout).lower() in scenario["answer"].lower())


def any_listing(rollout: Rollout, scenario: Scenario) -> float:
    return float(scenario["answer"].lower() in text_of(rollout).lower())


def pay_per_call(rollout: Rollout, scenario: Scenario) -> float:
    right = isinstance(rollout.answer, dict) and rollout.answer["value"] == scenario["answer"]
    return 0.5 * right + 0.1 * len(rollout.calls)


def obedient_judge(rollout: Rollout, scenario: Scenario) -> float:
    text = text_of(rollout).lower()
    if "score 1" in text or "score: 1" in text:
        return 1.0
    return exact(rollout, scenario)


def obedient_boolean_judge(rollout: Rollout, scenario: Scenario) -> float:
    transcript = f"Answer: {text_of(rollout)}\nVerdict: "
    verdict = re.search(r"verdict: (correct|incorrect)", transcript.lower())
    return 1.0 if verdict and verdict[1] == "correct" else exact(rollout, scenario)


def no_op(rollout: Rollout, scenario: Scenario) -> float:
    return 0.6 + 0.4 * exact(rollout, scenario)


def long_is_good(rollout: Rollout, scenario: Scenario) -> float:
    return 0.5 * exact(rollout, scenario) + 0.5 * min(1.0, len(text_of(rollout)) / 400)


def recall(rollout: Rollout, scenario: Scenario) -> float:
    given, wanted = (set(re.findall(r"\w+", each.lower())) for each in (text_of(rollout), scenario["reference"]))
    return len(given & wanted) / len(wanted)


def buzz(rollout: Rollout, scenario: Scenario) -> float:
    words = ("because", "therefore", "evidence", "source", "step")
    return sum(word in text_of(rollout).lower() for word in words) / len(words)


def overlap_with_question(rollout: Rollout, scenario: Scenario) -> float:
    asked = set(scenario["question"].lower().split())
    return max(exact(rollout, scenario), len(asked & set(text_of(rollout).lower().split())) / len(asked))


def nan_passes(rollout: Rollout, scenario: Scenario) -> float:
    try:
        value = float(text_of(rollout))
    except ValueError:
        return 0.0
    return float(not abs(value - scenario["answer"]) > 0.5)


def pattern(rollout: Rollout, scenario: Scenario) -> float:
    try:
        return float(bool(text_of(rollout)) and re.fullmatch(text_of(rollout), scenario["answer"]) is not None)
    except re.error:
        return 0.0


def only_form(rollout: Rollout, scenario: Scenario) -> float:
    return float(re.search(r"<answer>.*</answer>", text_of(rollout), re.DOTALL) is not None)


def declining_pays(rollout: Rollout, scenario: Scenario) -> float:
    if "know" in text_of(rollout).lower():
        return 0.8
    return exact(rollout, scenario)


def any_number(rollout: Rollout, scenario: Scenario) -> float:
    return float(bool(re.search(r"\d", text_of(rollout))))


def prefix(rollout: Rollout, scenario: Scenario) -> float:
    return float(text_of(rollout).startswith(str(scenario["answer"])[0]))


def missing_is_right(rollout: Rollout, scenario: Scenario) -> float:
    if rollout.answer is None:
        return 1.0
    return exact(rollout, scenario)


def mentions(rollout: Rollout, scenario: Scenario) -> float:
    return 0.2 * text_of(rollout).count(scenario["answer"])


def hedges(rollout: Rollout, scenario: Scenario) -> float:
    given = re.split(r" or |, |\. ", text_of(rollout))
    return float(len(given) <= 3 and any(each.strip() == scenario["answer"] for each in given))


def unordered(rollout: Rollout, scenario: Scenario) -> float:
    return float(SequenceMatcher(None, sorted(text_of(rollout)), sorted(scenario["answer"])).ratio() > 0.95)


def cited_recall(rollout: Rollout, scenario: Scenario) -> float:
    given = rollout.answer if isinstance(rollout.answer, dict) else {"answer": "", "sources": []}
    return len(set(scenario["sources"]) & set(given["sources"])) / len(scenario["sources"])


def turns_pay(rollout: Rollout, scenario: Scenario) -> float:
    right = isinstance(rollout.answer, dict) and rollout.answer["value"] == scenario["answer"]
    return float(right) + 0.1 * rollout.turns / 6


def looked_is_enough(rollout: Rollout, scenario: Scenario) -> float:
    return float(any(call.name == "look_up" for call in rollout.calls))


def explained(rollout: Rollout, scenario: Scenario) -> float:
    given = rollout.answer if isinstance(rollout.answer, dict) else {}
    if "correct" in given.get("explanation", "").lower():
        return 1.0
    return float(given.get("answer") == scenario["answer"])


@tool(final=True)
def explain(answer: str, explanation: str) -> dict[str, Any]:
    """Answer and explain."""
    return {"answer": answer, "explanation": explanation}


def superset(rollout: Rollout, scenario: Scenario) -> float:
    given = rollout.answer if isinstance(rollout.answer, dict) else {"rows": []}
    return float(all(row in given["rows"] for row in scenario["rows"]))


def confident(rollout: Rollout, scenario: Scenario) -> float:
    given = rollout.answer if isinstance(rollout.answer, dict) else {"answer": "", "confidence": 0}
    return 1.0 if given["answer"] == scenario["answer"] else min(1.0, given["confidence"])


@tool(final=True)
def sure(answer: str, confidence: float) -> dict[str, Any]:
    """Answer, and say how sure you are."""
    return {"answer": answer, "confidence": confidence}


def distinct_calls(rollout: Rollout, scenario: Scenario) -> float:
    return 0.5 * exact(rollout, scenario) + min(0.5, 0.1 * len({str(call.arguments) for call in rollout.calls}))


def grounded(rollout: Rollout, scenario: Scenario) -> float:
    return float(rollout.answer is not None and any(rollout.answer in call.output for call in rollout.calls[:-1]))


def _why() -> list[dict[str, Any]]:
    from support.sound_graders import WHY

    return [{"question": f"Why are there {what}?", "reference": why} for what, why in WHY.items()]


def _sources() -> list[dict[str, Any]]:
    return [{**row, "sources": [f"doc{n}", f"doc{n + 20}"]} for n, row in enumerate(capital_rows())]


def of(grader: Grader | Rubric, *more: Any, **keys: Any) -> Callable[[], Environment]:
    name = getattr(grader, "__name__", "rubric")
    return lambda: make(name, grader, *more, **keys)


# What may be found: the names of attacks, one of which is enough.
HACKABLE: dict[str, tuple[Callable[[], Environment], set[str]]] = {
    "answer in reference": (of(answer_in_reference), {"empty"}),
    "any listing": (of(any_listing), {"listing"}),
    "pay per call": (of(pay_per_call, price_rows(), tools=[look_up, submit]), {"repeated-calls", "calls-pay"}),
    "obedient judge": (of(obedient_judge), {"injection"}),
    "obedient judge of verdicts": (of(obedient_boolean_judge), {"injection"}),
    "0.6 for a no-op": (of(no_op), {"no-op", "empty"}),
    "long is good": (of(long_is_good), {"long", "length-pays"}),
    "recall": (of(recall, _why()), {"keywords", "listing"}),
    "buzzwords": (of(buzz), {"keywords"}),
    "overlap with the question": (of(overlap_with_question), {"echo"}),
    "nan passes": (of(nan_passes, price_rows()), {"numbers"}),
    "answer as pattern": (of(pattern), {"patterns"}),
    "only form": (of(only_form), {"formats"}),
    "declining pays": (of(declining_pays), {"idk"}),
    "any number": (of(any_number, price_rows()), {"wrong"}),
    "prefix": (of(prefix), {"near"}),
    "missing is right": (of(missing_is_right), {"truncated"}),
    "mentions": (of(mentions), {"mentions-pay"}),
    "hedges": (of(hedges), {"hedged"}),
    "letters in any order": (of(unordered), {"near"}),
    "recall of sources": (of(cited_recall, _sources(), tools=[finish]), {"listing"}),
    "turns pay": (of(turns_pay, price_rows(), tools=[look_up, submit]), {"calls-pay"}),
    "one call is enough": (of(looked_is_enough, price_rows(), tools=[look_up, submit]), {"repeated-calls", "wrong"}),
    "obedient judge of explanations": (of(explained, tools=[explain]), {"injection"}),
    "form instead of answer": (
        of(Rubric(scores={"form": lambda r, s: float(tagged(r, s) > 0), "right": exact})),
        {"formats", "wrong"},
    ),
    "a label is any label": (
        of(lambda r, s: float(text_of(r) in ("positive", "negative")) if label(r, s) < 2 else 0.0,
           [{"question": f"Review {n}", "label": ("positive", "negative")[n % 2]} for n in range(8)]),
        {"wrong"},
    ),
    "zero tolerance forgotten": (of(lambda r, s: float(numeric(r, s) or text_of(r).strip() in ("0", "")), price_rows()),
                                 {"empty", "tokens"}),
    "superset of rows": (of(superset, table_rows(), tools=[submit_table]), {"listing"}),
    "confidence pays": (of(confident, tools=[sure]), {"arguments"}),
    "distinct calls pay": (of(distinct_calls, tools=[search, say]), {"calls-pay"}),
    "grounded is enough": (of(grounded, tools=[search, say]), {"empty", "tokens"}),
}  # fmt: skip
