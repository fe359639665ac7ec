"""ToolRL's reward: the golden table of one expected call, several calls, and turns without one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.environment.calls import ToolCall
from etude.grading.toolrl import ToolRLScore, toolrl_score

EXPECTED = [ToolCall("search", {"q": "gas", "k": 3})]


def turn(*calls: dict[str, Any] | str, think: str = "<think>find it</think>\n") -> str:
    lines = [call if isinstance(call, str) else json.dumps(call) for call in calls]
    return think + "<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


def search(**parameters: Any) -> dict[str, Any]:
    return {"name": "search", "parameters": parameters}


@pytest.mark.parametrize(
    ("text", "total", "gate"),
    [
        (turn(search(q="gas", k=3)), 4.0, 1.0),
        (turn({"name": "search", "arguments": {"k": 3, "q": "gas"}}), 4.0, 1.0),
        (turn(search(q="oil", k=3)), 2.5, 0.75),
        (turn(search(q="gas", k="3")), 2.5, 0.75),
        (turn(search(q="gas")), 1.75, 0.625),
        (turn(search(q="gas", k=3, lang="en")), 3.5, 0.9167),
        (turn(search(q="gas", k=3), {"name": "read", "parameters": {}}), 3.25, 0.875),
        (turn({"name": "find", "parameters": {"q": "gas", "k": 3}}), -2.0, 0.0),
        (turn('{"name": "search", "parameters": {"q": "gas", "k": 3}'), -2.0, 0.0),
        (turn(search(q="gas", k=3), think=""), 3.0, 0.0),
    ],
)
def test_one_call_expected(text: str, total: float, gate: float) -> None:
    score = toolrl_score(text, EXPECTED, response_expected=False)
    assert score.sum == pytest.approx(total, abs=5e-5)
    assert score.gate == pytest.approx(gate, abs=5e-5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<think>nothing</think>",
        "<think></think><tool_call></tool_call>",
        turn("[]"),
        turn("3"),
        turn({"parameters": {}}),
        turn({"name": 3}),
        turn({"name": "search", "parameters": [1]}),
        turn('{"name": "search", "parameters": {"q": NaN}}'),
        turn("[" * 100_000),
        "<think>x</think><tool_call>" + json.dumps(search(q="gas", k=3)),
    ],
)
def test_what_cannot_be_parsed_is_the_worst(text: str) -> None:
    assert toolrl_score(text, EXPECTED, response_expected=False).correct == -3.0


GOOD = json.dumps(search(q="gas", k=3))


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{GOOD}</tool_call><think>late</think>",
        f"<think>a</think><think>b</think><tool_call>{GOOD}</tool_call>",
        f"<think>a</think><tool_call>{GOOD}</tool_call><tool_call>{GOOD}</tool_call>",
        f"<think>a<tool_call>{GOOD}</tool_call></think>",
        f"<think>a</think><tool_call>{GOOD}</tool_call><response>done</response>",
    ],
)
def test_each_tag_once_in_order_and_no_other(text: str) -> None:
    assert toolrl_score(text, EXPECTED, response_expected=False).format == 0.0


def test_calls_and_response() -> None:
    text = f"<think>a</think><tool_call>{GOOD}</tool_call><response>done</response>"
    assert toolrl_score(text, EXPECTED, response_expected=True) == ToolRLScore(1.0, 3.0)


def test_no_call_expected() -> None:
    assert toolrl_score("<think>a</think><response>hi</response>", [], True) == ToolRLScore(1.0, 0.0)
    assert toolrl_score(turn(search(q="gas")), [], True) == ToolRLScore(0.0, 0.0)


def test_each_prediction_is_used_once() -> None:
    twice = [ToolCall("search", {"q": "gas"}), ToolCall("search", {"q": "oil"})]
    both = toolrl_score(turn(search(q="oil"), search(q="gas")), twice, False)
    one = toolrl_score(turn(search(q="gas")), twice, False)
    same = toolrl_score(turn(search(q="gas"), search(q="gas")), twice, False)
    assert both.correct == 3.0
    assert one.correct == pytest.approx(6 * (0.5 + 2) / 5 - 3)
    assert same.correct == pytest.approx(6 * (1 + 2 + 1) / 5 - 3)


@pytest.mark.parametrize(
    ("expected", "given_", "equal"),
    [
        (3, 3.0, True),
        (1, True, False),
        (True, True, True),
        (None, None, True),
        ([1, {"a": 2}], [1, {"a": 2}], True),
        ([1, True], [1, 1], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("3", 3, False),
    ],
)
def test_values_are_equal_as_json(expected: Any, given_: Any, equal: bool) -> None:
    score = toolrl_score(turn(search(x=given_)), [ToolCall("search", {"x": expected})], False)
    assert (score.correct == 3.0) is equal


CALLS = st.builds(
    ToolCall,
    st.sampled_from(["search", "read"]),
    st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(0, 2), st.text(max_size=2)), max_size=3),
)


def written(call: ToolCall) -> str:
    return json.dumps([call.name, call.arguments], sort_keys=True)


@given(st.lists(CALLS, min_size=1, max_size=4), st.lists(CALLS, min_size=1, max_size=4))
def test_the_expected_calls_and_only_they_score_best(expected: list[ToolCall], predicted: list[ToolCall]) -> None:
    def score(calls: list[ToolCall]) -> ToolRLScore:
        return toolrl_score(turn(*({"name": c.name, "parameters": c.arguments} for c in calls)), expected, False)

    assert score(expected) == ToolRLScore(1.0, pytest.approx(3.0))  # type: ignore[arg-type]
    assert -3 <= score(predicted).correct <= 3 + 1e-9
    assert 0 <= score(predicted).gate <= 1 + 1e-9
    if sorted(map(written, expected)) != sorted(map(written, predicted)):
        assert score(predicted).correct < 3


@given(st.text(max_size=60).map(lambda text: f"<think>{text}<tool_call>{text}</tool_call>"))
def test_any_text_has_a_score(text: str) -> None:
    score = toolrl_score(text, EXPECTED, response_expected=False)
    assert -3 <= score.sum <= 4
