"""Running the calls of a turn: concurrent, bounded, in order, and every failure attributed."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import itertools
import json
import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from etude.environment.calls import Fault, ToolCall, ToolResult
from etude.environment.tools import Cut, Tool, ToolContext, run_calls, tool

WAIT_S = 20.0  # far more than anything here takes: reached only where something hangs

RunOne = Callable[..., ToolResult]
RunTools = Callable[..., list[ToolResult]]


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
    run_one: RunOne, function: Callable[..., Any], arguments: dict[str, Any], kind: str, words: list[str]
) -> None:
    result = run_one(function, arguments)
    assert (result.kind, result.value) == ("fault", None)
    assert result.fault is not None
    assert (result.fault.where, result.fault.kind) == ("tool:it", kind)
    assert [word for word in words if word not in result.fault.message] == []


def test_a_fault_names_the_tools_own_line_not_the_librarys(run_one: RunOne) -> None:
    def parse(text: str) -> Any:
        return json.loads(text)

    fault = run_one(parse, {"text": "{"}).fault
    assert fault is not None
    line = parse.__code__.co_firstlineno + 1
    assert fault.message.endswith(f"test_tool_calls.py, line {line})")


def test_a_call_that_takes_too_long_is_a_fault(run_one: RunOne) -> None:
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


def test_an_async_tool_that_ignores_cancellation_is_left_behind(context: ToolContext, cut: Cut) -> None:
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
        result = (await run_calls(tools, [ToolCall("stubborn", {})], context, cut))[0]
        await ignored.wait()
        release.set()
        await ended.wait()
        return result

    assert asyncio.run(asyncio.wait_for(main(), WAIT_S)).kind == "fault"
    gc.collect()  # asyncio complains of a forgotten exception when its task goes
    assert complaints == []


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_after_the_event_loop_ends_quietly(run_one: RunOne) -> None:
    release, threads = threading.Event(), queue.Queue[threading.Thread]()

    def late() -> str:
        threads.put(threading.current_thread())
        release.wait(WAIT_S)
        raise ValueError("too late")

    assert run_one(late, timeout_s=0.05).kind == "fault"
    release.set()
    thread = threads.get(timeout=WAIT_S)
    thread.join(WAIT_S)
    assert not thread.is_alive()


# Together


def test_calls_of_one_turn_run_at_the_same_time_and_answer_in_call_order(run_tools: RunTools) -> None:
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
    assert [result.output for result in run_tools(tools, *calls)] == ["first", "a", "b", "c", "last"]


def test_one_fault_stops_none_of_the_others(run_tools: RunTools) -> None:
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
    results = run_tools(tools, *calls)
    assert [result.kind for result in results] == ["ok", "fault", "unknown_tool", "ok"]


def test_each_call_has_its_own_id_and_all_share_the_state(run_tools: RunTools, context: ToolContext) -> None:
    seen: dict[str, ToolContext] = {}

    def note(n: int, context: ToolContext) -> None:
        context.state[f"n{n}"] = n
        seen[context.call_id] = context

    run_tools([Tool.from_function(note)], *(ToolCall("note", {"n": n}, f"call_{n}") for n in range(3)))
    assert sorted(seen) == ["call_0", "call_1", "call_2"]
    assert context.state == {"n0": 0, "n1": 1, "n2": 2}
    assert context.call_id == ""
    for each in seen.values():
        assert each.scenario is context.scenario
        assert each.trace_id == "trace_1"
        assert each.state is context.state


def test_the_model_cannot_fill_the_context(run_one: RunOne) -> None:
    def note(context: ToolContext) -> str:
        return context.trace_id

    assert run_one(note).output == "trace_1"
    assert run_one(note, {"context": {"trace_id": "mine"}}).kind == "bad_arguments"


def test_context_variables_reach_the_threads_of_sync_tools(context: ToolContext, cut: Cut) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    def look() -> str:
        return variable.get()

    async def main() -> list[ToolResult]:
        variable.set("set")
        return await run_calls({"look": Tool.from_function(look)}, [ToolCall("look", {})], context, cut)

    assert asyncio.run(main())[0].output == "set"


def test_cancelling_reaches_the_tools_and_does_not_wait_for_threads(context: ToolContext, cut: Cut) -> None:
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
        work = asyncio.create_task(run_calls(tools, calls, context, cut))
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


def test_many_hanging_tools_take_no_worker_from_the_others(run_tools: RunTools) -> None:
    release = threading.Event()

    @tool(timeout_s=0.2)
    def hang() -> None:
        release.wait(WAIT_S)

    @tool
    def answer() -> str:
        return "here"

    try:
        results = run_tools([hang, answer], *[ToolCall("hang", {})] * 60, ToolCall("answer", {}))
    finally:
        release.set()
    assert [result.kind for result in results] == ["fault"] * 60 + ["ok"]


def test_a_tool_that_never_returns_does_not_keep_the_process() -> None:
    script = """
        import asyncio, threading
        from etude.environment.calls import ToolCall
        from etude.environment.scenario import Scenario
        from etude.environment.tools import Cut, ToolContext, run_calls, tool

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
