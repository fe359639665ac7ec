"""The agent loop, with a real chat format and real tools; only the model is a script of texts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pytest

from etude.engine.protocol import Sample, SampleRequest
from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, ToolError, tool
from etude.model.tiny import tiny_tokenizer
from etude.rollout.agent import Attempt, run_attempt
from etude.rollout.chat import ChatFormat, chat_format
from etude.rollout.group import Ticket
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.player import Player
from etude.rollout.rollout import Rollout
from etude.store.encoding import decode_rollout, encode_rollout


@tool
def look_up(key: str, context: ToolContext) -> str:
    """Look something up.

    Args:
        key: What to look up.
    """
    context.state.setdefault("asked", []).append(key)
    if key == "nothing":
        raise ToolError("there is no such key")
    if key == "bomb":
        raise RuntimeError("the database is gone")
    return f"value of {key}"


@tool
async def slow(context: ToolContext) -> str:
    """Never answers."""
    await asyncio.Event().wait()
    return ""


@tool(final=True)
def answer(text: str) -> str:
    """Give the final answer."""
    return text


class ScriptedEngine:
    """Samples given texts, one a turn; a text that ends in "…" was cut at the turn's token limit."""

    version = 7

    def __init__(self, chat: ChatFormat, texts: Sequence[str]) -> None:
        self.chat, self.texts, self.requests, self.opened = chat, list(texts), [], []

    def open(self, rollout: str) -> None:
        self.opened.append(rollout)

    def close(self, rollout: str) -> None:
        self.opened.remove(rollout)

    async def sample(self, request: SampleRequest) -> Sample:
        self.requests.append(request)
        if not self.texts:
            await asyncio.Event().wait()
        text = self.texts.pop(0)
        cut = text.endswith("…")
        tokens = [*encode(self.chat, text.rstrip("…")), *([] if cut else [min(self.chat.stop_ids)])]
        return Sample(tuple(tokens), (-0.5,) * len(tokens), (7,) * len(tokens), "length" if cut else "stop")

    async def aclose(self) -> None: ...


def encode(chat: ChatFormat, text: str) -> list[int]:
    return chat.codec.encode([text])  # type: ignore[attr-defined, no-any-return]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return chat_format(tiny_tokenizer())


def make(**changes: Any) -> Environment:
    environment = Environment(
        name="lookups",
        instructions="Answer the question.",
        tools=[look_up, slow, answer],
        rubric=lambda rollout, scenario: float(rollout.answer == scenario["answer"]),
        scenarios={"train": [{"id": "one", "question": "What is a?", "answer": "value of a"}]},
    )
    return replace(environment, **changes)


def play(chat: ChatFormat, environment: Environment, *texts: str, graded: bool = False) -> Rollout:
    engine = ScriptedEngine(chat, texts)
    scenario = environment.scenarios_of("train")[0]

    async def go() -> Rollout:
        if graded:
            player = Player(environment, engine, chat, seed=0, max_retries=1)
            return (await player.group(Ticket(0, scenario), 1)).rollouts[0]
        return await run_attempt(environment, scenario, engine, chat, Attempt("k", "trace_1", "g", 0, 0))

    rollout = asyncio.run(go())
    check_trajectory(chat, engine, rollout)
    return rollout


def check_trajectory(chat: ChatFormat, engine: ScriptedEngine, rollout: Rollout) -> None:
    """Every prompt begins with all that was held; the mask is true exactly on what was sampled."""
    for before, after in zip(engine.requests, engine.requests[1:], strict=False):
        if after.rollout == before.rollout and rollout.retries == 0:
            assert after.prompt[: len(before.prompt)] == before.prompt
    if rollout.trajectory.rows:
        row = rollout.trajectory.rows[0]
        assert len(rollout.trajectory.rows) == 1
        assert (row.version[row.action_mask] == 7).all()
        assert rollout.completion_tokens == row.action_mask.sum()
        assert rollout.prompt_tokens + rollout.completion_tokens == len(row)


def test_a_whole_attempt(chat: ChatFormat) -> None:
    rollout = play(chat, make(), call("look_up", key="a"), call("answer", text="value of a"), graded=True)
    assert (rollout.outcome, rollout.stop, rollout.answer) == (Outcome.OK, Stop.ANSWERED, "value of a")
    assert rollout.reward == 1.0
    assert rollout.turns == 2
    assert rollout.state == {"asked": ["a"]}
    assert [record.kind for record in rollout.calls] == ["ok", "ok"]
    assert [message.role for message in rollout.messages] == ["system", "user", "assistant", "tool", "assistant"]


def test_parallel_calls_are_answered_in_their_order(chat: ChatFormat) -> None:
    turn = call("look_up", key="a") + "\n" + call("look_up", key="b")
    rollout = play(chat, make(), turn, call("answer", text="x"))
    assert [record.output for record in rollout.calls[:2]] == ["value of a", "value of b"]


def test_a_model_mistake_is_answered_and_the_attempt_goes_on(chat: ChatFormat) -> None:
    bad_json = '<tool_call>\n{"name": "look_up", "arguments": {"key": }}\n</tool_call>'
    texts = [
        bad_json,
        call("nope"),
        call("look_up", wrong=1),
        call("look_up", key="nothing"),
        "just words",
        call("answer", text="value of a"),
    ]
    rollout = play(chat, make(), *texts)
    kinds = [record.kind for record in rollout.calls]
    assert kinds == ["unparsable", "unknown_tool", "bad_arguments", "error", "ok"]
    assert all(record.output.startswith("Error") for record in rollout.calls[:4])
    assert rollout.outcome is Outcome.OK
    assert sum(rollout.parse_failures.values()) == 2  # the broken JSON and the turn without a call
    assert "no_call" in rollout.parse_failures


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("<tool_call>\n{broken\n</tool_call>", Stop.UNPARSABLE_CALL),
        (call("nope"), Stop.UNKNOWN_TOOL),
        (call("look_up", wrong=1), Stop.BAD_ARGUMENTS),
        ("just words", Stop.NO_CALL),
    ],
)
def test_in_end_mode_a_bad_call_ends_the_attempt_as_the_models_failure(chat: ChatFormat, text: str, stop: Stop) -> None:
    rollout = play(chat, make(on_bad_call="end"), text, graded=True)
    assert (rollout.outcome, rollout.stop, rollout.reward) == (Outcome.POLICY_FAULT, stop, 0.0)


def test_without_a_final_tool_a_turn_without_a_call_is_the_answer(chat: ChatFormat) -> None:
    rollout = play(chat, make(tools=[look_up]), call("look_up", key="a"), "value of a")
    assert (rollout.outcome, rollout.answer) == (Outcome.OK, "value of a")


def test_a_truncated_turn_is_not_parsed(chat: ChatFormat) -> None:
    rollout = play(chat, make(), call("answer", text="value of a") + "…")
    assert (rollout.outcome, rollout.stop, rollout.calls) == (Outcome.POLICY_FAULT, Stop.TRUNCATED, ())


def test_limits_end_an_attempt_as_the_models_failure(chat: ChatFormat) -> None:
    look = call("look_up", key="a")
    turns = play(chat, make(limits=Limits(max_turns=2)), look, look)
    assert (turns.outcome, turns.stop, turns.turns) == (Outcome.POLICY_FAULT, Stop.OUT_OF_TURNS, 2)
    budget = play(chat, make(limits=Limits(max_tool_calls=1)), look, look)
    assert (budget.stop, budget.calls[-1].kind) == (Stop.OUT_OF_CALLS, "over_budget")
    assert budget.state == {"asked": ["a"]}
    whole = play(chat, make(), look, call("answer", text="x"))
    first_turn = int(whole.trajectory.rows[0].action_mask.nonzero()[0][0])
    few = play(chat, make(limits=Limits(max_tokens=first_turn + 60)), look)
    assert (few.outcome, few.stop, few.turns) == (Outcome.POLICY_FAULT, Stop.OUT_OF_TOKENS, 1)


def test_the_final_call_is_free_of_the_budget(chat: ChatFormat) -> None:
    limits = Limits(max_tool_calls=1)
    rollout = play(chat, make(limits=limits), call("look_up", key="a"), call("answer", text="value of a"))
    assert rollout.outcome is Outcome.OK


def test_a_broken_tool_is_a_fault_and_never_a_reward(chat: ChatFormat) -> None:
    rollout = play(chat, make(), *[call("look_up", key="bomb")] * 2, graded=True)
    assert (rollout.outcome, rollout.stop, rollout.reward) == (Outcome.ENV_FAULT, Stop.TOOL_FAULT, None)
    assert rollout.fault is not None
    assert rollout.fault.where == "tool:look_up"
    assert "the database is gone" in rollout.fault.message
    assert rollout.retries == 1


def test_a_fault_is_tried_again_under_a_new_trace(chat: ChatFormat) -> None:
    environment = make()
    engine = ScriptedEngine(chat, [call("look_up", key="bomb"), call("answer", text="value of a")])
    player = Player(environment, engine, chat, seed=0, max_retries=3)
    group = asyncio.run(player.group(Ticket(0, environment.scenarios_of("train")[0]), 1))
    assert [rollout.outcome for rollout in group.faulted] == [Outcome.ENV_FAULT]
    assert group.rollouts[0].reward == 1.0
    assert group.rollouts[0].trace_id != group.faulted[0].trace_id
    assert engine.requests[0].seed != engine.requests[1].seed
    assert engine.opened == []


def test_the_clock_inside_a_tool_is_the_environments_fault_and_inside_the_model_the_models(chat: ChatFormat) -> None:
    limits = Limits(max_seconds=0.2)
    started = time.perf_counter()
    tool_fault = play(chat, make(limits=limits), call("slow"))
    assert (tool_fault.outcome, tool_fault.stop) == (Outcome.ENV_FAULT, Stop.TIME_LIMIT)
    own = play(chat, make(limits=limits))
    assert (own.outcome, own.stop) == (Outcome.POLICY_FAULT, Stop.TIME_LIMIT)
    assert time.perf_counter() - started < 20


def test_setup_teardown_and_instructions_that_break_are_faults(chat: ChatFormat) -> None:
    def broken(*_: object) -> str:
        raise OSError("no disk")

    for change in ({"setup": broken}, {"teardown": broken}, {"instructions": broken}):
        rollout = play(chat, make(**change), call("answer", text="x"))
        assert rollout.outcome is Outcome.ENV_FAULT, change
        assert rollout.fault is not None
        assert "no disk" in rollout.fault.message


def test_state_that_is_not_json_is_a_fault_that_names_its_key(chat: ChatFormat) -> None:
    def setup(context: ToolContext) -> None:
        context.state["handle"] = object()

    rollout = play(chat, make(setup=setup), call("answer", text="x"))
    assert rollout.outcome is Outcome.ENV_FAULT
    assert rollout.fault is not None
    assert "handle" in rollout.fault.message


def test_a_grader_or_a_metric_that_breaks_is_a_grader_fault(chat: ChatFormat) -> None:
    def broken(rollout: Rollout, scenario: Scenario) -> Any:
        raise KeyError("gold")

    for change in ({"rubric": broken}, {"metrics": broken}):
        texts = [call("answer", text="x")] * 2
        rollout = play(chat, make(**change), *texts, graded=True)
        assert (rollout.outcome, rollout.reward) == (Outcome.GRADER_FAULT, None)
        assert rollout.fault is not None
        assert "gold" in rollout.fault.message


@dataclass
class Found:
    day: date
    pages: tuple[int, ...]


def test_an_answer_that_is_no_text_is_kept_as_json(chat: ChatFormat) -> None:
    @tool(final=True)
    def conclude() -> tuple[Found, None]:
        """End."""
        return Found(date(2001, 5, 31), (1, 2)), None

    environment = make(tools=[conclude], rubric=lambda rollout, scenario: float(rollout.answer[1] is None))
    rollout = play(chat, environment, call("conclude"), graded=True)
    assert rollout.answer == [{"day": "2001-05-31", "pages": [1, 2]}, None]
    assert rollout.reward == 1.0
    assert decode_rollout(encode_rollout(rollout)).answer == rollout.answer


@pytest.mark.parametrize("result", [object, lambda: iter("ab"), lambda: {"path": [lambda: 1]}])
def test_an_answer_that_cannot_be_json_is_the_tools_fault(chat: ChatFormat, result: Callable[[], object]) -> None:
    @tool(final=True)
    def conclude() -> object:
        """End."""
        return result()

    rollout = play(chat, make(tools=[conclude]), *[call("conclude")] * 2, graded=True)
    assert (rollout.outcome, rollout.stop, rollout.reward) == (Outcome.ENV_FAULT, Stop.TOOL_FAULT, None)
    assert rollout.answer is None
    assert rollout.fault is not None
    assert rollout.fault.where == "tool:conclude"
