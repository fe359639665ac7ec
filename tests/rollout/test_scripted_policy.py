"""Playing without a model: the same loop and the same limits, and nothing to train on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from etude.environment.calls import ToolCall
from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolError, tool
from etude.rollout.messages import Message
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import Rollout
from etude.rollout.scripted import cut_by_characters, play, traces


@tool
def double(number: int) -> int:
    """Twice the number."""
    if number == 13:
        raise ToolError("13 is unlucky")
    if number == 0:
        raise ZeroDivisionError("it broke")
    return 2 * number


@tool(final=True)
def finish(result: int) -> int:
    """Ends the task."""
    return result


ROWS = [{"id": str(number), "question": f"Twice {number}?", "number": number} for number in (3, 13, 0)]


def right(rollout: Rollout, scenario: Scenario) -> float:
    return float(rollout.answer == 2 * scenario["number"])


def environment(limits: Limits) -> Environment:
    return Environment("doubling", "Use the tools.", [double, finish], right, {"train": ROWS}, limits=limits)


class Doubler:
    """Asks the tool and believes it."""

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        last = messages[-1]
        if last.role == "user":
            return Message("assistant", "Let me see.", (ToolCall("double", {"number": scenario["number"]}, "a"),))
        return Message("assistant", "", (ToolCall("finish", {"result": int(last.content)}, "b"),))


class Broken:
    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        raise self.error("a bug")


def scenario(index: int) -> Scenario:
    return environment(Limits()).scenarios_of("train")[index]


def test_a_policy_plays_through_the_tools() -> None:
    rollout = asyncio.run(play(environment(Limits()), scenario(0), Doubler(), attempt=4))
    assert (rollout.outcome, rollout.stop, rollout.answer) == (Outcome.OK, Stop.ANSWERED, 6)
    assert (rollout.reward, rollout.turns, rollout.attempt) == (1.0, 2, 4)
    assert [message.role for message in rollout.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert (rollout.messages[2].content, rollout.messages[3].content) == ("Let me see.", "6")
    assert [(call.turn, call.name, call.kind) for call in rollout.calls] == [(0, "double", "ok"), (1, "finish", "ok")]


def test_nothing_was_sampled() -> None:
    rollout = asyncio.run(play(environment(Limits()), scenario(0), Doubler()))
    assert rollout.trajectory.rows == ()
    assert rollout.prompt_tokens == rollout.completion_tokens == 0


def test_limits_hold() -> None:
    rollout = asyncio.run(play(environment(Limits(max_turns=1)), scenario(0), Doubler()))
    assert (rollout.outcome, rollout.stop, rollout.reward) == (Outcome.POLICY_FAULT, Stop.OUT_OF_TURNS, 0.0)
    rollout = asyncio.run(play(environment(Limits(max_tool_calls=0)), scenario(0), Doubler()))
    assert rollout.stop is Stop.OUT_OF_CALLS


def test_a_broken_tool_is_a_fault() -> None:
    rollout = asyncio.run(play(environment(Limits()), scenario(2), Doubler()))
    assert (rollout.outcome, rollout.reward) == (Outcome.ENV_FAULT, None)


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyError, KeyError), (ValueError, RuntimeError), (TimeoutError, RuntimeError)]
)
def test_a_broken_policy_is_nobodys_fault_but_its_own(error: type[Exception], raised: type[Exception]) -> None:
    with pytest.raises(raised, match="a bug"):
        asyncio.run(play(environment(Limits()), scenario(0), Broken(error)))


def test_traces_are_the_attempts_that_went_well() -> None:
    doubling = environment(Limits())
    good = [each for each in doubling.scenarios_of("train") if each["number"] == 3]
    found = asyncio.run(traces(doubling, [*good, *good], Doubler(), min_reward=1.0))
    assert [trace.messages[1].content for trace in found] == ["Twice 3?"] * 2
    assert [spec["function"]["name"] for spec in found[0].tools] == ["double", "finish"]
    assert asyncio.run(traces(doubling, good, Doubler(), min_reward=1.5)) == []


def test_tool_output_is_cut_as_the_caller_cuts() -> None:
    shout: Callable[[str, int], tuple[str, int, bool]] = lambda text, most: ("8", 1, True)  # noqa: E731
    rollout = asyncio.run(play(environment(Limits()), scenario(0), Doubler(), cut=shout))
    assert rollout.answer == 8
    assert rollout.calls[0].truncated


def test_cutting_without_a_tokenizer() -> None:
    assert cut_by_characters("x" * 40, 10) == ("x" * 40, 10, False)
    text, tokens, truncated = cut_by_characters("x" * 41, 10)
    assert (len(text), tokens, truncated) == (40, 10, True)
    assert text.endswith("\n[... cut]")
    assert cut_by_characters("", 10) == ("", 0, False)
