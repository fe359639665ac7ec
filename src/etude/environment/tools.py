"""Tools: functions that the model may call, and the calling of them.

A model's mistake is a `ToolResult` that the model reads ("Error: ..."). A tool that breaks or takes too long is a
fault: nobody's mistake but the tool's, and never a reward.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict, Unpack, overload

from jsonschema.protocols import Validator
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from etude.environment.arguments import BadArguments, build_validator, check_parameters, read_arguments, unknown_keys
from etude.environment.blame import blame, file_of
from etude.environment.calls import CallKind, Fault, ToolCall, ToolResult
from etude.environment.context import ToolContext
from etude.environment.invoke import invoke, is_async
from etude.environment.schema import function_doc, function_name, function_schema, visible_parameters
from etude.errors import ConfigError

__all__ = ["Cut", "Tool", "ToolContext", "ToolError", "ToolOptions", "render", "run_calls", "tool"]

# (text, max_tokens) -> (text cut to the budget, with a marker that the model sees; its tokens; whether it was cut)
Cut = Callable[[str, int], tuple[str, int, bool]]

NO_OUTPUT = "(no output)"  # what the model reads where a tool returned None: an empty turn would look like a failure
DEFAULT_MAX_OUTPUT_TOKENS = 1000
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what every function-calling API accepts
_MAX_SHOWN_NAME = 100


class ToolError(Exception):
    """Raised by a tool for a mistake of the model; its text goes to the model as "Error: ...". Everything else that a
    tool raises is a fault of the environment."""


class ToolOptions(TypedDict, total=False):
    """What a function's types and docstring do not say, or what replaces them. parameters: a raw JSON Schema instead of
    the function's types; its arguments are then plain JSON values."""

    name: str
    description: str
    parameters: dict[str, Any]
    timeout_s: float
    max_output_tokens: int
    final: bool


@dataclass(frozen=True, eq=False)
class Tool:
    """A function that the model may call. Calling the Tool calls the function.

    parameters: JSON Schema of its arguments. function: sync (run in a thread of its own) or async (must not block).
    context_param: the parameter that gets the `ToolContext`. timeout_s: seconds a call may take. max_output_tokens:
    how much of the result the model sees. final: the call ends the episode, and its return value is the rollout's
    answer. adapters: by parameter, how checked JSON becomes the function's types; None passes plain JSON values.

    Raises ConfigError where name, schema and function cannot work together.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]
    context_param: str | None = None
    timeout_s: float = 30.0
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    final: bool = False
    adapters: Mapping[str, TypeAdapter[Any]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"tool name {self.name!r}: use 1 to 64 letters, digits, '_' and '-' (name='...' sets it)")
        if not (self.timeout_s > 0 and math.isfinite(self.timeout_s)):
            raise ConfigError(f"tool {self.name}: timeout_s is {self.timeout_s!r}, but must be positive seconds")
        if self.max_output_tokens < 1:
            raise ConfigError(
                f"tool {self.name}: max_output_tokens is {self.max_output_tokens!r}, but must be 1 or more"
            )
        check_parameters(self.name, self.parameters)
        self._check_function()

    @classmethod
    def from_function(cls, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """A tool from a typed function (see `etude.environment.schema.function_schema`), or from any function and a
        JSON Schema in `parameters`. Raises ConfigError."""
        if "parameters" not in options:
            schema = function_schema(function, options.get("name"))
            found = {each.name: getattr(schema, each.name) for each in dataclasses.fields(schema)}
        else:
            found = {
                "name": options.get("name") or function_name(function),
                "description": function_doc(function).description,
                "context_param": visible_parameters(function)[1],
            }
        return cls(**{**found, **options, "function": function})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def spec(self) -> dict[str, Any]:
        """The tool in OpenAI's form, as chat templates take it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def read_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function. Raises BadArguments with one line for the model."""
        read = read_arguments(self._validator, self.adapters, arguments)
        if self._taken is not None and not read.keys() <= self._taken:
            raise BadArguments(unknown_keys(read, sorted(self._taken)))
        return read

    @cached_property
    def _validator(self) -> Validator:
        return build_validator(self.parameters)

    @cached_property
    def _filled(self) -> dict[str, inspect.Parameter]:
        """The function's parameters but for the context."""
        try:
            found = dict(inspect.signature(self.function).parameters)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"tool {self.name}: {self.function!r} cannot be a tool: {error}") from error
        if self.context_param is not None and found.pop(self.context_param, None) is None:
            raise ConfigError(f"tool {self.name}: its function has no parameter {self.context_param!r} (context_param)")
        return found

    @cached_property
    def _taken(self) -> frozenset[str] | None:
        """Names that the function takes; None is any."""
        if any(each.kind is each.VAR_KEYWORD for each in self._filled.values()):
            return None
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return frozenset(name for name, each in self._filled.items() if each.kind in by_name)

    def _check_function(self) -> None:
        """So that no call that passes the schema fails on its way into the function."""
        properties = self.parameters.get("properties", {})
        if self._taken is not None and (extra := sorted(properties.keys() - self._taken)):
            raise ConfigError(f"tool {self.name}: its schema has {', '.join(extra)}, which its function does not take")
        needed = {
            name
            for name, each in self._filled.items()
            if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        }
        if missing := sorted(needed - set(self.parameters.get("required", []))):
            raise ConfigError(
                f"tool {self.name}: its function needs {', '.join(missing)}, which its schema does not require "
                "(a parameter for the ToolContext is named by context_param)"
            )


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Decorator that makes a typed function a `Tool`: `@tool`, or `@tool(timeout_s=5, final=True)`."""
    if function is not None:
        return Tool.from_function(function, **options)
    return lambda decorated: Tool.from_function(decorated, **options)


async def run_calls(
    tools: Mapping[str, Tool], calls: Sequence[ToolCall], context: ToolContext, cut: Cut
) -> list[ToolResult]:
    """Run the calls of one turn concurrently, each within its own time limit; results in the order of the calls.

    Every call gets a copy of `context` with its own `call_id` and the shared `state`. A tool that breaks is a result
    with a fault and stops none of the others. Cancelling returns at once; a sync tool's thread is left to itself.
    """
    return list(await asyncio.gather(*(_run_call(tools, call, context, cut) for call in calls)))


def render(value: Any) -> str:
    """A tool's result as the model reads it: text as it is, None as "(no output)", everything else (dataclasses,
    pydantic models, dates, ...) as compact JSON. Raises ValueError for what is not text and cannot be JSON."""
    plain = to_jsonable_python(value)
    if plain is None:
        return NO_OUTPUT
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    text.encode()  # half of a surrogate pair would break the tokenizer later, where nobody knows whose text it was
    return text


async def _run_call(tools: Mapping[str, Tool], call: ToolCall, context: ToolContext, cut: Cut) -> ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(tools) or "none"
        text = f"Error: there is no tool {call.name[:_MAX_SHOWN_NAME]!r}; the tools are: {known}"
        return _told("unknown_tool", text, DEFAULT_MAX_OUTPUT_TOKENS, cut)
    started = time.perf_counter()
    work = asyncio.create_task(_call(tool, call, context))
    work.add_done_callback(_retrieve)
    try:
        # Not wait_for: that would wait on for a tool which does not let itself be cancelled.
        done, _ = await asyncio.wait({work}, timeout=tool.timeout_s)
    finally:
        work.cancel()  # does nothing where it is done
    seconds = time.perf_counter() - started
    if not done:
        return _broke(tool, "timeout", f"took longer than its limit of {tool.timeout_s:g} s", seconds)
    try:
        value, text = work.result()
    except BadArguments as error:
        return _told("bad_arguments", f"Error: bad arguments for {tool.name}: {error}", tool.max_output_tokens, cut)
    except ToolError as error:
        return _told("error", f"Error: {error}", tool.max_output_tokens, cut, seconds=seconds)
    except asyncio.CancelledError:  # of its own making: ours would have come out of the wait above
        return _broke(tool, "exception", "cancelled itself", seconds)
    except Exception as error:  # noqa: BLE001 - the boundary that attributes every fault of a tool
        message = blame(error, file_of(tool.function))
        return _broke(tool, "timeout" if isinstance(error, TimeoutError) else "exception", message, seconds)
    return _told("ok", text, tool.max_output_tokens, cut, value=value, seconds=seconds)


async def _call(tool: Tool, call: ToolCall, context: ToolContext) -> tuple[Any, str]:
    """The value that the function returned, and its text. Rendering is user code too (iterators, custom types), so it
    counts in the time limit and stays off the event loop."""
    arguments = tool.read_arguments(call.arguments)
    if tool.context_param is not None:
        arguments[tool.context_param] = dataclasses.replace(context, call_id=call.id)
    if is_async(tool.function):
        return await invoke(_await_and_render, tool.function(**arguments))
    return await invoke(_call_and_render, tool.function, arguments)  # one thread for both


def _call_and_render(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    value = function(**arguments)
    return _await_and_render(value) if inspect.isawaitable(value) else (value, render(value))


async def _await_and_render(awaitable: Awaitable[Any]) -> tuple[Any, str]:
    value = await awaitable
    return value, render(value) if isinstance(value, str) else await invoke(render, value)


def _told(
    kind: CallKind, text: str, max_tokens: int, cut: Cut, *, value: Any = None, seconds: float = 0.0
) -> ToolResult:
    output, tokens, truncated = cut(text, max_tokens)
    return ToolResult(kind, output, value, seconds, tokens, truncated)


def _broke(tool: Tool, kind: str, message: str, seconds: float) -> ToolResult:
    return ToolResult("fault", "", seconds=seconds, fault=Fault(f"tool:{tool.name}", kind, message))


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Takes what a call raises after nobody waits for it, which asyncio would log as forgotten."""
    if not task.cancelled():
        task.exception()
