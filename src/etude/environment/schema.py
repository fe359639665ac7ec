"""JSON Schema of a typed Python function: what the model is told about a tool, and how its arguments become objects.

Pydantic knows the types; this module only decides what a small model reads well: no titles, references written out,
descriptions from the docstring.
"""

from __future__ import annotations

import functools
import inspect
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import PydanticJsonSchemaWarning
from pydantic_core import PydanticSerializationError

from etude.environment.context import ToolContext
from etude.environment.docstrings import Docstring, parse_docstring
from etude.environment.inlining import inline_references, recursive_definitions
from etude.errors import ConfigError

_REFUSED_KINDS: dict[inspect._ParameterKind, str] = {
    inspect.Parameter.VAR_POSITIONAL: "collects positional arguments, but a model passes every argument by name: "
    "take one list instead",
    inspect.Parameter.VAR_KEYWORD: "takes any name, which no schema can describe: name the parameters, or give the "
    "tool a JSON Schema (parameters={...})",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but a model passes every argument by name: remove the '/'",
}


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """parameters: a JSON Schema of type object, without the context. context_param: the parameter that gets the
    `ToolContext`, if any. adapters: by parameter, what turns checked JSON into the annotated type."""

    name: str
    description: str
    parameters: dict[str, Any]
    context_param: str | None
    adapters: Mapping[str, TypeAdapter[Any]]


def function_schema(function: Callable[..., Any], name: str | None = None) -> FunctionSchema:
    """The schema of a function whose parameters are all typed. name: instead of the function's own.

    A parameter's description is that of its annotation (`Annotated[str, "..."]` or pydantic's `Field(description=)`),
    else the docstring's Args, else the docstring of its class. A parameter with a default is optional.

    Raises ConfigError, naming function, parameter and type, for a parameter without annotation, `*args`, `**kwargs`,
    positional-only parameters, a type that has no JSON Schema, a default that does not fit its type, and a docstring
    that describes a parameter which is not there.
    """
    name = function_name(function) if name is None else name
    parameters, context_param = visible_parameters(function)
    doc = function_doc(function)
    _check_documented(name, doc.parameters, [each.name for each in parameters], context_param)
    adapters = {each.name: _adapter(name, each) for each in parameters}
    schemas, shared = TypeAdapter.json_schemas([(key, "validation", adapter) for key, adapter in adapters.items()])
    definitions: dict[str, Any] = shared.get("$defs", {})

    properties: dict[str, Any] = {}
    for each in parameters:
        properties[each.name] = described = inline_references(schemas[each.name, "validation"], definitions)
        own = described.pop("description", None)
        if description := _annotated_description(each.annotation) or doc.parameters.get(each.name) or own:
            described["description"] = description
        if each.default is not each.empty:
            described["default"] = _json_default(name, each, adapters[each.name])
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [each.name for each in parameters if each.default is each.empty]:
        schema["required"] = required
    if recursive := recursive_definitions(list(properties.values()), definitions):
        schema["$defs"] = recursive
    return FunctionSchema(name, doc.description, schema, context_param, adapters)


def function_name(function: Callable[..., Any]) -> str:
    """Raises ConfigError for something that has no name of its own (a partial, an object with `__call__`)."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise ConfigError(f"{function!r} has no name that a model could call: give it one with name='...'")
    return name


def function_doc(function: Callable[..., Any]) -> Docstring:
    """What the author wrote about the code that is called, also behind a partial or an object with `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return parse_docstring((function if inspect.isroutine(function) else type(function).__call__).__doc__)


def visible_parameters(function: Callable[..., Any]) -> tuple[list[inspect.Parameter], str | None]:
    """The parameters that the model fills, and the name of the one that gets the `ToolContext`. Annotations are
    evaluated. Raises ConfigError where they cannot be, and for more than one context."""
    label = getattr(function, "__qualname__", repr(function))
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:  # whatever evaluating an annotation raises
        raise ConfigError(
            f"tool {label}: its signature cannot be read ({type(error).__name__}: {error}). Annotations must name "
            "things that exist at run time in the function's module: not under TYPE_CHECKING, not inside a function"
        ) from error
    contexts = [each for each in signature.parameters.values() if _is_context(each.annotation)]
    if len(contexts) > 1:
        raise ConfigError(f"tool {label}: {', '.join(each.name for each in contexts)} are all ToolContext; keep one")
    if contexts and contexts[0].kind in _REFUSED_KINDS:
        raise ConfigError(f"tool {label}: parameter {contexts[0].name!r} {_REFUSED_KINDS[contexts[0].kind]}")
    context_param = contexts[0].name if contexts else None
    return [each for each in signature.parameters.values() if each.name != context_param], context_param


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return ToolContext in get_args(annotation)
    return annotation is ToolContext


def _check_documented(tool: str, documented: Mapping[str, str], names: Sequence[str], context: str | None) -> None:
    for name in documented:
        if name not in names and name != context:
            raise ConfigError(
                f"tool {tool}: its docstring describes {name!r}, but its parameters are: {', '.join(names) or 'none'}"
            )


def _adapter(tool: str, parameter: inspect.Parameter) -> TypeAdapter[Any]:
    where = f"tool {tool}: parameter {parameter.name!r}"
    if reason := _REFUSED_KINDS.get(parameter.kind):
        raise ConfigError(f"{where} {reason}")
    if parameter.annotation is parameter.empty:
        raise ConfigError(
            f"{where} has no type: annotate it ({parameter.name}: str), or with ToolContext if Etude is to fill it"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PydanticJsonSchemaWarning)
            adapter = TypeAdapter(parameter.annotation)
            adapter.json_schema()
    except (PydanticUserError, PydanticJsonSchemaWarning, TypeError, NameError) as error:
        reason = str(error).splitlines()[0].split(". ")[0].rstrip(".")  # then come hints for pydantic's own users
        raise ConfigError(
            f"{where} has the type {inspect.formatannotation(parameter.annotation)}, which cannot be a JSON Schema "
            f"({reason}). Use JSON-like types (str, int, float, bool, list, dict, Literal, Enum, "
            "TypedDict, a dataclass, a pydantic model), or ToolContext's state for objects that the model must not make"
        ) from error
    return adapter


def _annotated_description(annotation: Any) -> str | None:
    if get_origin(annotation) is not Annotated:
        return None
    for note in get_args(annotation)[1:]:
        if isinstance(note, str):
            return note
        if isinstance(note, FieldInfo) and note.description:
            return note.description
    return None


def _json_default(tool: str, parameter: inspect.Parameter, adapter: TypeAdapter[Any]) -> Any:
    """The default as JSON. Checked like an argument, so that the schema never shows what the tool would refuse."""
    try:
        text = adapter.dump_json(parameter.default, warnings="error")
        adapter.validate_json(text, strict=True)
    except (PydanticSerializationError, ValidationError) as error:
        raise ConfigError(
            f"tool {tool}: the default {parameter.default!r} of parameter {parameter.name!r} does not fit its type "
            f"{inspect.formatannotation(parameter.annotation)}: change one of them (a default of None needs '| None')"
        ) from error
    return json.loads(text)
