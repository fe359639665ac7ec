"""The schema of a typed function is what a small model can read, and refuses what it cannot describe."""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from etude.environment.context import ToolContext
from etude.environment.schema import function_schema
from etude.errors import ConfigError

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 1.5


class Period(TypedDict, total=False):
    after: Required[Annotated[str, Field(description="first day")]]
    before: str


class Route(BaseModel):
    """A way through points."""

    points: list[Point]
    title: str = "unnamed"


class Tree(BaseModel):
    children: list[Tree] = []
    at: Point | None = None


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Odd(BaseModel):
    inner: Any = object()


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 1.5}},
    "required": ["x"],
    "additionalProperties": False,
}


def properties_of(function: Callable[..., Any]) -> dict[str, Any]:
    return function_schema(function).parameters["properties"]


def test_a_plain_function_as_the_model_sees_it() -> None:
    def search(keywords: list[str], context: ToolContext, limit: int = 10, sender: str | None = None) -> list[str]:
        """Search the mail.

        Args:
            keywords: words that must all occur.
            context: for Etude.
            limit: at most so many.
        """
        return keywords

    schema = function_schema(search)
    assert (schema.name, schema.description, schema.context_param) == ("search", "Search the mail.", "context")
    assert schema.parameters == {
        "type": "object",
        "properties": {
            "keywords": {
                "type": "array",
                "items": {"type": "string"},
                "description": "words that must all occur.",
            },
            "limit": {"type": "integer", "description": "at most so many.", "default": 10},
            "sender": {"type": ["string", "null"], "default": None},
        },
        "required": ["keywords"],
    }


def test_nested_types_are_written_out_without_titles() -> None:
    def tool(
        point: Point,
        route: Route,
        period: Period,
        colour: Colour,
        size: Literal["s", "m", 3],
        pair: tuple[int, str],
        many: tuple[float, ...],
        table: dict[str, int],
        anything: Any,
        either: int | str,
        maybe: Point | None,
    ) -> None: ...

    assert properties_of(tool) == {
        "point": POINT,
        "route": {
            "type": "object",
            "properties": {
                "points": {"type": "array", "items": POINT},
                "title": {"type": "string", "default": "unnamed"},
            },
            "required": ["points"],
            "additionalProperties": False,
            "description": "A way through points.",
        },
        "period": {
            "type": "object",
            "properties": {"after": {"type": "string", "description": "first day"}, "before": {"type": "string"}},
            "required": ["after"],
            "additionalProperties": False,
        },
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "size": {"enum": ["s", "m", 3]},
        "pair": {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "minItems": 2,
            "maxItems": 2,
        },
        "many": {"type": "array", "items": {"type": "number"}},
        "table": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": {},
        "either": {"type": ["integer", "string"]},
        "maybe": {"anyOf": [POINT, {"type": "null"}]},
    }


def test_the_type_of_a_property_comes_first() -> None:
    def tool(colour: Annotated[Colour, "paint"] = Colour.RED, n: Annotated[int, Field(ge=1)] = 1) -> None: ...

    properties = properties_of(tool)
    assert list(properties["colour"]) == ["type", "enum", "description", "default"]
    assert list(properties["n"]) == ["type", "minimum", "default"]


def test_only_a_type_that_contains_itself_keeps_its_definition() -> None:
    def tool(tree: Tree, point: Point) -> None: ...

    parameters = function_schema(tool).parameters
    assert parameters["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert list(parameters["$defs"]) == ["Tree"]
    assert parameters["$defs"]["Tree"]["properties"]["at"]["anyOf"][0] == POINT
    assert Draft202012Validator(parameters).is_valid({"tree": {"children": [{"at": {"x": 1}}]}, "point": {"x": 1}})
    assert not Draft202012Validator(parameters).is_valid({"tree": {"children": [{"at": {}}]}, "point": {"x": 1}})


def test_classes_of_one_name_are_not_mixed_up() -> None:
    def other_point() -> type:
        @dataclasses.dataclass
        class Point:
            z: str

        return Point

    other = other_point()

    def tool(a: Any, b: Any) -> None: ...

    tool.__annotations__ = {"a": list[Point], "b": list[other]}  # type: ignore[valid-type]
    properties = properties_of(tool)
    assert list(properties["a"]["items"]["properties"]) == ["x", "y"]
    assert list(properties["b"]["items"]["properties"]) == ["z"]


def test_a_discriminated_union_keeps_no_reference() -> None:
    def tool(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    pet = properties_of(tool)["pet"]
    assert set(pet) == {"oneOf"}
    assert [branch["properties"]["kind"]["const"] for branch in pet["oneOf"]] == ["cat", "dog"]


def test_a_model_that_allows_more_keys_says_so() -> None:
    def tool(loose: Loose) -> None: ...

    assert properties_of(tool)["loose"]["additionalProperties"] is True


def test_a_description_is_the_annotations_then_the_docstrings_then_the_classes() -> None:
    def tool(
        a: Annotated[int, "from a text"],
        b: Annotated[int, Field(description="from a field", ge=1)],
        c: int,
        d: Route,
        e: Route,
    ) -> None:
        """Do.

        Args:
            a: not this
            b: not this
            c: from the docstring
            d: a route of mine
        """

    found = {name: each.get("description") for name, each in properties_of(tool).items()}
    assert found == {
        "a": "from a text",
        "b": "from a field",
        "c": "from the docstring",
        "d": "a route of mine",
        "e": "A way through points.",
    }


def test_defaults_are_shown_as_json() -> None:
    def tool(
        colour: Colour = Colour.BLUE,
        point: Point = Point(1),  # noqa: B008
        names: Sequence[str] = ("a",),
        weight: float = 1,
    ) -> None: ...

    found = {name: each["default"] for name, each in properties_of(tool).items()}
    assert found == {"colour": "blue", "point": {"x": 1, "y": 1.5}, "names": ["a"], "weight": 1.0}
    assert "required" not in function_schema(tool).parameters


def test_a_parameter_called_title_is_not_noise() -> None:
    def tool(title: str, default: int) -> None: ...

    assert properties_of(tool) == {"title": {"type": "string"}, "default": {"type": "integer"}}


def test_a_function_without_parameters_has_an_empty_object() -> None:
    def tool() -> None: ...

    assert function_schema(tool).parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "annotation", [ToolContext, ToolContext | None, Annotated[ToolContext, "for Etude"], "ToolContext"]
)
def test_the_context_is_recognised_by_its_annotation(annotation: Any) -> None:
    def tool(a: int, me: Any = None) -> None: ...

    tool.__annotations__ = {"a": int, "me": annotation}
    schema = function_schema(tool)
    assert schema.context_param == "me"
    assert list(schema.parameters["properties"]) == ["a"]


def test_methods_partials_and_objects_are_functions_too() -> None:
    class Box:
        def look(self, where: str) -> str:
            """Look into it."""
            return where

        def __call__(self, what: int) -> int:
            """Call it."""
            return what

    bound = function_schema(Box().look)
    assert (bound.name, bound.description, list(bound.parameters["properties"])) == (
        "look",
        "Look into it.",
        ["where"],
    )
    partial = function_schema(functools.partial(Box().look), "peek")
    assert (partial.name, partial.description) == ("peek", "Look into it.")
    assert function_schema(Box(), "box").description == "Call it."
    with pytest.raises(ConfigError, match="has no name that a model could call"):
        function_schema(functools.partial(Box().look))


def no_annotation(query, limit: int = 3):  # type: ignore[no-untyped-def]
    ...


def collects(*queries: str) -> None: ...
def takes_any(**options: str) -> None: ...
def positional_only(query: str, /) -> None: ...
def takes_file(file: io.TextIOWrapper) -> None: ...
def takes_function(key: Callable[[int], int]) -> None: ...
def two_contexts(a: ToolContext, b: ToolContext) -> None: ...
def only_for_type_checkers(amount: OnlyForTypeCheckers) -> None: ...
def none_for_text(query: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
def hides_a_default(odd: Odd) -> None: ...
def infinite(limit: float = float("inf")) -> None: ...
def outside_literal(size: Literal["s"] = "m") -> None: ...  # type: ignore[assignment]
def object_default(limit: int = object()) -> None: ...  # type: ignore[assignment]
def field_default(limit: int = Field(3, ge=1)) -> None: ...
def context_by_position(context: ToolContext, /) -> None: ...


def misdescribed(query: str) -> None:
    """Search.

    Args:
        keywords: words.
    """


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_annotation, ["no_annotation", "'query'", "no type", "query: str"]),
        (collects, ["collects", "'queries'", "take one list"]),
        (takes_any, ["takes_any", "'options'", "JSON Schema"]),
        (positional_only, ["positional_only", "'query'", "remove the '/'"]),
        (context_by_position, ["context_by_position", "'context'", "remove the '/'"]),
        (takes_file, ["takes_file", "'file'", "TextIOWrapper", "cannot be a JSON Schema", "dataclass"]),
        (takes_function, ["takes_function", "'key'", "Callable", "cannot be a JSON Schema"]),
        (two_contexts, ["two_contexts", "a, b", "keep one"]),
        (only_for_type_checkers, ["only_for_type_checkers", "OnlyForTypeCheckers", "TYPE_CHECKING"]),
        (none_for_text, ["none_for_text", "None", "'query'", "str", "| None"]),
        (hides_a_default, ["hides_a_default", "'odd'", "Odd", "is not JSON serializable"]),
        (infinite, ["infinite", "inf", "'limit'", "float"]),
        (outside_literal, ["outside_literal", "'m'", "'size'"]),
        (object_default, ["object_default", "'limit'", "int"]),
        (field_default, ["field_default", "'limit'", "int"]),
        (misdescribed, ["misdescribed", "'keywords'", "query"]),
    ],
)
def test_what_cannot_be_a_schema_is_refused_by_name(function: Callable[..., Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        function_schema(function)
    assert [word for word in words if word not in str(refused.value)] == []
