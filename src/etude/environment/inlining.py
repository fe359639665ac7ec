"""Pydantic's JSON Schemas, made short: references written out, titles dropped.

Small models read a schema as text, and lose the thread at the first "#/$defs/...". Only a type that contains itself
keeps its definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Schema = dict[str, Any]
_PREFIX = "#/$defs/"
# Where JSON Schema keeps further schemas; everything else (default, enum, const, examples) is data and stays as it is.
_BY_NAME = frozenset({"properties", "patternProperties", "$defs"})
_IN_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"})


def inline_references(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    """A short copy of `schema`. Objects with named properties refuse other keys unless they say otherwise, so that
    nothing that a model wrote is dropped unseen."""
    reference = schema.get("$ref")
    if reference is not None:
        name = reference.removeprefix(_PREFIX)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if not _contains_itself(name, definitions):
            return inline_references({**definitions[name], **beside}, definitions)
    short = {key: _inline_value(key, value, definitions) for key, value in schema.items() if _kept(key, value)}
    if "properties" in short:
        short.setdefault("additionalProperties", False)
    short = _merge_plain_types(short)
    return {"type": short["type"], **short} if "type" in short else short


def recursive_definitions(schemas: Sequence[Mapping[str, Any]], definitions: Mapping[str, Schema]) -> dict[str, Schema]:
    """The definitions that inlined `schemas` still refer to, themselves inlined."""
    found: dict[str, Schema] = {}
    open_names = [name for schema in schemas for name in _names(schema, definitions)]
    while open_names:
        name = open_names.pop()
        if name not in found:
            found[name] = inline_references(definitions[name], definitions)
            open_names += _names(found[name], definitions)
    return dict(sorted(found.items()))


def references(node: Any) -> Iterator[str]:
    """Every "$ref" at any depth."""
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def _kept(key: str, value: Any) -> bool:
    # `title` repeats the name of a class; a property of that name has a schema, not a text. `discriminator` is OpenAPI.
    return not (key == "title" and isinstance(value, str)) and key != "discriminator"


def _inline_value(key: str, value: Any, definitions: Mapping[str, Schema]) -> Any:
    if key in _BY_NAME:
        return {name: inline_references(each, definitions) for name, each in value.items()}
    if key in _IN_LIST:
        return [inline_references(each, definitions) for each in value]
    if key in _SINGLE and isinstance(value, Mapping):
        return inline_references(value, definitions)
    return value


def _merge_plain_types(schema: Schema) -> Schema:
    """anyOf of nothing but types (`int | None`) is one short list of types."""
    branches = schema.get("anyOf", [])
    if not branches or any(set(branch) != {"type"} or not isinstance(branch["type"], str) for branch in branches):
        return schema
    types = [branch["type"] for branch in branches]
    return {"type": types} | {key: value for key, value in schema.items() if key != "anyOf"}


def _names(schema: Any, definitions: Mapping[str, Schema]) -> list[str]:
    return [name for each in references(schema) if (name := each.removeprefix(_PREFIX)) in definitions]


def _contains_itself(name: str, definitions: Mapping[str, Schema]) -> bool:
    seen: set[str] = set()
    open_names = _names(definitions[name], definitions)
    while open_names:
        current = open_names.pop()
        if current not in seen:
            seen.add(current)
            open_names += _names(definitions[current], definitions)
    return name in seen
