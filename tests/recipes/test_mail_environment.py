"""The e-mail environment: its scenarios, its reward and metrics from a rollout alone, and its searchers."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from etude.environment.calls import ToolCall
from etude.environment.environment import Environment, load_environment
from etude.environment.scenario import Scenario
from etude.errors import ConfigError, DataError
from etude.grading.rubric import grade
from etude.recipes.email_search.database import MailDatabase
from etude.recipes.email_search.recipe import metrics
from etude.recipes.email_search.scripted import I_DONT_KNOW
from etude.rollout.messages import Message
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.rollout import Rollout
from etude.rollout.scripted import play

Make = Callable[..., Environment]
Turn = Sequence[tuple[str, Mapping[str, Any]]]

QUESTION: dict[str, Any] = {
    "id": "q1",
    "inbox": "ann@example.com",
    "question": "On which day is the planning meeting in room 12?",
    "answer": "Friday",
    "aliases": [],
    "must": [["friday"]],
    "answer_type": "date",
    "message_ids": ["<plan@x>"],
    "also_ids": [],
    "query_date": "2001-05-11",
    "how_realistic": 1.0,
}
SEARCH_PLAN: Turn = [("search_emails", {"keywords": ["planning"]})]
READ_PLAN: Turn = [("read_email", {"message_id": "<plan@x>"})]
NOTHING: Turn = []


def answer(text: str, *sources: str) -> Turn:
    return [("return_final_answer", {"answer": text, "sources": list(sources)})]


class Turns:
    """A policy that plays the turns it was given."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        number = sum(message.role == "assistant" for message in messages)
        calls = [ToolCall(name, dict(args), f"{number}.{k}") for k, (name, args) in enumerate(self._turns[number])]
        return Message("assistant", "", tuple(calls))


@pytest.fixture
def make(tmp_path: Path, small: MailDatabase) -> Make:
    def environment(question: Mapping[str, Any] = QUESTION, **args: Any) -> Environment:
        (tmp_path / "questions_train.jsonl").write_text(json.dumps(question) + "\n")
        return load_environment("email_search", {"questions": str(tmp_path), "database": str(small.path), **args})

    return environment


def attempt(environment: Environment, *turns: Turn) -> Rollout:
    return asyncio.run(play(environment, environment.scenarios_of("train")[0], Turns(*turns)))


def test_the_prompt_says_who_when_and_how_many_turns(make: Make) -> None:
    environment = make(max_turns=7)
    text = environment.instructions_for(environment.scenarios_of("train")[0])
    assert "ann@example.com" in text
    assert "2001-05-11" in text
    assert "at most 7 turns" in text


def test_a_right_answer_and_all_its_metrics(make: Make) -> None:
    rollout = attempt(make(), SEARCH_PLAN, READ_PLAN, answer("Friday", "<plan@x>"))
    assert (rollout.outcome, rollout.stop) == (Outcome.OK, Stop.ANSWERED)
    assert rollout.reward == pytest.approx(1 + 0.3 + 0.1 / 1 + 0.1 * (1 - 3 / 10))
    times = {name: rollout.metrics[name] for name in ("tool_latency", "wall_time")}
    assert all(value > 0 for value in times.values())
    assert {name: value for name, value in rollout.metrics.items() if name not in times} == {
        "answer_correct": 1.0,
        "sources_correct": 1.0,
        "num_turns": 3.0,
        "attempted_answer": 1.0,
        "ever_found_right_email": 1.0,
        "ever_read_right_email": 1.0,
        "cant_parse_tool_call": 0.0,
        "bad_tool_call_name": 0.0,
        "bad_tool_call_args": 0.0,
        "ran_out_of_turns": 0.0,
        "returned_i_dont_know": 0.0,
        "num_sources": 1.0,
        "ever_tried_to_read_invalid_email": 0.0,
        "prompt_tokens": 0.0,  # a script samples nothing
        "completion_tokens": 0.0,
        "hallucinated": 0.0,
        "duplicate_tool_calls": 0.0,
        "truncated": 0.0,
    }
    assert all(type(value) is float for value in rollout.metrics.values())


def test_cited_sources_are_counted_and_have_precision(make: Make) -> None:
    """Faults 1 and 8: num_sources was never assigned, and citing everything was free."""
    rollout = attempt(make(), answer("Friday", "<plan@x>", "<cc@x>", "<plan@x>"))
    assert rollout.metrics["num_sources"] == 2.0
    assert rollout.metrics["sources_correct"] == 0.0
    assert rollout.reward == pytest.approx(1 + 0.1 / 2 + 0.1 * (1 - 1 / 10))


def test_a_wrong_answer_is_a_hallucination_with_partial_credit(make: Make) -> None:
    rollout = attempt(make(), SEARCH_PLAN, answer("Monday", "<plan@x>"))
    assert rollout.metrics["hallucinated"] == rollout.metrics["attempted_answer"] == 1.0
    assert rollout.metrics["answer_correct"] == rollout.metrics["ever_read_right_email"] == 0.0
    assert rollout.reward == pytest.approx(-1 + 0.1 * 3)  # found, no invalid read, sources


def test_not_knowing_is_not_punished(make: Make) -> None:
    rollout = attempt(make(), answer(I_DONT_KNOW))
    assert rollout.metrics["returned_i_dont_know"] == 1.0
    assert rollout.metrics["attempted_answer"] == rollout.metrics["hallucinated"] == 0.0
    assert rollout.reward == pytest.approx(0.1)  # it read no invalid id


def test_a_question_without_an_answer_wants_none(make: Make) -> None:
    question = QUESTION | {"answer": None, "must": [], "message_ids": []}
    assert attempt(make(question), answer(I_DONT_KNOW)).metrics["answer_correct"] == 1.0
    assert attempt(make(question), answer("Friday")).metrics["hallucinated"] == 1.0


def test_an_invalid_read_costs_its_partial_credit(make: Make) -> None:
    invalid: Turn = [("read_email", {"message_id": "<later@x>"})]  # exists, but only after the query date
    rollout = attempt(make(), invalid, answer(I_DONT_KNOW))
    assert rollout.metrics["ever_tried_to_read_invalid_email"] == 1.0
    assert rollout.metrics["bad_tool_call_args"] == 0.0
    assert rollout.reward == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("bad", "metric", "end", "stop"),
    [
        (NOTHING, "cant_parse_tool_call", -2.0, Stop.NO_CALL),
        ([("find_emails", {})], "bad_tool_call_name", -1.9, Stop.UNKNOWN_TOOL),
        ([("read_email", {"id": "<plan@x>"})], "bad_tool_call_args", -1.8, Stop.BAD_ARGUMENTS),
        ([("search_emails", {"keywords": ["a"], "sent_after": "May"})], "bad_tool_call_args", -1.8, Stop.BAD_ARGUMENTS),
    ],
)
def test_a_bad_call_is_answered_or_ends_the_attempt(make: Make, bad: Turn, metric: str, end: float, stop: Stop) -> None:
    goes_on = attempt(make(), bad, answer("Friday", "<plan@x>"))
    assert goes_on.metrics[metric] == 1.0
    assert goes_on.reward == pytest.approx(1 + 0.3 + 0.1 + 0.1 * (1 - 2 / 10) - 0.2)
    ended = attempt(make(on_bad_call="end"), bad, answer("Friday", "<plan@x>"))
    assert (ended.outcome, ended.stop) == (Outcome.POLICY_FAULT, stop)
    assert ended.metrics[metric] == 1.0
    assert ended.reward == pytest.approx(end + 0.1)


def test_out_of_turns(make: Make) -> None:
    rollout = attempt(make(max_turns=2), SEARCH_PLAN, SEARCH_PLAN)
    assert rollout.metrics["ran_out_of_turns"] == rollout.metrics["duplicate_tool_calls"] == 1.0
    assert rollout.metrics["hallucinated"] == 0.0
    assert rollout.reward == pytest.approx(0.2)  # found it, read nothing invalid


def test_parallel_calls_are_all_kept(make: Make) -> None:
    """Fault 7: extra calls were dropped from the message, while their tokens stayed in the trained sequence."""
    rollout = attempt(make(), [*SEARCH_PLAN, *READ_PLAN], answer("Friday", "<plan@x>"))
    assert [call.name for call in rollout.messages[2].tool_calls] == ["search_emails", "read_email"]
    assert [message.call_id for message in rollout.messages[3:5]] == ["0.0", "0.1"]
    assert rollout.metrics["ever_found_right_email"] == rollout.metrics["ever_read_right_email"] == 1.0
    assert rollout.metrics["num_turns"] == 2.0


def test_what_a_cut_left_out_was_not_found(make: Make) -> None:
    whole = attempt(make(), SEARCH_PLAN, answer(I_DONT_KNOW))
    cut = attempt(make(search_tokens=5), SEARCH_PLAN, answer(I_DONT_KNOW))
    assert (whole.metrics["ever_found_right_email"], cut.metrics["ever_found_right_email"]) == (1.0, 0.0)


def test_a_saved_rollout_is_graded_alike(make: Make) -> None:
    """Calls, answer and scenario are enough: no state, no database."""
    environment = make()
    scenario = environment.scenarios_of("train")[0]
    rollout = attempt(environment, SEARCH_PLAN, READ_PLAN, answer("Friday", "<plan@x>"))
    saved = dataclasses.replace(copy.deepcopy(rollout), state={}, reward=None, metrics={})
    saved.answer = json.loads(json.dumps(saved.answer))
    assert asyncio.run(grade(environment.rubric, saved, scenario, 10)).reward == rollout.reward
    assert metrics(saved, scenario) == rollout.metrics


def test_the_binary_reward(make: Make) -> None:
    assert attempt(make(reward="binary"), answer("Friday")).reward == 1.0
    assert attempt(make(reward="binary"), answer("Monday", "<plan@x>")).reward == 0.0


def test_ablations_of_the_reward(make: Make) -> None:
    environment = make(partial_credit=False, turn_bonus="more", bad_call_cost=0.5)
    rollout = attempt(environment, SEARCH_PLAN, NOTHING, answer("Monday", "<plan@x>"))
    assert rollout.reward == pytest.approx(-1 + 0.1 * 3 / 10 - 0.5)


def test_a_broken_database_is_not_scored(make: Make, small: MailDatabase) -> None:
    environment = make()
    small.path.unlink()
    rollout = attempt(environment, SEARCH_PLAN, answer("Friday"))
    assert (rollout.outcome, rollout.reward) == (Outcome.ENV_FAULT, None)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"reward": "rouge"}, "reward is 'rouge'; use one of art_e, binary"),
        ({"on_bad_call": "ignore"}, "on_bad_call is 'ignore'; use one of continue, end"),
        ({"turn_bonus": "some"}, "turn_bonus is 'some'; use one of fewer, more, none"),
        ({"database": "nothing.db"}, "no mail database nothing.db: build it with `etude mail import"),
        ({"questions": "nowhere"}, r"no questions in nowhere .*set environment\.args\.questions"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(make: Make, args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**args)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_date": "11 May"}, "question q1: query_date: Value error"),
        ({"query_date": "20010511"}, "question q1: query_date: Value error, want YYYY-MM-DD"),
        ({"inbox": None}, "question q1: inbox: Input should be a valid string"),
        ({"message_ids": ["<nothing@x>"]}, "question q1 rests on the mail <nothing@x>, which is not in"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(make: Make, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(QUESTION | change)


def test_splits_share_neither_inbox_nor_source(questions: dict[str, list[dict[str, Any]]]) -> None:
    """Fault 3: the public example chose checkpoints on the questions that it reports."""
    for key in ("inbox", "message_ids"):
        sets = [
            {value for row in rows for value in (row[key] if isinstance(row[key], list) else [row[key]])}
            for rows in questions.values()
        ]
        assert len(set.union(*sets)) == sum(map(len, sets)), key
