"""Running the calls of a turn: concurrent, bounded, in order, and every failure attributed."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import functools
import gc
import itertools
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from etude.environment.calls import Fault, ToolCall, ToolResult
from etude.environment.scenario import Scenario
from etude.environment.tools import NO_OUTPUT, Tool, ToolContext, ToolError, render, run_calls, tool

WAIT_S = 20.0  # far more than anything here takes: reached only where something hangs


def cut(text: str, max_tokens: int) -> tuple[str, int, bool]:
    """A budget in words."""
    words = text.split(" ")
    if len(words) <= max_tokens:
        return text, len(words), False
    return " ".join([*words[: max_tokens - 1], "[cut]"]), max_tokens, True


def new_context() -> ToolContext:
    return ToolContext(Scenario("s1", "train", {"question": "?"}), trace_id="trace_1", state={})


def run(tools: list[Tool], *calls: ToolCall, context: ToolContext | None = None) -> list[ToolResult]:
    by_name = {each.name: each for each in tools}
    work = run_calls(by_name, calls, context or new_context(), cut)
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


def run_one(function: Callable[..., Any], arguments: dict[str, Any] | None = None, **options: Any) -> ToolResult:
    made = function if isinstance(function, Tool) else Tool.from_function(function, **{"name": "it", **options})
    return run([made], ToolCall(made.name, arguments or {}))[0]


# Results


def test_sync_and_async_functions_answer() -> None:
    def double(a: int) -> int:
        return 2 * a

    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"hello {name}"

    tools = [Tool.from_function(double), Tool.from_function(greet)]
    first, second = run(tools, ToolCall("greet", {"name": "you"}), ToolCall("double", {"a": 4}))
    assert (first.kind, first.output, first.value, first.tokens, first.truncated, first.fault) == (
        "ok",
        "hello you",
        "hello you",
        2,
        False,
        None,
    )
    assert (second.kind, second.output, second.value) == ("ok", "8", 8)
    assert first.seconds >= 0
    assert second.seconds > 0


def test_whatever_returns_an_awaitable_is_awaited() -> None:
    async def later(a: int) -> int:
        return a

    class Callee:
        async def __call__(self, a: int) -> int:
            return a

    def wrapped(a: int) -> Awaitable[int]:
        return later(a)

    for function in (functools.partial(later), Callee(), wrapped):
        assert run_one(function, {"a": 7}).value == 7


def test_no_calls_no_results() -> None:
    assert run([]) == []


def test_a_function_gets_the_types_it_asked_for_and_its_own_defaults() -> None:
    class Colour(Enum):
        RED = "red"

    def paint(colour: Any, times: int = 3) -> str:
        return f"{colour.name} {times}"

    paint.__annotations__["colour"] = Colour
    assert run_one(paint, {"colour": "red"}).output == "RED 3"


def test_a_tool_cannot_change_the_record_of_its_call() -> None:
    def typed(names: list[str]) -> int:
        names.append("more")
        return len(names)

    schema = {"type": "object", "properties": {"names": {"type": "array"}}, "required": ["names"]}
    for options in ({}, {"parameters": schema}):
        call = ToolCall("it", {"names": ["a"]})
        result = run([Tool.from_function(typed, **{"name": "it", **options})], call)[0]
        assert (result.value, call.arguments) == (2, {"names": ["a"]})


@dataclasses.dataclass
class Hit:
    id: str
    day: datetime.date


class Snippet(BaseModel):
    text: str


class Kind(StrEnum):
    MAIL = "mail"


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, NO_OUTPUT),
        ([], "[]"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, None], "é": "ü"}, '{"a":[1,null],"é":"ü"}'),
        ([Hit("1", datetime.date(2001, 5, 31))], '[{"id":"1","day":"2001-05-31"}]'),
        (Snippet(text="“x”"), '{"text":"“x”"}'),
        (Kind.MAIL, "mail"),
        (datetime.date(2001, 5, 31), "2001-05-31"),
        ((1, "a"), '[1,"a"]'),
        ({3}, "[3]"),
    ],
)
def test_a_result_is_rendered_for_the_model_and_kept_as_it_was(value: Any, output: str) -> None:
    def give() -> Any:
        return value

    result = run_one(give)
    assert (result.kind, result.output) == ("ok", output)
    assert result.value is value


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
        max_leaves=10,
    ).filter(lambda value: isinstance(value, list | dict))
)
def test_rendered_json_is_compact_and_reads_back(value: Any) -> None:
    text = render(value)
    assert json.loads(text) == value
    assert text == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


def test_output_is_cut_to_the_tools_own_budget_and_the_value_is_not() -> None:
    def talk() -> str:
        return "a b c d e"

    result = run_one(talk, max_output_tokens=3)
    assert (result.output, result.tokens, result.truncated, result.value) == ("a b [cut]", 3, True, "a b c d e")


# The model's mistakes


def test_a_tool_error_is_told_to_the_model_within_the_budget() -> None:
    class NotFound(ToolError): ...

    def read(id: str) -> str:
        raise NotFound(f"no mail {id} here")

    result = run_one(read, {"id": "7"})
    assert (result.kind, result.output, result.value, result.fault) == ("error", "Error: no mail 7 here", None, None)
    assert run_one(read, {"id": "7"}, max_output_tokens=2).output == "Error: [cut]"


def test_an_unknown_tool_is_told_the_names_of_those_that_exist() -> None:
    def search(a: int) -> int:
        return a

    def read(a: int) -> int:
        return a

    tools = [Tool.from_function(search), Tool.from_function(read)]
    result = run(tools, ToolCall("serach", {}))[0]
    assert (result.kind, result.output) == (
        "unknown_tool",
        "Error: there is no tool 'serach'; the tools are: search, read",
    )
    assert result.tokens == len(result.output.split(" "))
    assert len(run(tools, ToolCall("x" * 5000, {}))[0].output) < 200
    assert run([], ToolCall("a", {}))[0].output.endswith("the tools are: none")


def test_bad_arguments_never_reach_the_function() -> None:
    seen: list[Any] = []

    def search(limit: int) -> None:
        seen.append(limit)

    result = run_one(search, {"limit": "3"})
    assert (result.kind, result.output, result.fault) == (
        "bad_arguments",
        'Error: bad arguments for it: limit: "3" is not of type integer',
        None,
    )
    assert seen == []


# Faults


def bad_key() -> int:
    return {}["missing"]  # type: ignore[no-any-return]


def gives_object() -> object:
    return object()


def gives_half_a_pair() -> str:
    return "\ud800"


def stops_iteration() -> None:
    raise StopIteration


def exits() -> None:
    sys.exit(3)


async def exits_async() -> None:
    sys.exit(3)


def cancels_in_thread() -> None:
    raise asyncio.CancelledError


async def cancels_itself() -> None:
    raise asyncio.CancelledError


def times_out_itself() -> None:
    raise TimeoutError("the server did not answer")


class Picky(BaseModel):
    a: int

    @field_validator("a")
    @classmethod
    def broken(cls, a: int) -> int:
        raise KeyError("a bug in a validator")


def broken_type(picky: Picky) -> None: ...


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "words"),
    [
        (bad_key, {}, "exception", ["KeyError: 'missing'", "test_tool_calls.py, line"]),
        (gives_object, {}, "exception", ["Unable to serialize unknown type: <class 'object'>"]),
        (gives_half_a_pair, {}, "exception", ["surrogates not allowed"]),
        (stops_iteration, {}, "exception", ["StopIteration"]),
        (exits, {}, "exception", ["SystemExit"]),
        (exits_async, {}, "exception", ["sys.exit(3)"]),
        (cancels_in_thread, {}, "exception", ["CancelledError"]),
        (cancels_itself, {}, "exception", ["cancelled itself"]),
        (times_out_itself, {}, "timeout", ["the server did not answer"]),
        (broken_type, {"picky": {"a": 1}}, "exception", ["a bug in a validator"]),
    ],
)
def test_a_tool_that_breaks_is_a_fault(
    function: Callable[..., Any], arguments: dict[str, Any], kind: str, words: list[str]
) -> None:
    result = run_one(function, arguments)
    assert (result.kind, result.value) == ("fault", None)
    assert result.fault is not None
    assert (result.fault.where, result.fault.kind) == ("tool:it", kind)
    assert [word for word in words if word not in result.fault.message] == []


def test_a_fault_names_the_tools_own_line_not_the_librarys() -> None:
    def parse(text: str) -> Any:
        return json.loads(text)

    fault = run_one(parse, {"text": "{"}).fault
    assert fault is not None
    line = parse.__code__.co_firstlineno + 1
    assert fault.message.endswith(f"test_tool_calls.py, line {line})")


def test_a_call_that_takes_too_long_is_a_fault() -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait(WAIT_S)

    async def hang_async() -> None:
        await asyncio.Event().wait()

    def endless() -> Any:  # rendering counts too, and stays off the event loop
        return itertools.takewhile(lambda _: not release.is_set(), itertools.repeat(1))

    try:
        for function in (hang, hang_async, endless):
            result = run_one(function, timeout_s=0.05)
            assert result.fault == Fault("tool:it", "timeout", "took longer than its limit of 0.05 s")
            assert (result.kind, result.output) == ("fault", "")
    finally:
        release.set()


def test_an_async_tool_that_ignores_cancellation_is_left_behind() -> None:
    complaints: list[dict[str, Any]] = []

    async def main() -> ToolResult:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        ignored, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def stubborn() -> None:
            try:
                await release.wait()
            except asyncio.CancelledError:
                ignored.set()
                await asyncio.wait_for(release.wait(), WAIT_S)
            ended.set()
            raise ValueError("nobody is there to hear it")

        tools = {"stubborn": Tool.from_function(stubborn, timeout_s=0.05)}
        result = (await run_calls(tools, [ToolCall("stubborn", {})], new_context(), cut))[0]
        await ignored.wait()
        release.set()
        await ended.wait()
        return result

    assert asyncio.run(asyncio.wait_for(main(), WAIT_S)).kind == "fault"
    gc.collect()  # asyncio complains of a forgotten exception when its task goes
    assert complaints == []


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_after_the_event_loop_ends_quietly() -> None:
    release, threads = threading.Event(), []

    def late() -> str:
        threads.append(threading.current_thread())
        release.wait(WAIT_S)
        raise ValueError("too late")

    assert run_one(late, timeout_s=0.05).kind == "fault"
    release.set()
    threads[0].join(WAIT_S)
    assert not threads[0].is_alive()


# Together


def test_calls_of_one_turn_run_at_the_same_time_and_answer_in_call_order() -> None:
    meeting = threading.Barrier(3)
    last_is_done = asyncio.Event()

    def meet(name: str) -> str:
        meeting.wait(WAIT_S)  # passes only when all three are inside
        return name

    async def first() -> str:
        await last_is_done.wait()
        return "first"

    async def last() -> str:
        last_is_done.set()
        return "last"

    tools = [Tool.from_function(each) for each in (meet, first, last)]
    calls = [ToolCall("first", {}), *(ToolCall("meet", {"name": name}) for name in "abc"), ToolCall("last", {})]
    assert [result.output for result in run(tools, *calls)] == ["first", "a", "b", "c", "last"]


def test_one_fault_stops_none_of_the_others() -> None:
    broken = asyncio.Event()

    async def breaks() -> None:
        broken.set()
        raise RuntimeError

    async def survives() -> str:
        await broken.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        return "fine"

    tools = [Tool.from_function(breaks), Tool.from_function(survives)]
    calls = [ToolCall("survives", {}), ToolCall("breaks", {}), ToolCall("nothing", {}), ToolCall("survives", {})]
    results = run(tools, *calls)
    assert [result.kind for result in results] == ["ok", "fault", "unknown_tool", "ok"]


def test_each_call_has_its_own_id_and_all_share_the_state() -> None:
    seen: dict[str, ToolContext] = {}

    def note(n: int, context: ToolContext) -> None:
        context.state[f"n{n}"] = n
        seen[context.call_id] = context

    context = new_context()
    run([Tool.from_function(note)], *(ToolCall("note", {"n": n}, f"call_{n}") for n in range(3)), context=context)
    assert sorted(seen) == ["call_0", "call_1", "call_2"]
    assert context.state == {"n0": 0, "n1": 1, "n2": 2}
    assert context.call_id == ""
    for each in seen.values():
        assert each.scenario is context.scenario
        assert each.trace_id == "trace_1"
        assert each.state is context.state


def test_the_model_cannot_fill_the_context() -> None:
    def note(context: ToolContext) -> str:
        return context.trace_id

    assert run_one(note).output == "trace_1"
    assert run_one(note, {"context": {"trace_id": "mine"}}).kind == "bad_arguments"


def test_context_variables_reach_the_threads_of_sync_tools() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    def look() -> str:
        return variable.get()

    async def main() -> list[ToolResult]:
        variable.set("set")
        return await run_calls({"look": Tool.from_function(look)}, [ToolCall("look", {})], new_context(), cut)

    assert asyncio.run(main())[0].output == "set"


def test_cancelling_reaches_the_tools_and_does_not_wait_for_threads() -> None:
    release, inside = threading.Event(), threading.Event()
    cleaned_up: list[str] = []

    def stuck() -> None:
        inside.set()
        release.wait(WAIT_S)

    async def polite(inside_too: asyncio.Event) -> None:
        try:
            inside_too.set()
            await asyncio.Event().wait()
        finally:
            cleaned_up.append("polite")

    async def main() -> None:
        inside_too = asyncio.Event()
        tools = {
            "stuck": Tool.from_function(stuck),
            "polite": Tool("polite", "", {"type": "object"}, functools.partial(polite, inside_too)),
        }
        calls = [ToolCall("stuck", {}), ToolCall("polite", {})]
        work = asyncio.create_task(run_calls(tools, calls, new_context(), cut))
        await inside_too.wait()
        while not inside.is_set():
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    try:
        asyncio.run(asyncio.wait_for(main(), WAIT_S))
        assert cleaned_up == ["polite"]
        assert not release.is_set()
    finally:
        release.set()


def test_many_hanging_tools_take_no_worker_from_the_others() -> None:
    release = threading.Event()

    @tool(timeout_s=0.2)
    def hang() -> None:
        release.wait(WAIT_S)

    @tool
    def answer() -> str:
        return "here"

    try:
        results = run([hang, answer], *[ToolCall("hang", {})] * 60, ToolCall("answer", {}))
    finally:
        release.set()
    assert [result.kind for result in results] == ["fault"] * 60 + ["ok"]


def test_a_tool_that_never_returns_does_not_keep_the_process() -> None:
    script = """
        import asyncio, threading
        from etude.environment.calls import ToolCall
        from etude.environment.scenario import Scenario
        from etude.environment.tools import ToolContext, run_calls, tool

        @tool(timeout_s=0.05)
        def hang() -> None:
            threading.Event().wait()

        context = ToolContext(Scenario("s", "train", {}), "trace", {})
        work = run_calls({"hang": hang}, [ToolCall("hang", {})], context, lambda text, _: (text, 0, False))
        print(asyncio.run(work)[0].fault.kind)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=3 * WAIT_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "timeout\n", "")
