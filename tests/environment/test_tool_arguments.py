"""What a model passed is checked strictly against the schema it was shown, then becomes the function's types."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator
from typing_extensions import TypedDict

from etude.environment.arguments import BadArguments
from etude.environment.tools import Tool
from etude.errors import ConfigError

JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON_NUMBER = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | JSON_NUMBER | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=12,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Period(TypedDict):
    after: str


class Order(BaseModel):
    at: list[Point]
    colour: Colour | None = None

    @field_validator("at")
    @classmethod
    def not_empty(cls, at: list[Point]) -> list[Point]:
        if not at:
            raise ValueError("give at least one point")
        return at


def plain(
    number: int, ratio: float, text: str, flag: bool, many: list[int], table: dict[str, Any], free: Any
) -> None: ...


def typed(
    colour: Colour,
    order: Order,
    point: Point,
    period: Period,
    pair: tuple[int, str],
    day: datetime.date,
    size: Literal["s", "m"] = "s",
    maybe: int | None = None,
) -> None: ...


PLAIN = Tool.from_function(plain)
TYPED = Tool.from_function(typed)
GOOD = {
    "colour": "red",
    "order": {"at": [{"x": 1}], "colour": "blue"},
    "point": {"x": 2, "y": 3},
    "period": {"after": "2001"},
    "pair": [1, "a"],
    "day": "2001-05-31",
}


def strict_json(value: Any) -> str:
    """Tells 1 from True and from 1.0, which Python's == does not."""
    return json.dumps(value, sort_keys=True)


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "number": st.integers(),
            "ratio": st.floats(allow_nan=False, allow_infinity=False),
            "text": JSON_TEXT,
            "flag": st.booleans(),
            "many": st.lists(st.integers(), max_size=5),
            "table": st.dictionaries(JSON_TEXT, JSON_VALUE, max_size=4),
            "free": JSON_VALUE,
        }
    )
)
def test_arguments_that_fit_arrive_unchanged_and_as_copies(arguments: dict[str, Any]) -> None:
    read = PLAIN.read_arguments(arguments)
    assert strict_json(read) == strict_json(arguments)
    assert read["many"] is not arguments["many"]
    assert read["table"] is not arguments["table"]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(JSON_TEXT, JSON_VALUE, max_size=4))
def test_an_open_raw_schema_passes_any_json_unchanged(arguments: dict[str, Any]) -> None:
    tool = Tool("any", "", {"type": "object", "additionalProperties": True}, lambda **given: given)
    assert strict_json(tool.read_arguments(arguments)) == strict_json(arguments)


@settings(max_examples=60, deadline=None)
@given(JSON_VALUE)
def test_a_value_is_taken_exactly_where_its_json_type_is_the_parameters(value: Any) -> None:
    fits = {
        "number": type(value) is int,
        "ratio": type(value) in (int, float),
        "text": type(value) is str,
        "flag": type(value) is bool,
        "many": type(value) is list and all(type(each) is int for each in value),
        "table": type(value) is dict,
        "free": True,
    }
    good = {"number": 1, "ratio": 0.5, "text": "", "flag": True, "many": [], "table": {}, "free": None}
    for name, expected in fits.items():
        arguments = {**good, name: value}
        if expected:
            PLAIN.read_arguments(arguments)
        else:
            with pytest.raises(BadArguments, match=f"^{name}"):
                PLAIN.read_arguments(arguments)


def test_arguments_arrive_as_the_functions_types() -> None:
    assert TYPED.read_arguments(GOOD) == {
        "colour": Colour.RED,
        "order": Order(at=[Point(1)], colour=Colour.BLUE),
        "point": Point(2, 3.0),
        "period": {"after": "2001"},
        "pair": (1, "a"),
        "day": datetime.date(2001, 5, 31),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"maybe": "3"}, 'maybe: "3" is not of type integer or null'),
        ({"maybe": 3.0}, "maybe: 3.0 is not of type integer or null"),
        ({"maybe": True}, "maybe: true is not of type integer or null"),
        ({"colour": "green"}, 'colour: "green" is not one of "red", "blue"'),
        ({"size": "xl"}, 'size: "xl" is not one of "s", "m"'),
        ({"point": {"y": 1}}, "point: missing x"),
        ({"point": {"x": 1, "z": 1}}, 'point: unknown "z" (known: x, y)'),
        ({"point": None}, "point: null is not of type object"),
        ({"order": {"at": [{"x": 1}, {"x": None}]}}, "order.at[1].x: null is not of type integer"),
        ({"order": {"at": []}}, "order.at: Value error, give at least one point"),
        ({"pair": [1]}, "pair: [1] is too short"),
        ({"day": "tomorrow"}, "day: Input should be a valid date in the format YYYY-MM-DD, input is too short"),
    ],
)
def test_a_mistake_is_told_in_one_line_of_json_words(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArguments) as bad:
        TYPED.read_arguments({**GOOD, **change})
    assert str(bad.value) == message


def test_all_mistakes_are_told_up_to_three() -> None:
    def few(a: int, b: int) -> None: ...

    tool = Tool.from_function(few)
    with pytest.raises(BadArguments) as bad:
        tool.read_arguments({"c": 1, "d": "two"})
    assert str(bad.value) == 'missing a, b; unknown "c", "d" (known: a, b)'
    with pytest.raises(BadArguments, match=r"; and 1 more$"):
        PLAIN.read_arguments({"number": "", "ratio": "", "text": 1, "flag": 1, "many": [], "table": {}, "free": 1})


def test_a_long_value_is_not_thrown_back_whole() -> None:
    with pytest.raises(BadArguments) as bad:
        TYPED.read_arguments({**GOOD, "point": "x\n" * 5000})
    assert len(str(bad.value)) < 300
    assert "\n" not in str(bad.value)


def nested(depth: int) -> Any:
    return functools.reduce(lambda inner, _: [inner], range(depth), None)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "NaN and Infinity are not JSON numbers"),
        ([float("-inf")], "NaN and Infinity are not JSON numbers"),
        ("\ud800", "a text holds half of a surrogate pair, which is not Unicode"),
        ({"\udfff": 1}, "a text holds half of a surrogate pair, which is not Unicode"),
        (nested(5000), "nested too deeply"),
    ],
)
@pytest.mark.parametrize("typed_tool", [True, False])
def test_what_is_not_json_is_refused_before_any_tool_sees_it(value: Any, message: str, typed_tool: bool) -> None:
    tool = PLAIN if typed_tool else Tool("any", "", {"type": "object", "additionalProperties": True}, lambda **_: None)
    with pytest.raises(BadArguments) as bad:
        tool.read_arguments({"free": value})
    assert str(bad.value) == message


def test_nesting_that_only_pydantic_finds_too_deep_is_the_models_mistake() -> None:
    good = {"number": 1, "ratio": 0.5, "text": "", "flag": True, "many": [], "table": {}}
    with pytest.raises(BadArguments, match=r"^free: Invalid JSON: recursion limit"):
        PLAIN.read_arguments({**good, "free": nested(300)})


# Raw JSON Schema


def search(context: Any, query: str, limit: int = 3) -> None: ...


QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def test_a_raw_schema_refuses_unknown_keys_unless_it_allows_them() -> None:
    closed = Tool("any", "", QUERY, lambda query, **rest: None)
    with pytest.raises(BadArguments, match=r'^unknown "more"'):
        closed.read_arguments({"query": "a", "more": 1})
    for allowing in ({"additionalProperties": {"type": "integer"}}, {"patternProperties": {"^m": {"type": "integer"}}}):
        opened = Tool("any", "", {**QUERY, **allowing}, lambda query, **rest: None)
        assert opened.read_arguments({"query": "a", "more": 1}) == {"query": "a", "more": 1}
        with pytest.raises(BadArguments, match=r"^more: "):
            opened.read_arguments({"query": "a", "more": "1"})


def test_no_schema_passes_a_key_that_the_function_does_not_take() -> None:
    either = {**QUERY, "required": [], "anyOf": [{"required": ["query"]}, {"required": ["limit"]}]}
    tool = Tool("any", "", either, lambda query=None: None)
    assert tool.read_arguments({"query": "a"}) == {"query": "a"}
    with pytest.raises(BadArguments, match=r'^unknown "limit" \(known: query\)'):
        tool.read_arguments({"limit": 1})


def test_a_raw_schema_of_an_older_draft_keeps_its_meaning() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"$ref": "#/definitions/pair"}},
        "definitions": {"pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}},
    }
    tool = Tool("any", "", schema, lambda pair=None: None)
    assert tool.read_arguments({"pair": [1, "a"]}) == {"pair": [1, "a"]}
    with pytest.raises(BadArguments, match=r"^pair\[1\]: 2 is not of type string"):
        tool.read_arguments({"pair": [1, 2]})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ([], '"type": "object"'),
        ({"properties": {}}, '"type": "object"'),
        ({"type": "array"}, '"type": "object"'),
        ({"type": "object", "properties": {"query": {"type": "strin"}}}, r"\$.properties.query.type"),
        ({"type": "object", "required": "query"}, r"\$.required"),
        ({"type": "object", "properties": {"query": {"default": float("nan")}}}, "not JSON"),
        ({"type": "object", "properties": {"query": {"default": {1}}}}, "not JSON"),
        (
            {"type": "object", "properties": {"query": {"$ref": "https://example.org/x.json"}}},
            "https://example.org/x.j",
        ),
        ({"type": "object", "properties": {"query": {"$ref": "#/$defs/missing"}}}, "missing"),
    ],
)
def test_a_raw_schema_that_cannot_work_is_refused(schema: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Tool("any", "", schema, lambda query: None)


@pytest.mark.parametrize(
    ("function", "context_param", "words"),
    [
        (lambda: None, None, "its schema has query, which its function does not take"),
        (lambda query, other: None, None, "its function needs other, which its schema does not require"),
        (lambda query, /: None, None, "its schema has query, which its function does not take"),
        (search, None, "needs context, .* context_param"),
        (search, "ctx", "no parameter 'ctx'"),
        (3, None, "cannot be a tool"),
    ],
)
def test_a_raw_schema_must_fit_its_function(
    function: Callable[..., Any], context_param: str | None, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Tool("any", "", QUERY, function, context_param)


def test_a_raw_schema_may_leave_the_defaults_and_the_context_to_the_function() -> None:
    assert Tool("any", "", QUERY, search, "context").read_arguments({"query": "a"}) == {"query": "a"}
