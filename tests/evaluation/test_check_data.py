"""`etude check` without a grader's help: tools, leaks, prompts, policies, the chat template; and the recipes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.sound_graders import CAPITALS, capital_rows, exact, make

import etude
from etude.environment.calls import ToolCall
from etude.environment.context import ToolContext
from etude.environment.environment import Environment, load_environment
from etude.environment.scenario import Scenario
from etude.environment.tools import Tool, ToolError, tool
from etude.errors import ConfigError
from etude.evaluation.checks.report import CheckReport
from etude.evaluation.checks.run import check_environment as check_whole
from etude.evaluation.checks.template import check_template
from etude.model.tiny import tiny_tokenizer
from etude.rollout.messages import Message

check_environment = partial(check_whole, scenarios=3)


def checks(report: CheckReport) -> list[tuple[str, str]]:
    return [(each.severity, each.check) for each in report.findings]


def with_tools(*tools: Tool, rows: Sequence[dict[str, Any]] | None = None) -> Environment:
    return make("tools", exact, rows, tools=tools)


# --- leaks --------------------------------------------------------------------------------------------------------


def test_the_same_scenario_in_two_splits() -> None:
    rows = capital_rows()
    again = [{"question": f" {rows[1]['question'].upper()} ", "answer": rows[1]["answer"]}]
    environment = Environment("e", "Answer.", (), exact, {"train": rows[:6], "test": [*rows[6:], *again]})
    report = check_environment(environment)
    assert checks(report) == [("fail", "leak.scenario")]
    assert report.findings[0].evidence["train"] == "train-2"


def test_the_same_source_in_two_splits() -> None:
    rows = [{**row, "doc_id": f"d{number % 7}"} for number, row in enumerate(capital_rows())]
    environment = Environment("e", "Answer.", (), exact, {"train": rows[:6], "test": rows[6:]})
    assert checks(check_environment(environment)) == [("warn", "leak.source")]


def test_a_category_is_no_source() -> None:
    rows = [{**row, "doc_id": f"d{number % 2}"} for number, row in enumerate(capital_rows())]
    environment = Environment("e", "Answer.", (), exact, {"train": rows[:6], "test": rows[6:]})
    assert checks(check_environment(environment)) == []


@pytest.mark.parametrize(
    "form",
    [
        "{question} (answer: {answer})",
        "{question} The correct answer is {answer}.",
        '{{"question": "{question}", "answer": "{answer}"}}',
        "{question} Hint: {answer}",
    ],
)
def test_a_prompt_that_names_the_reference(form: str) -> None:
    rows = [{"question": form.format(**row), "answer": row["answer"]} for row in capital_rows()]
    assert checks(check_environment(make("told", exact, rows))) == [("fail", "leak.prompt")]


def test_instructions_that_name_the_reference() -> None:
    environment = make("told", exact, instructions=lambda scenario: f"The expected answer is {scenario['answer']}.")
    assert checks(check_environment(environment)) == [("fail", "leak.prompt")]


def test_a_prompt_that_holds_the_reference_is_suspicious_unless_it_offers_a_choice() -> None:
    plain = [{"question": f"{row['question']} {row['answer']}", "answer": row["answer"]} for row in capital_rows()]
    assert checks(check_environment(make("held", exact, plain))) == [("warn", "leak.prompt")]
    choice = [{**row, "question": f"{row['question']} {row['answer']} or Quito?"} for row in capital_rows()]
    assert checks(check_environment(make("choice", exact, choice))) == []


def test_a_tool_description_that_lists_references() -> None:
    text = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    words = f"Looks up {', '.join(CAPITALS.values())}."
    described = Tool.from_function(lambda city: city, name="look", description=words, parameters=text)
    assert checks(check_environment(with_tools(described))) == [("fail", "leak.tool_spec")]


@tool
def telling(query: str, context: ToolContext) -> str:
    """Search."""
    if not any(land in query for land in CAPITALS):
        raise ToolError(f"nothing like {query!r}; did you mean {context.scenario['answer']}?")
    return "found"


@tool
def dumping(query: str, context: ToolContext) -> dict[str, Any]:
    """Search."""
    return {"query": query, "row": dict(context.scenario)}


@tool
def finding(query: str) -> str:
    """Search."""
    return "\n".join(f"{land}: {city}" for land, city in CAPITALS.items() if land in query) or "nothing"


def test_a_tool_that_gives_the_reference_to_those_who_ask_for_nothing() -> None:
    assert checks(check_environment(with_tools(telling))) == [("fail", "leak.tool_output")]
    assert checks(check_environment(with_tools(dumping))) == [("fail", "leak.tool_output")]
    assert checks(check_environment(with_tools(finding))) == []


# --- tools --------------------------------------------------------------------------------------------------------


@tool
def broken(part: str) -> str:
    """Look."""
    return str({}[part])


@tool(timeout_s=0.2)
async def asleep(part: str) -> str:
    """Look."""
    import asyncio

    await asyncio.sleep(5)
    return part


@tool(max_output_tokens=10)
def endless(part: str) -> str:
    """Look."""
    return "word " * 500


_count = itertools.count()


@tool
def changing(part: str) -> str:
    """Look."""
    return f"{next(_count)}"


def test_tools_that_break_or_take_too_long_or_too_much_or_change() -> None:
    report = check_environment(with_tools(broken))
    assert ("fail", "tool.fault") in checks(report)
    assert "test_check_data.py, line" in report.failures[0].message
    assert ("fail", "tool.fault") in checks(check_environment(with_tools(asleep), scenarios=1))
    assert checks(check_environment(with_tools(endless))) == [("warn", "tool.cut")]
    assert checks(check_environment(with_tools(changing))) == [("warn", "tool.unsteady")]


class Breaking:
    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        raise KeyError("nothing")


class Refused:
    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        if messages[-1].role == "tool":
            return Message("assistant", scenario["answer"])
        return Message("assistant", "", (ToolCall("telling", {"query": "x"}, "c"),))


def test_policies_that_break_and_tools_that_refuse_all_their_calls() -> None:
    report = check_environment(make("breaking", exact, policies={"bad": Breaking()}))
    assert checks(report) == [("warn", "policy")]
    assert "test_check_data.py, line" in report.findings[0].message
    report = check_whole(make("refused", exact, tools=[telling], policies={"p": Refused()}), scenarios=4)
    assert ("warn", "tool.refuses") in checks(report)


# --- what cannot be checked ---------------------------------------------------------------------------------------


def test_a_prompt_that_cannot_be_made() -> None:
    report = check_environment(make("broken", exact, prompt=lambda scenario: str(1 / (scenario.id != "train-2"))))
    assert checks(report) == [("fail", "prompt")]
    with pytest.raises(ConfigError, match="no scenario of none has a prompt"):
        check_environment(make("none", exact, prompt=lambda scenario: str(1 / 0)))


def test_names_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="no scenario of train has a field 'gold'"):
        check_environment(make("e", exact), reference="gold")
    with pytest.raises(ConfigError, match="no scenarios in split 'test'"):
        check_environment(make("e", exact), split="test")


# --- templates and recipes ----------------------------------------------------------------------------------------


def test_a_template_that_rewrites_history() -> None:
    tokenizer = tiny_tokenizer(call_tokens=True)
    environment = make("e", exact, tools=[finding])
    assert check_template(tokenizer, "auto", environment) == []  # Etude's own format
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}(cut)"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    found = check_template(tokenizer, "template", environment)
    assert {each.severity for each in found} == {"fail"}
    assert any("history is rewritten" in each.message for each in found)


def test_the_template_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(etude.__file__).parent / "template")
    report = check_environment(load_environment("environment.py:environment", {}))
    assert report.findings == ()
    assert report.gold_reward == 1.0


def test_the_demo_raises_nothing(tmp_path: Path) -> None:
    size = {"inboxes": 1, "mails_per_inbox": 150, "train_questions": 30, "validation_questions": 24}
    environment = load_environment("email_demo", {"folder": str(tmp_path), **size, "test_questions": 24, "seed": 3})
    report = check_environment(environment, scenarios=2)
    assert report.findings == ()
    assert report.gold == "field 'answer'"
