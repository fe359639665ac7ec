"""A model behind an endpoint plays by the same rules: real requests, and the loop's limits, faults and grades."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from support.openai_server import Answer, Hang, OpenAIServer, Status, by_turn, call, calls, text, turn_of

import etude.engine.remote.client as client_module
from etude.engine.remote.client import ChatClient
from etude.engine.remote.settings import EndpointSettings
from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.environment.tools import tool
from etude.errors import ConfigError
from etude.rollout.clock import Clock
from etude.rollout.endpoint import UNREADABLE, endpoint_voices
from etude.rollout.group import Group, Ticket
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import Rollout
from etude.rollout.scripted import MessagePlayer


@tool
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@tool(final=True)
def finish(result: int) -> int:
    """Ends the task."""
    return result


def right(rollout: Rollout, scenario: Scenario) -> float:
    return float(rollout.answer == 6)


GOOD = by_turn(call("double", number=3), call("finish", result=6))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.005)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def play(
    reply: Answer | Callable[[dict[str, Any]], Answer],
    *,
    attempts: int = 1,
    limits: dict[str, Any] | None = None,
    faults: Any = (),
    temperature: float = 0.0,
    max_retries: int = 1,
    on_bad_call: Any = "continue",
    tools: Any = (double, finish),
    **settings: Any,
) -> tuple[Group, OpenAIServer]:
    environment = Environment(
        "doubling", "Use the tools.", tools, right, {"train": [{"id": "a", "question": "Twice 3?"}]},
        limits=Limits(**(limits or {})), on_bad_call=on_bad_call,
    )  # fmt: skip

    async def main() -> Group:
        async with ChatClient(EndpointSettings(server.url, "small", **settings)) as client:
            player = MessagePlayer(
                environment=environment, voices=endpoint_voices(client), seed=1, temperature=temperature,
                max_retries=max_retries, max_concurrent=8,
            )  # fmt: skip
            return await player.group(Ticket(0, environment.scenarios_of("train")[0]), attempts, "eval")

    with OpenAIServer(reply, faults=faults) as server:
        return asyncio.run(main()), server


def one(*arguments: Any, **settings: Any) -> tuple[Rollout, OpenAIServer]:
    group, server = play(*arguments, **settings)
    return group.rollouts[0], server


def test_it_plays_through_the_tools() -> None:
    rollout, server = one(GOOD, prompt_price=1.0, completion_price=1.0)
    assert (rollout.outcome, rollout.stop, rollout.answer, rollout.reward) == (Outcome.OK, Stop.ANSWERED, 6, 1.0)
    assert [message.role for message in rollout.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [(record.turn, record.name, record.kind) for record in rollout.calls] == [
        (0, "double", "ok"),
        (1, "finish", "ok"),
    ]
    first, second = server.bodies
    assert [spec["function"]["name"] for spec in first["tools"]] == ["double", "finish"]
    assert first["messages"] == [
        {"role": "system", "content": "Use the tools."},
        {"role": "user", "content": "Twice 3?"},
    ]
    assistant, result = second["messages"][2:]
    assert assistant["tool_calls"][0]["function"] == {"name": "double", "arguments": '{"number": 3}'}
    assert result == {"role": "tool", "tool_call_id": assistant["tool_calls"][0]["id"], "content": "6"}
    assert [body["max_tokens"] for body in server.bodies] == [512, 512]


def test_tokens_seconds_and_costs_are_in_the_rollout() -> None:
    counts = [{"prompt_tokens": 100, "completion_tokens": 30}, {"prompt_tokens": 140, "completion_tokens": 20}]
    counts[0]["completion_tokens_details"] = {"reasoning_tokens": 10}  # type: ignore[assignment]

    def reply(body: dict[str, Any]) -> Answer:
        made = GOOD(body)
        return Answer(made.content, made.raw_calls, usage=counts[turn_of(body)])

    rollout, _ = one(reply, prompt_price=1.0, completion_price=10.0)
    assert rollout.completion_tokens == 50
    assert rollout.prompt_tokens == 140 - 20  # of the last prompt, 20 were sampled before: reasoning does not come back
    assert rollout.usage.pop("seconds") > 0
    assert rollout.usage == {
        "requests": 2,
        "prompt_tokens": 240,
        "completion_tokens": 50,
        "cost": pytest.approx((240 + 500) / 1e6),
    }
    assert rollout.trajectory.rows == ()


def test_attempts_are_different_samples_with_their_own_seeds() -> None:
    group, server = play(GOOD, attempts=4, temperature=1.0)
    assert [rollout.reward for rollout in group.rollouts] == [1.0] * 4
    assert len({body["seed"] for body in server.bodies}) == 8
    _, second = play(GOOD, attempts=4, temperature=1.0)
    assert {body["seed"] for body in second.bodies} == {body["seed"] for body in server.bodies}


def test_several_calls_in_a_turn_are_answered_each() -> None:
    rollout, server = one(
        by_turn(calls(("double", {"number": 1}), ("double", {"number": 2})), call("finish", result=6))
    )
    assert rollout.reward == 1.0
    sent = server.bodies[1]["messages"][2:]
    assert [message["content"] for message in sent[1:]] == ["2", "4"]
    assert [message["tool_call_id"] for message in sent[1:]] == [made["id"] for made in sent[0]["tool_calls"]]


def test_arguments_that_are_no_json_are_an_unparsable_call_of_the_model() -> None:
    broken = calls(("double", "{number: 3"), ("double", {"number": 3}), ("", {}))
    rollout, server = one(by_turn(broken, call("finish", result=6)))
    assert (rollout.outcome, rollout.reward) == (Outcome.OK, 1.0)
    assert rollout.parse_failures == {"bad_json": 1, "bad_name": 1}
    assert [record.kind for record in rollout.calls] == ["ok", "unparsable", "unparsable", "ok"]
    assistant, *results = server.bodies[1]["messages"][2:]
    sent = [made["function"]["arguments"] for made in assistant["tool_calls"]]
    assert json.loads(sent[0]) == {UNREADABLE: "{number: 3"}
    assert [json.loads(arguments) for arguments in sent]  # nothing that an endpoint would refuse
    answered = {result["tool_call_id"]: result["content"] for result in results}
    ids = [made["id"] for made in assistant["tool_calls"]]
    assert answered[ids[1]] == "6"
    assert answered[ids[0]].startswith("Error: a call is not valid JSON")
    assert answered[ids[2]].startswith("Error: a call needs the name")


def test_where_bad_calls_end_an_attempt_they_do() -> None:
    rollout, _ = one(calls(("double", "[]")), on_bad_call="end")
    assert (rollout.outcome, rollout.stop, rollout.reward) == (Outcome.POLICY_FAULT, Stop.UNPARSABLE_CALL, 0.0)


@pytest.mark.parametrize(
    ("answer", "stop"),
    [(call("no_such_tool"), Stop.UNKNOWN_TOOL), (call("double", number="x"), Stop.BAD_ARGUMENTS),
     (text("hm"), Stop.NO_CALL)],
)  # fmt: skip
def test_mistakes_are_the_models(answer: Answer, stop: Stop) -> None:
    rollout, _ = one(answer, on_bad_call="end")
    assert (rollout.outcome, rollout.stop) == (Outcome.POLICY_FAULT, stop)


def test_a_turn_that_was_cut_is_truncated_and_not_run() -> None:
    cut = call("finish", result=6)
    rollout, _ = one(Answer("half", cut.raw_calls, finish="length"))
    assert (rollout.outcome, rollout.stop, rollout.answer) == (Outcome.POLICY_FAULT, Stop.TRUNCATED, None)
    assert rollout.calls == ()
    assert rollout.messages[-1].content == "half"


def test_token_limits_go_by_what_the_endpoint_counts() -> None:
    def reply(body: dict[str, Any]) -> Answer:
        made = call("double", number=3)
        return Answer(None, made.raw_calls, usage={"prompt_tokens": 300, "completion_tokens": 100})

    rollout, server = one(reply, limits={"max_tokens": 600, "max_turns": 9})
    assert server.bodies[1]["max_tokens"] == 600 - 401  # what was said, and one token of a result
    rollout, server = one(reply, limits={"max_tokens": 400, "max_turns": 9})
    assert (rollout.stop, len(server.bodies)) == (Stop.OUT_OF_TOKENS, 1)


def test_turns_and_calls_have_limits() -> None:
    more = call("double", number=1)
    assert one(more, limits={"max_turns": 2})[0].stop is Stop.OUT_OF_TURNS
    assert one(more, limits={"max_tool_calls": 1})[0].stop is Stop.OUT_OF_CALLS


def test_without_a_final_tool_the_last_text_is_the_answer() -> None:
    rollout, _ = one(by_turn(call("double", number=3), text("six")), tools=(double,))
    assert (rollout.stop, rollout.answer) == (Stop.ANSWERED, "six")


def test_an_endpoint_that_fails_is_a_fault_and_the_attempt_is_played_again() -> None:
    group, _ = play(GOOD, faults=[Status(500)] * 2, timeout_s=20)
    assert group.rollouts[0].reward == 1.0
    assert group.faulted == []  # the client had tried again
    group, _ = play(GOOD, faults=[None, *[Status(500)] * 6], max_retries=1)
    (failed,) = group.faulted
    assert failed.fault is not None
    assert (failed.outcome, failed.stop, failed.reward) == (Outcome.ENV_FAULT, Stop.ENGINE_FAULT, None)
    assert (failed.fault.where, failed.fault.kind) == ("engine", "server_error")
    assert (group.rollouts[0].reward, group.rollouts[0].retries) == (1.0, 1)


def test_an_endpoint_that_hangs_is_never_a_reward() -> None:
    """Also where the rollout's own time would be over before the request's."""
    group, _ = play(GOOD, faults=[Hang(60)] * 9, limits={"max_seconds": 0.2}, timeout_s=0.3, max_retries=0)
    (rollout,) = group.rollouts
    assert rollout.fault is not None
    assert (rollout.outcome, rollout.reward, rollout.fault.where) == (Outcome.ENV_FAULT, None, "engine")


def test_waiting_for_a_turn_takes_no_time_of_the_attempt() -> None:
    group, server = play(GOOD, attempts=6, temperature=1.0, requests_per_minute=600, limits={"max_seconds": 1.0})
    assert len(server.requests) == 12  # more than a second of waiting for some
    assert [rollout.reward for rollout in group.rollouts] == [1.0] * 6


def test_a_model_that_answers_too_late_has_used_its_time() -> None:
    rollout, _ = one(GOOD, faults=[None, Hang(0.6)], limits={"max_seconds": 0.5})
    assert (rollout.outcome, rollout.stop, rollout.fault) == (Outcome.POLICY_FAULT, Stop.TIME_LIMIT, None)


def test_what_no_request_can_mend_ends_the_run() -> None:
    with pytest.raises(ConfigError, match="401"):
        play(GOOD, attempts=3, faults=[Status(401)] * 9)


def test_a_clock_that_is_stopped_does_not_run_out() -> None:
    async def main() -> None:
        clock = Clock(0.1)
        async with clock.limit():
            with clock.stopped():
                await asyncio.sleep(0.3)
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                clock.spend(0.2)
        with pytest.raises(TimeoutError):
            async with clock.limit():
                await asyncio.sleep(30)

    asyncio.run(main())


def test_a_clock_runs_on_after_it_was_stopped() -> None:
    async def main() -> None:
        clock = Clock(0.2)
        async with clock.limit():
            with clock.stopped():
                await asyncio.sleep(0.3)
            await asyncio.sleep(3600)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
