"""Checking what a model passed to a tool: strictly, against the JSON Schema that it was shown.

Nothing is repaired: "3" is not an integer, nor is 3.0, and a key that the schema does not name is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from jsonschema import Draft4Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from pydantic import TypeAdapter
from pydantic import ValidationError as TypeMismatch
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from etude.environment.inlining import references
from etude.errors import ConfigError

MAX_SHOWN_ERRORS = 3
MAX_SHOWN_CHARS = 200  # of a value that the model wrote, when it is told that it was wrong

# With one of these a schema says itself which other keys it takes.
_DECIDES_KEYS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "dependentSchemas", "if", "$ref"}
    | {"allOf", "anyOf", "oneOf"}
)


class BadArguments(Exception):
    """The model's arguments do not fit the schema. The text is one line for the model."""


def check_parameters(tool: str, parameters: Any) -> None:
    """Raises ConfigError unless `parameters` is a valid JSON Schema of type object, complete in itself."""
    where = f"tool {tool}: its parameters"
    try:
        json.dumps(parameters, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} are not JSON: {error}") from error
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise ConfigError(f'{where} must be a JSON Schema with "type": "object", not {_shown(parameters)}')
    try:
        _validator_class(parameters).check_schema(parameters)
    except SchemaError as error:
        raise ConfigError(f"{where} are not a valid JSON Schema, at {error.json_path}: {error.message}") from error
    resolver = Registry().with_resource("", _resource(parameters)).resolver()
    for reference in references(parameters):
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            raise ConfigError(
                f'{where} refer to {reference!r}, which is not in them: put it under "$defs", as "#/$defs/..."'
            ) from error


def build_validator(parameters: Mapping[str, Any]) -> Validator:
    """A validator that never fetches anything, and for which an integer has no fraction. A schema that says nothing of
    keys beyond its properties refuses them, as strict function calling does; JSON Schema itself would let them pass."""
    closed = {**parameters} if _DECIDES_KEYS & parameters.keys() else {**parameters, "additionalProperties": False}
    # Draft 4's type checker is the one whose integers are ints: later drafts count 3.0 as one.
    strict = extend(  # type: ignore[no-untyped-call]
        _validator_class(parameters), type_checker=Draft4Validator.TYPE_CHECKER
    )
    return strict(closed, registry=Registry().with_resource("", _resource(closed)))


def read_arguments(
    validator: Validator, adapters: Mapping[str, TypeAdapter[Any]] | None, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments for the function: objects of its types, or (without adapters) a copy of the JSON values.

    Raises BadArguments with one line that names what is wrong and where."""
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
        errors = sorted(validator.iter_errors(arguments), key=lambda error: error.json_path)
    except RecursionError:
        raise BadArguments("nested too deeply") from None
    except UnicodeEncodeError:
        raise BadArguments("a text holds half of a surrogate pair, which is not Unicode") from None
    except ValueError:  # NaN and infinities, which Python's parser lets through
        raise BadArguments("NaN and Infinity are not JSON numbers") from None
    if errors:
        lines = list(dict.fromkeys(_explain(best_match([error]) or error) for error in errors))
        raise BadArguments(_one_line(lines))
    if adapters is None:
        return dict(json.loads(text))
    return {name: _convert(name, adapters[name], value) for name, value in arguments.items()}


def _convert(name: str, adapter: TypeAdapter[Any], value: Any) -> Any:
    try:
        return adapter.validate_json(json.dumps(value), strict=True)
    except TypeMismatch as error:
        lines = [
            f"{'.'.join(map(str, (name, *each['loc'])))}: {each['msg']}"
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise BadArguments(_one_line(lines)) from None


def _validator_class(parameters: Mapping[str, Any]) -> type[Validator]:
    return validator_for(parameters, default=Draft202012Validator)


def _resource(parameters: Mapping[str, Any]) -> Resource[Any]:
    return Resource.from_contents(dict(parameters), default_specification=DRAFT202012)


def _explain(error: ValidationError) -> str:
    """What is wrong, in JSON's words rather than Python's."""
    where = error.json_path.removeprefix("$").removeprefix(".")
    prefix = f"{where}: " if where else ""
    rule: Any = error.validator_value
    instance: Any = error.instance
    schema: Any = error.schema
    match error.validator:
        case "required":
            missing = [name for name in rule if name not in instance]
            return f"{prefix}missing {', '.join(missing)}"
        case "additionalProperties" if rule is False and "patternProperties" not in schema:
            return prefix + unknown_keys(instance, schema.get("properties", {}))
        case "type":
            return f"{prefix}{_shown(instance)} is not of type {rule if isinstance(rule, str) else ' or '.join(rule)}"
        case "enum":
            return f"{prefix}{_shown(instance)} is not one of {', '.join(map(_shown, rule))}"
        case "const":
            return f"{prefix}{_shown(instance)} is not {_shown(rule)}"
        case _:
            return prefix + _short(error.message)


def unknown_keys(given: Iterable[str], known: Collection[str]) -> str:
    unknown = [name for name in given if name not in known]
    return f"unknown {', '.join(map(_shown, unknown))} (known: {', '.join(known) or 'none'})"


def _one_line(lines: list[str]) -> str:
    more = len(lines) - MAX_SHOWN_ERRORS
    shown = [*lines[:MAX_SHOWN_ERRORS], *([f"and {more} more"] if more > 0 else [])]
    return " ".join("; ".join(shown).split())


def _shown(value: Any) -> str:
    return _short(json.dumps(value, ensure_ascii=False, default=repr))


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"
