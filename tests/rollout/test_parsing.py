"""Strict parsing of Hermes tool calls: golden turns, every failure by kind, and the round trip of what we render."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.environment.calls import ToolCall
from etude.rollout.parsing import ParseFailure, parse_hermes, render_call

GOOD = '<tool_call>\n{"name": "search", "arguments": {"q": "tax"}}\n</tool_call>'
SEARCH = ("search", {"q": "tax"})

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["</tool_call>", "<tool_call>", "<tool_response>", "<|im_end|>", '"', "\\", "\u2028"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(
    ToolCall,
    name=st.text(min_size=1, max_size=8).filter(str.strip),
    arguments=st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3),
)


def block(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def parsed_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in parse_hermes(text).calls]


def kinds(text: str) -> list[ParseFailure]:
    return [kind for kind, _ in parse_hermes(text).failures]


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("", "", []),
        ("The answer is 4.", "The answer is 4.", []),
        (GOOD, "", [SEARCH]),
        (f"Let me look.\n{GOOD}", "Let me look.", [SEARCH]),
        (f"{GOOD}\n{GOOD}", "", [SEARCH, SEARCH]),
        (f"{GOOD}\nI wait.", "I wait.", [SEARCH]),
        ('<tool_call>{"name":"a","arguments":{}}</tool_call>', "", [("a", {})]),
        (block('{"arguments": {"x": [1, {"y": null}]}, "name": "a"}'), "", [("a", {"x": [1, {"y": None}]})]),
        (
            block('{"name": "a", "arguments": {"t": "\\u003c/tool_call>\\ud83d\\ude42"}}'),
            "",
            [("a", {"t": "</tool_call>🙂"})],
        ),
        ('{"name": "search", "arguments": {}}', '{"name": "search", "arguments": {}}', []),
        ("<Tool_Call>{}</Tool_Call>", "<Tool_Call>{}</Tool_Call>", []),
    ],
)
def test_turns_that_parse(text: str, content: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    turn = parse_hermes(text)
    assert turn.failures == ()
    assert turn.content == content
    assert [(call.name, call.arguments) for call in turn.calls] == calls
    assert [call.id for call in turn.calls] == [f"call_{i}" for i in range(len(calls))]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("<tool_call>\n{}", "unclosed_call", "is not closed by </tool_call>"),
        (f"<tool_call>\n{GOOD}", "unclosed_call", "is not closed"),
        ("oops</tool_call>", "stray_close", "no <tool_call> before it"),
        (block('{"name": "a", "arguments": {}'), "bad_json", "at character"),
        (block("{'name': 'a', 'arguments': {}}"), "bad_json", "double quotes"),
        (block('{"name": "a", "arguments": {},}'), "bad_json", "not valid JSON"),
        (block('{{"name": "a", "arguments": {}}}'), "bad_json", "not valid JSON"),
        (block('{"name": "a", "arguments": {}} {"name": "b", "arguments": {}}'), "bad_json", "Extra data"),
        (block('{"name": "a", "arguments": {"x": "</tool_call>"}}'), "bad_json", "not valid JSON"),
        (block(""), "bad_json", "not valid JSON"),
        (block("[" * 100_000), "bad_json", "nested too deep"),
        (block('{"name": "a", "arguments": {"x": "\\ud800"}}'), "bad_json", "surrogate"),
        (block('[{"name": "a", "arguments": {}}]'), "not_an_object", "this is an array"),
        (block('"a"'), "not_an_object", "this is a string"),
        (block("3"), "not_an_object", "this is a number"),
        (block("null"), "not_an_object", "this is null"),
        (block('{"arguments": {}}'), "bad_name", "found none"),
        (block('{"name": "", "arguments": {}}'), "bad_name", "found an empty one"),
        (block('{"name": " ", "arguments": {}}'), "bad_name", "found an empty one"),
        (block('{"name": 7, "arguments": {}}'), "bad_name", "found a number"),
        (block('{"name": "a"}'), "bad_arguments", "call of a .* found none"),
        (block('{"name": "a", "arguments": "{}"}'), "bad_arguments", "found a string"),
        (block('{"name": "a", "arguments": [1]}'), "bad_arguments", "found an array"),
        (block('{"name": "a", "arguments": null}'), "bad_arguments", "found null"),
        (block('{"name": "a", "arguments": {}, "id": "1"}'), "extra_key", 'found also "id"'),
        (block('{"name": "a", "name": "b", "arguments": {}}'), "duplicate_key", '"name" is twice'),
        (block('{"name": "a", "arguments": {"x": {"k": 1, "k": 1}}}'), "duplicate_key", '"k" is twice'),
        (block('{"name": "a", "arguments": {"x": NaN}}'), "not_a_number", "NaN"),
        (block('{"name": "a", "arguments": {"x": [-Infinity]}}'), "not_a_number", "-Infinity"),
        (block('{"name": "a", "arguments": {"x": 1e999}}'), "not_a_number", "1e999"),
        (block('{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}"), "not_a_number", "999"),
        ("<tool_response>\n42\n</tool_response>", "faked_result", "never by you"),
    ],
)
def test_failures_by_kind(text: str, kind: str, message: str) -> None:
    failures = parse_hermes(text).failures
    assert kind in [str(found) for found, _ in failures]
    (found,) = [failure for failure in failures if failure.kind == kind]
    assert re.search(message, found.message)
    assert len(found.message) < 300, "a message goes to the model: it quotes no whole turn"


def test_calls_beside_a_block_that_fails_are_both_reported() -> None:
    turn = parse_hermes(f"A\n{GOOD}\nB\n{block('nope')}\n{GOOD}\n</tool_call>\n<tool_call>")
    assert [(call.id, call.name) for call in turn.calls] == [("call_0", "search"), ("call_1", "search")]
    assert [str(kind) for kind, _ in turn.failures] == ["bad_json", "stray_close", "unclosed_call"]
    assert turn.content.split() == ["A", "B"]


def test_a_call_inside_an_unclosed_one_parses() -> None:
    text = f"<tool_call>\n{GOOD}"
    assert kinds(text) == [ParseFailure.UNCLOSED_CALL]
    assert parsed_calls(text) == [SEARCH]


@given(st.lists(CALLS, max_size=3), st.text(max_size=10).filter(lambda text: "tool_" not in text))
@settings(max_examples=150)
def test_what_is_rendered_parses_to_the_same_calls(calls: list[ToolCall], content: str) -> None:
    turn = parse_hermes("\n".join([content, *map(render_call, calls)]))
    assert turn.failures == ()
    assert turn.content == content.strip()
    assert [(call.name, call.arguments) for call in turn.calls] == [(call.name, call.arguments) for call in calls]


FRAGMENTS = st.lists(
    st.sampled_from(["<tool_call>", "</tool_call>", '{"name": "a", "arguments": {}}', "{", "text ", "<tool_response>"]),
    max_size=8,
).map("".join)


@given(FRAGMENTS)
def test_every_opening_tag_gives_one_call_or_one_failure(text: str) -> None:
    turn = parse_hermes(text)
    own = [kind for kind, _ in turn.failures if kind not in (ParseFailure.STRAY_CLOSE, ParseFailure.FAKED_RESULT)]
    assert len(turn.calls) + len(own) == text.count("<tool_call>")


@given(CALLS)
def test_a_rendered_call_is_plain_json_between_its_tags(call: ToolCall) -> None:
    head, body, tail = render_call(call).split("\n", 1)[0], render_call(call)[12:-13], render_call(call)[-12:]
    assert (head, tail) == ("<tool_call>", "</tool_call>")
    assert json.loads(body) == {"name": call.name, "arguments": call.arguments}


@pytest.mark.parametrize("arguments", [{"x": float("nan")}, {"x": {1: 2}}, {"x": [{None: 1}]}])
def test_arguments_that_are_no_json_are_not_rendered(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        render_call(ToolCall("a", arguments))
