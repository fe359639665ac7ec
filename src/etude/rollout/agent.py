"""The agent loop: one attempt at one scenario. Call the model, parse its calls, run the tools, append, until it ends.

The order of checks in a turn, first to last: tokens in all, the turn's own length, the wall clock, parsing, the budget
of tool calls, the calls themselves, the number of turns. A fault of a tool or of the environment ends the attempt as
`env_fault`; what the model did wrong ends it as `policy_fault` or goes on with an error text (`on_bad_call`).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic_core import to_jsonable_python

from etude.engine.protocol import Engine, EngineFault, Sample, SampleRequest
from etude.environment.blame import blame
from etude.environment.calls import Fault, ToolCall, ToolResult
from etude.environment.environment import Environment, StateError, state_snapshot
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, run_calls
from etude.rollout.chat import ChatFormat, ParsedTurn
from etude.rollout.clock import Clock
from etude.rollout.drift import measure_drift
from etude.rollout.messages import Message
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import CallRecord, Rollout
from etude.rollout.trajectory import TrajectoryBuilder

SETUP_TIMEOUT_S = 60.0
NO_CALL_TEXT = "Error: your turn held no tool call. Call one of the tools; finish with {final}."


@dataclass(frozen=True, slots=True)
class Attempt:
    """What makes an attempt reproducible. key: names it for the engine and orders it in lock-step; equal keys and seeds
    give equal samples. trace_id: names it for tools and graders, and is never used twice."""

    key: str
    trace_id: str
    group: str
    index: int
    seed: int
    temperature: float = 1.0


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from anything printable, the same in every process."""
    digest = hashlib.blake2b(":".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class _EndOfAttempt(Exception):
    """Leaves the loop with an outcome; carries no traceback to a person."""

    def __init__(self, outcome: Outcome, stop: Stop, fault: Fault | None = None) -> None:
        super().__init__(stop)
        self.outcome, self.stop, self.fault = outcome, stop, fault


@dataclass
class _Loop:
    """The state of one running attempt."""

    environment: Environment
    scenario: Scenario
    engine: Engine
    chat: ChatFormat
    attempt: Attempt
    context: ToolContext
    clock: Clock
    builder: TrajectoryBuilder = field(default_factory=TrajectoryBuilder)
    messages: list[Message] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    parse_failures: Counter[str] = field(default_factory=Counter)
    answer: object = None
    turns: int = 0
    sampled_to: int = 0  # tokens of the current row up to the end of its last sampled turn
    tool_s: float = 0.0

    async def play(self) -> NoReturn:
        """Runs turns until `_EndOfAttempt`."""
        limits = self.environment.limits
        await _bounded("setup", self.environment.run_setup(self.context))
        self.messages = self._first_messages()
        specs = self.environment.tool_specs
        prompt = self.chat.start(self.messages, specs)
        if len(prompt) >= limits.max_tokens:
            message = f"the first prompt has {len(prompt)} tokens, but max_tokens is {limits.max_tokens}"
            raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.SETUP_FAULT, Fault("prompt", "too_long", message))
        while True:
            self.builder.extend_prompt(prompt)
            parsed = await self._sample_turn(prompt)
            new = await self._answer_turn(parsed)
            if self.turns >= limits.max_turns:
                raise _EndOfAttempt(Outcome.POLICY_FAULT, Stop.OUT_OF_TURNS)
            self.messages += new
            prompt = self.chat.extend(self.builder.held, self.messages, new, specs)
            if len(prompt) >= limits.max_tokens:
                raise _EndOfAttempt(Outcome.POLICY_FAULT, Stop.OUT_OF_TOKENS)

    def _first_messages(self) -> list[Message]:
        try:
            return [
                Message("system", self.environment.instructions_for(self.scenario)),
                Message("user", self.environment.prompt_for(self.scenario)),
            ]
        except Exception as error:  # may be the user's functions
            fault = Fault("prompt", "exception", blame(error))
            raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.SETUP_FAULT, fault) from error

    async def _sample_turn(self, prompt: Sequence[int]) -> ParsedTurn:
        limits = self.environment.limits
        room = limits.max_tokens - len(prompt)
        request = SampleRequest(
            rollout=self.attempt.key,
            prompt=tuple(prompt),
            max_tokens=min(limits.max_tokens_per_turn, room),
            stop=self.chat.stop_ids,
            temperature=self.attempt.temperature,
            seed=derive_seed(self.attempt.seed, self.turns),
            group=self.attempt.group,
        )
        sample = await self._sample(request)
        self.builder.append_sample(sample.tokens, sample.logprobs, sample.versions)
        self.sampled_to = len(self.builder.held)
        self.turns += 1
        if sample.finish == "length":  # cut in the middle: not parsed, nothing of it is run
            self.messages.append(Message("assistant", self.chat.decode(sample.tokens)))
            whole = room <= limits.max_tokens_per_turn
            raise _EndOfAttempt(Outcome.POLICY_FAULT, Stop.OUT_OF_TOKENS if whole else Stop.TRUNCATED)
        parsed = self.chat.parse(sample.tokens)
        self.messages.append(Message("assistant", self.chat.decode(sample.tokens[:-1]), parsed.calls))
        return parsed

    async def _sample(self, request: SampleRequest) -> Sample:
        try:
            async with self.clock.limit():
                return await self.engine.sample(request)
        except TimeoutError:  # the model's own generation ran past the limit
            raise _EndOfAttempt(Outcome.POLICY_FAULT, Stop.TIME_LIMIT) from None
        except EngineFault as error:
            fault = Fault("engine", error.kind, str(error))
            raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.ENGINE_FAULT, fault) from error
        except ValueError as error:  # the prompt does not fit the engine
            fault = Fault("engine", "bad_request", str(error))
            raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.ENGINE_FAULT, fault) from error

    async def _answer_turn(self, parsed: ParsedTurn) -> list[Message]:
        """Runs the turn's calls. Returns the messages that answer them; raises where the attempt ends."""
        self.parse_failures.update(str(kind) for kind, _ in parsed.failures)
        ends = self.environment.on_bad_call == "end"
        if parsed.failures and ends:
            raise _EndOfAttempt(Outcome.POLICY_FAULT, Stop.UNPARSABLE_CALL)
        if not parsed.calls and not parsed.failures:
            return self._no_call(parsed.content, ends)
        self._check_budget(parsed.calls)
        results = await self._run(parsed.calls)
        self._record(parsed.calls, results)
        self._stop_on(parsed.calls, results, ends)
        new = [
            Message("tool", result.output, call_id=call.id, name=call.name)
            for call, result in zip(parsed.calls, results, strict=True)
        ]
        for kind, message in parsed.failures:
            text = f"Error: {message}"
            self.calls.append(CallRecord(self.turns - 1, "", "", {}, text, "unparsable", tokens=self.chat.count(text)))
            new.append(Message("tool", text, name=str(kind)))
        return new

    def _no_call(self, content: str, ends: bool) -> list[Message]:
        final = [tool.name for tool in self.environment.tools_by_name.values() if tool.final]
        if not final:
            self.answer = content
            raise _EndOfAttempt(Outcome.OK, Stop.ANSWERED)
        self.parse_failures["no_call"] += 1
        if ends:
            raise _EndOfAttempt(Outcome.POLICY_FAULT, Stop.NO_CALL)
        return [Message("user", NO_CALL_TEXT.format(final=" or ".join(final)))]

    def _check_budget(self, calls: Sequence[ToolCall]) -> None:
        """The hard budget counts every call but the final one."""
        budget = self.environment.limits.max_tool_calls
        if budget is None:
            return
        final = {tool.name for tool in self.environment.tools_by_name.values() if tool.final}
        used = sum(record.name not in final and record.kind != "unparsable" for record in self.calls)
        if used + sum(call.name not in final for call in calls) > budget:
            for call in calls:
                self.calls.append(CallRecord(self.turns - 1, call.id, call.name, call.arguments, "", "over_budget"))
            raise _EndOfAttempt(Outcome.POLICY_FAULT, Stop.OUT_OF_CALLS)

    async def _run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        started = time.perf_counter()
        try:
            async with self.clock.limit():
                return await run_calls(self.environment.tools_by_name, calls, self.context, self.chat.cut)
        except TimeoutError:  # reached inside a tool: not the model's doing
            names = ", ".join(sorted({call.name for call in calls}))
            limit = self.environment.limits.max_seconds
            fault = Fault(f"tool:{names}", "timeout", f"the rollout's limit of {limit:g} s was reached inside {names}")
            raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.TIME_LIMIT, fault) from None
        finally:
            self.tool_s += time.perf_counter() - started

    def _record(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> None:
        for call, result in zip(calls, results, strict=True):
            self.calls.append(
                CallRecord(
                    turn=self.turns - 1,
                    call_id=call.id,
                    name=call.name,
                    arguments=call.arguments,
                    output=result.output,
                    kind=result.kind,
                    seconds=result.seconds,
                    tokens=result.tokens,
                    truncated=result.truncated,
                )
            )

    def _stop_on(self, calls: Sequence[ToolCall], results: Sequence[ToolResult], ends: bool) -> None:
        """Ends the attempt on a fault, on a bad call in `end` mode, or on the first final call that worked."""
        for result in results:
            if result.fault is not None:
                raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.TOOL_FAULT, result.fault)
        if ends:
            for result in results:
                if result.kind in ("unknown_tool", "bad_arguments"):
                    raise _EndOfAttempt(Outcome.POLICY_FAULT, Stop(result.kind))
        for call, result in zip(calls, results, strict=True):
            if result.kind == "ok" and self.environment.tools_by_name[call.name].final:
                self.answer = _json_answer(call.name, result.value)
                raise _EndOfAttempt(Outcome.OK, Stop.ANSWERED)

    def _drift(self) -> int | None:
        """What a library that renders conversations anew would have trained instead; None where nothing was sampled."""
        if not self.turns:
            return None
        last = max(index for index, message in enumerate(self.messages) if message.role == "assistant")
        held = self.builder.held[: self.sampled_to]
        return measure_drift(self.chat, self.messages[: last + 1], self.environment.tool_specs, held)

    def rollout(self, end: _EndOfAttempt, wall_s: float) -> Rollout:
        outcome, fault, stop = end.outcome, end.fault, end.stop
        try:
            state = state_snapshot(self.context.state)
        except StateError as error:
            state, outcome, stop = {}, Outcome.ENV_FAULT, Stop.SETUP_FAULT
            fault = Fault("state", "not_json", str(error))
        trajectory = self.builder.build(drift=self._drift())
        return Rollout(
            trace_id=self.attempt.trace_id,
            scenario_id=self.scenario.id,
            split=self.scenario.split,
            attempt=self.attempt.index,
            outcome=outcome,
            stop=stop,
            messages=tuple(self.messages),
            calls=tuple(self.calls),
            trajectory=trajectory,
            answer=self.answer,
            state=state,
            fault=fault,
            turns=self.turns,
            prompt_tokens=trajectory.num_tokens - trajectory.num_actions,
            completion_tokens=trajectory.num_actions,
            wall_s=wall_s,
            tool_s=self.tool_s,
            parse_failures=dict(self.parse_failures),
        )


async def run_attempt(
    environment: Environment,
    scenario: Scenario,
    engine: Engine,
    chat: ChatFormat,
    attempt: Attempt,
    clock: Clock | None = None,
) -> Rollout:
    """Play one attempt to its end; always returns a rollout, ungraded (`reward` None). The caller has opened
    `attempt.key` at the engine, and closes it. clock: where the engine knows it too, and can stop it.

    Raises asyncio.CancelledError when cancelled, and whatever the engine raises besides ValueError and EngineFault: a
    broken engine is not a rollout's fault.
    """
    started = time.perf_counter()
    context = ToolContext(scenario=scenario, trace_id=attempt.trace_id, state={})
    clock = clock or Clock(environment.limits.max_seconds)
    loop = _Loop(environment, scenario, engine, chat, attempt, context, clock)
    try:
        try:
            await loop.play()
        finally:
            await _bounded("teardown", environment.run_teardown(context))
    except _EndOfAttempt as end:
        return loop.rollout(end, time.perf_counter() - started)


def _json_answer(name: str, value: object) -> Any:
    """What a final tool returned, as JSON values: so graders see the same now and in a later grading."""
    try:
        if isinstance(value, Iterator):
            raise ValueError("an iterator, which can be read only once: return a list")
        return to_jsonable_python(value)
    except Exception as error:  # may be the user's types
        fault = Fault(f"tool:{name}", "not_json", f"its result cannot be kept as JSON: {error}")
        raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.TOOL_FAULT, fault) from error


async def _bounded(where: str, work: Awaitable[None]) -> None:
    """Setup and teardown are the user's code: they get a time limit, and their failure is an `env_fault`."""
    try:
        async with asyncio.timeout(SETUP_TIMEOUT_S):
            await work
    except TimeoutError:
        fault = Fault(where, "timeout", f"{where} took longer than {SETUP_TIMEOUT_S:g} s")
        raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.SETUP_FAULT, fault) from None
    except Exception as error:
        fault = Fault(where, "exception", blame(error))
        raise _EndOfAttempt(Outcome.ENV_FAULT, Stop.SETUP_FAULT, fault) from error
