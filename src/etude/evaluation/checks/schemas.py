"""Values for JSON Schemas: small examples, and values from elsewhere made to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.evaluation.checks.values import as_text, number_of

EXAMPLE_TEXT = "zzqx"  # asks for nothing that is there
_DEPTH = 6
_BY_FORMAT = {"date": "2001-05-14", "date-time": "2001-05-14T10:00:00Z", "time": "10:00:00", "email": "zz@qx.example",
              "uri": "https://zzqx.example/", "uuid": "123e4567-e89b-12d3-a456-426614174000"}  # fmt: skip


def types_of(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema names at its top or in its branches; empty where it takes anything."""
    kind = schema.get("type", [])
    found = {kind} if isinstance(kind, str) else set(kind)
    for branch in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        found |= types_of(branch)
    return found


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    return schema


def example(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Any:
    """A small value that the schema takes, as far as such a simple reading goes; the caller validates it."""
    schema = _resolved(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("examples"):
        return schema["examples"][0]
    branches = [each for each in [*schema.get("anyOf", []), *schema.get("oneOf", [])] if each.get("type") != "null"]
    if branches:
        return example(branches[0], root, depth + 1)
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else list(schema.get("type", ["string"]))
    kind = next((each for each in kinds if each != "null"), "null")
    if kind == "string":
        text = _BY_FORMAT.get(schema.get("format", ""), EXAMPLE_TEXT)
        return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", None)]
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return min(max(least, 1), schema.get("maximum", max(least, 1)))
    if kind == "boolean":
        return True
    if kind == "array":
        items = schema.get("items", {})
        return [example(items, root, depth + 1) for _ in range(schema.get("minItems", 0))] if depth < _DEPTH else []
    if kind == "object" and depth < _DEPTH:
        properties = schema.get("properties", {})
        return {name: example(properties.get(name, {}), root, depth + 1) for name in schema.get("required", [])}
    return None if kind == "null" else {}


def coerce(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """`value` as the schema's type; None where it has no such form."""
    schema = _resolved(schema, root)
    if schema.get("enum"):
        return next((each for each in schema["enum"] if as_text(each) == as_text(value)), None)
    kinds = types_of(schema)
    if not kinds:
        return value
    if "string" in kinds and isinstance(value, str):
        return value
    if kinds & {"integer", "number"} and not isinstance(value, bool) and (number := number_of(value)) is not None:
        if number.is_integer():
            return int(number)
        if "number" in kinds:
            return number
    if "boolean" in kinds and as_text(value).strip().lower() in ("true", "false", "yes", "no"):
        return as_text(value).strip().lower() in ("true", "yes")
    if "array" in kinds:
        branches = [schema, *schema.get("anyOf", []), *schema.get("oneOf", [])]
        items: Mapping[str, Any] = next(
            (each["items"] for each in branches if isinstance(each.get("items"), Mapping)), {}
        )
        listed = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        made = [coerce(each, items, root) for each in listed]
        return None if any(each is None for each in made) else made
    if "object" in kinds and isinstance(value, Mapping):
        return dict(value)
    return as_text(value) if "string" in kinds else None
