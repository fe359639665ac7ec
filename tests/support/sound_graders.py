"""Environments whose graders cannot be had cheaply, each of another kind: `etude check` must raise nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etude.environment.calls import ToolCall
from etude.environment.context import ToolContext
from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolError, tool
from etude.grading.graders import f1_sets
from etude.grading.rubric import Grader, Rubric
from etude.rollout.messages import Message
from etude.rollout.rollout import Rollout

CAPITALS = {
    "France": "Paris", "Japan": "Tokyo", "Peru": "Lima", "Kenya": "Nairobi", "Norway": "Oslo", "Cuba": "Havana",
    "Egypt": "Cairo", "Canada": "Ottawa", "Chile": "Santiago", "Greece": "Athens",
}  # fmt: skip
PRICES = {"bolt": 140, "nut": 512, "washer": 75, "gear": 9, "spring": 33, "lamp": 21, "cable": 60, "valve": 4}
WHY = {
    "rust": "iron reacts with oxygen and water in the air",
    "tides": "the gravity of the moon pulls the oceans",
    "rainbows": "droplets bend sunlight into separate colours",
    "echoes": "sound waves bounce off a distant surface",
    "yeast": "cells turn sugar into gas and alcohol",
    "frost": "water vapour freezes directly onto cold leaves",
}


def capital_rows() -> list[dict[str, Any]]:
    return [{"question": f"What is the capital of {land}?", "answer": city} for land, city in CAPITALS.items()]


def price_rows() -> list[dict[str, Any]]:
    return [
        {"question": f"How much is one {part}?", "part": part, "answer": price} for part, price in PRICES.items()
    ]  # fmt: skip


def text_of(rollout: Rollout) -> str:
    return rollout.answer if isinstance(rollout.answer, str) else ""


def make(
    name: str, grader: Grader | Rubric, rows: Sequence[Mapping[str, Any]] | None = None, **more: Any
) -> Environment:
    """The last quarter of the rows is the validation split."""
    held = list(capital_rows() if rows is None else rows)
    cut = len(held) - len(held) // 4
    return Environment(
        name=name,
        instructions=more.pop("instructions", "Answer the question."),
        tools=more.pop("tools", ()),
        rubric=grader,
        scenarios={"train": held[:cut], "validation": held[cut:]},
        limits=more.pop("limits", Limits(max_turns=6)),
        **more,
    )


def exact(rollout: Rollout, scenario: Scenario) -> float:
    return float(text_of(rollout).strip().lower() == scenario["answer"].lower())


def numeric(rollout: Rollout, scenario: Scenario) -> float:
    try:
        value = float(text_of(rollout).replace(",", ""))
    except ValueError:
        return 0.0
    return float(abs(value - scenario["answer"]) <= 0.01 * scenario["answer"])


def last_number(rollout: Rollout, scenario: Scenario) -> float:
    found = re.findall(r"-?\d+(?:\.\d+)?", text_of(rollout))
    return float(bool(found) and float(found[-1]) == scenario["answer"])


def nearness(rollout: Rollout, scenario: Scenario) -> float:
    try:
        value = float(text_of(rollout))
    except ValueError:
        return 0.0
    return max(0.0, 1 - abs(value - scenario["answer"]) / scenario["answer"]) if value == value else 0.0


def token_f1(rollout: Rollout, scenario: Scenario) -> float:
    given, wanted = (Counter(re.findall(r"\w+", each.lower())) for each in (text_of(rollout), scenario["reference"]))
    both = sum((given & wanted).values())
    return 2 * both / (sum(given.values()) + sum(wanted.values())) if both else 0.0


def brief(rollout: Rollout, scenario: Scenario) -> float:
    return exact(rollout, scenario) * (1 - min(len(text_of(rollout)), 500) / 1000)


def list_f1(rollout: Rollout, scenario: Scenario) -> float:
    given = [each.strip().lower() for each in text_of(rollout).split(",") if each.strip()]
    return f1_sets(given, [each.lower() for each in scenario["expected"]])


def tagged(rollout: Rollout, scenario: Scenario) -> float:
    match = re.fullmatch(r"(?s).*<answer>([^<]*)</answer>\s*", text_of(rollout))
    if not match:
        return 0.0
    return 0.1 + 0.9 * float(match[1].strip() == scenario["answer"])


def as_json(rollout: Rollout, scenario: Scenario) -> float:
    try:
        given = json.loads(text_of(rollout))
    except ValueError:
        return 0.0
    if not isinstance(given, dict) or set(given) != {"city", "land"}:
        return 0.0
    return sum(given[key] == scenario["target"][key] for key in given) / 2


def unit_tests(rollout: Rollout, scenario: Scenario) -> float:
    code = re.search(r"```python\n(.*?)```", text_of(rollout), re.DOTALL)
    space: dict[str, Any] = {}
    try:
        exec(code[1] if code else "", space)
        passed = [space["f"](value) == wanted for value, wanted in scenario["tests"]]
    except (Exception, SystemExit):  # noqa: BLE001 - whatever the model's program raises
        return 0.0
    return sum(passed) / len(passed)


def label(rollout: Rollout, scenario: Scenario) -> float:
    return float(text_of(rollout).strip().lower() == scenario["label"])


def abstains(rollout: Rollout, scenario: Scenario) -> float:
    declined = text_of(rollout).strip().lower().rstrip(".") in ("i don't know", "unknown")
    if scenario["answer"] is None:
        return float(declined)
    return exact(rollout, scenario) if not declined else 0.2


def penalties_only(rollout: Rollout, scenario: Scenario) -> float:
    return exact(rollout, scenario) - 1.0


@tool
def look_up(part: str) -> str:
    """Say what a part costs."""
    if part not in PRICES:
        raise ToolError(f"there is no part {part!r}")
    return f"{PRICES[part]} cents"


@tool(final=True)
def submit(value: float, confident: bool) -> dict[str, Any]:
    """Hand in the price."""
    return {"value": value, "confident": confident}


def used_tool(rollout: Rollout, scenario: Scenario) -> float:
    looked = any(call.name == "look_up" and call.arguments["part"] == scenario["part"] for call in rollout.calls
                 if call.kind == "ok")  # fmt: skip
    right = isinstance(rollout.answer, dict) and rollout.answer["value"] == scenario["answer"]
    return 0.3 * looked + 0.7 * (looked and right)


@tool
async def put(item: str, context: ToolContext) -> str:
    """Put an item into the basket."""
    context.state.setdefault("basket", []).append(item)
    return "done"


def basket(rollout: Rollout, scenario: Scenario) -> float:
    return float(sorted(rollout.state.get("basket", [])) == sorted(scenario["wanted"]))


class Shopper:
    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        done = sum(message.role == "tool" for message in messages)
        if done == len(scenario["wanted"]):
            return Message("assistant", "Done.")
        return Message("assistant", "", (ToolCall("put", {"item": scenario["wanted"][done]}, f"c{done}"),))


def sources_and_answer(rollout: Rollout, scenario: Scenario) -> float:
    given = rollout.answer if isinstance(rollout.answer, dict) else {"answer": "", "sources": []}
    right = float(given["answer"].strip().lower() == scenario["answer"].lower())
    return right * (0.7 + 0.3 * f1_sets(given["sources"], scenario["sources"]))


@tool(final=True)
def finish(answer: str, sources: list[str]) -> dict[str, Any]:
    """Answer, and say what it rests on."""
    return {"answer": answer, "sources": sources}


def letter_rows() -> list[dict[str, Any]]:
    """Four options each, the right one at every place in turn."""
    rows = []
    for number, (land, city) in enumerate(CAPITALS.items()):
        options = [each for each in CAPITALS.values() if each != city][number % 3 : number % 3 + 3]
        options.insert(number % 4, city)
        shown = "\n".join(f"{letter}) {option}" for letter, option in zip("ABCD", options, strict=True))
        rows.append({"question": f"Capital of {land}?\n{shown}", "answer": "ABCD"[number % 4], "options": options})
    return rows


def letter(which: int) -> Grader:
    def right(rollout: Rollout, scenario: Scenario) -> float:
        found = re.findall(r"\b([A-D])\b", text_of(rollout))
        return float(bool(found) and found[which] == scenario["answer"])

    return right


@tool(final=True)
def submit_table(rows: list[dict[str, str]], total: int) -> dict[str, Any]:
    """Hand in a table."""
    return {"rows": rows, "total": total}


def table(rollout: Rollout, scenario: Scenario) -> float:
    given = rollout.answer if isinstance(rollout.answer, dict) else {"rows": None, "total": None}
    return 0.5 * (given["rows"] == scenario["rows"]) + 0.5 * (given["total"] == scenario["total"])


def table_rows() -> list[dict[str, Any]]:
    return [
        {"question": f"Table {n}?", "rows": [{"n": f"x{n}"}, {"n": f"y{n}"}], "total": 100 + 37 * n} for n in range(8)
    ]


@tool
def search(query: str) -> str:
    """Search the reports."""
    found = [f"The capital of {land} is {city}." for land, city in CAPITALS.items() if land.lower() in query.lower()]
    return "\n".join(found) or "nothing found"


@tool(final=True)
def say(text: str) -> str:
    """Answer."""
    return text


def searched_and_right(rollout: Rollout, scenario: Scenario) -> float:
    found = any(call.name == "search" and scenario["answer"] in call.output for call in rollout.calls)
    return 0.25 * found + 0.75 * exact(rollout, scenario)


def expected_calls(rollout: Rollout, scenario: Scenario) -> float:
    made = [{"name": call.name, "arguments": call.arguments} for call in rollout.calls if call.kind == "ok"]
    return float(made == scenario["expected_calls"])


def efficient(rollout: Rollout, scenario: Scenario) -> float:
    return exact(rollout, scenario)


def _code_rows() -> list[dict[str, Any]]:
    return [
        {
            "question": f"Write f(x), which gives x times {n}.",
            "solution": f"def f(x):\n    return x * {n}",
            "tests": [[0, 0], [2, 2 * n], [7, 7 * n], [-3, -3 * n]],
        }
        for n in (3, 5, 8, 11, 13)
    ]


SOUND: dict[str, Callable[[], Environment]] = {
    "exact": lambda: make("exact", exact),
    "numeric tolerance": lambda: make("numeric", numeric, price_rows()),
    "last number": lambda: make("last", last_number, price_rows()),
    "nearness": lambda: make("nearness", nearness, price_rows()),
    "token F1": lambda: make(
        "f1", token_f1, [{"question": f"Why are there {what}?", "reference": why} for what, why in WHY.items()]
    ),
    "brief": lambda: make("brief", brief),
    "set F1": lambda: make(
        "sets",
        list_f1,
        [
            {"question": f"Name the colours of flag {n}.", "expected": colours.split()}
            for n, colours in enumerate(
                ["red white", "blue gold", "green black red", "pink grey", "blue white", "teal rose plum", "tan ivory"]
            )
        ],
    ),
    "tagged": lambda: make("tagged", tagged, instructions="Think, then write <answer>your answer</answer>."),
    "JSON": lambda: make(
        "json",
        as_json,
        [
            {"question": f"Which city governs {land}?", "target": {"city": city, "land": land}}
            for land, city in CAPITALS.items()
        ],
    ),
    "unit tests": lambda: make("tests", unit_tests, _code_rows()),
    "labels": lambda: make(
        "labels",
        label,
        [
            {"question": f"Is this review positive or negative? {text}", "label": found}
            for text, found in [
                ("I loved it", "positive"),
                ("Awful", "negative"),
                ("Never again", "negative"),
                ("Superb", "positive"),
                ("What a waste", "negative"),
                ("My favourite", "positive"),
                ("Dull", "negative"),
                ("Fun", "positive"),
            ]
        ],
    ),
    "abstains": lambda: make(
        "abstains",
        abstains,
        [*capital_rows(), *({"question": f"What is the capital of {x}?", "answer": None} for x in ("Mu", "Ys", "Oz"))],
    ),
    "penalties only": lambda: make("penalties", penalties_only),
    "tool use": lambda: make("tool use", used_tool, price_rows(), tools=[look_up, submit]),
    "state": lambda: make(
        "state",
        basket,
        [
            {"question": f"Buy for list {n}.", "wanted": wanted.split()}
            for n, wanted in enumerate(["egg milk", "rice", "tea jam oats", "salt", "plum fig", "corn beet"])
        ],
        tools=[put],
        policies={"shopper": Shopper()},
    ),
    "sources": lambda: make(
        "sources",
        sources_and_answer,
        [{**row, "sources": [f"doc{n}", f"doc{n + 20}"]} for n, row in enumerate(capital_rows())],
        tools=[finish],
    ),
    "efficient": lambda: make(
        "efficient",
        Rubric(scores={"correct": efficient}, penalties={"length": ("completion_tokens", 0.001)}),
    ),
    "first letter": lambda: make("first letter", letter(0), letter_rows()),
    "last letter": lambda: make("last letter", letter(-1), letter_rows()),
    "table": lambda: make("table", table, table_rows(), tools=[submit_table]),
    "searched and right": lambda: make("searched", searched_and_right, tools=[search, say]),
    "expected calls": lambda: make(
        "calls",
        expected_calls,
        [
            {"question": f"Look {land} up.", "expected_calls": [{"name": "search", "arguments": {"query": land}}]}
            for land in CAPITALS
        ],
        tools=[search],
    ),
}
