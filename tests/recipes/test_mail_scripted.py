"""The searchers without a model: what they ask, how they guess, and that they play by the rules."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from etude.environment.environment import Environment, load_environment
from etude.recipes.email_search.database import MailDatabase
from etude.recipes.email_search.guessing import Kind, asked_kind, guess_answer
from etude.recipes.email_search.keywords import Keyword, rank_keywords, search_plan, words
from etude.recipes.email_search.tools import found_ids
from etude.rollout.outcome import Outcome
from etude.rollout.rollout import Rollout
from etude.rollout.scripted import play, traces


@pytest.fixture(scope="module")
def environment(enron_dir: Path, enron: MailDatabase) -> Environment:
    return load_environment("email_search", {"questions": str(enron_dir), "database": str(enron.path)})


def played(environment: Environment, policy: str, scenarios: int) -> list[Rollout]:
    async def all_of_them() -> list[Rollout]:
        chosen = environment.scenarios_of("train")[:scenarios]
        return [await play(environment, scenario, environment.policies[policy]) for scenario in chosen]

    return asyncio.run(all_of_them())


def test_names_and_rare_words_come_first() -> None:
    counts = {"calpine": 50, "purchase": 900, "price": 3000, "turbine": 200, "2001": 9000}
    ranked = rank_keywords(
        "What did Calpine take off the turbine's purchase price in 2001 and Nowhere?",
        mails=10_000,
        mails_with=lambda word: counts.get(word.lower(), 0),
    )
    assert [keyword.word for keyword in ranked] == ["Calpine", "2001", "turbine", "purchase", "price"]


def test_words_lose_possessives_and_closing_punctuation() -> None:
    assert words("Steffes's call-in, on Feb. 5 (PG&E)?") == ["Steffes", "call-in", "on", "Feb", "5", "PG&E"]


def test_a_plan_asks_for_less_and_less() -> None:
    keywords = [Keyword(word, 1.0, False) for word in "abcdef"]
    plan = list(search_plan(keywords))
    assert plan[:3] == [("a", "b", "c", "d"), ("a", "b", "c"), ("a", "b", "d")]
    assert [len(each) for each in plan] == [4, 3, 3, 3, 3, 2, 2, 2, 1, 1]
    assert list(search_plan(keywords[:1])) == [("a",)]
    assert list(search_plan([])) == []


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When are comments due?", Kind.DATE),
        ("By what date must we pay the invoice?", Kind.DATE),
        ("What time does the call start?", Kind.TIME),
        ("How much did the turbine cost?", Kind.MONEY),
        ("How many counterparties are in the batch?", Kind.NUMBER),
        ("Which attorney sent back changes?", Kind.PERSON),
        ("What participant code do I need?", Kind.CODE),
        ("Which firm did they take on?", None),
    ],
)
def test_what_a_question_asks_for(question: str, kind: Kind | None) -> None:
    assert asked_kind(question) is kind


@pytest.mark.parametrize(
    ("question", "body", "guess"),
    [
        ("How much was the Pastoria credit?", "Rent is $12. The Pastoria credit was $9.9MM.\nLunch cost $7.", "$9.9MM"),
        ("When is the audit?", "The budget is due June 3.\n\nThe audit takes place on May 14, 2001.", "May 14, 2001"),
        ("Who wrote to Jim Steffes about audits?", "To Jim Steffes: about audits, from Ann Lee.", "Ann Lee"),
        (
            "Which firm did Azurix hire?",
            "Azurix hired McNally Temple. Lunch is at noon.",
            "Azurix hired McNally Temple.",
        ),
        ("When is the audit?", "", ""),
    ],
)
def test_guesses(question: str, body: str, guess: str) -> None:
    keywords = rank_keywords(question, 1000, lambda word: 10)
    assert guess_answer(question, keywords, body) == guess


def test_the_scripted_searcher_plays_real_questions(environment: Environment) -> None:
    rollouts = played(environment, "scripted", 60)
    assert {rollout.outcome for rollout in rollouts} == {Outcome.OK}
    assert all(len(rollout.trajectory.rows) == 0 for rollout in rollouts)
    correct = sum(rollout.metrics["answer_correct"] for rollout in rollouts)
    assert correct >= 12  # 27 % of all 1,000 training questions
    for name in ("cant_parse_tool_call", "bad_tool_call_args", "duplicate_tool_calls", "ran_out_of_turns"):
        assert sum(rollout.metrics[name] for rollout in rollouts) == 0
    for rollout in rollouts:
        _check_legitimate(rollout)


def test_traces_of_the_guided_searcher_are_right_and_legitimate(environment: Environment) -> None:
    chosen = environment.scenarios_of("train")[:60]
    found = asyncio.run(traces(environment, chosen, environment.policies["guided"], min_reward=1.0))
    assert len(found) >= 45  # 896 of all 1,000
    for trace in found:
        assert [message.role for message in trace.messages[:3]] == ["system", "user", "assistant"]
        assert trace.messages[-1].tool_calls[0].name == "return_final_answer"
        assert len(trace.tools) == 3
    for rollout in played(environment, "guided", 20):
        assert rollout.metrics["hallucinated"] == 0
        _check_legitimate(rollout)


def test_a_question_that_no_search_answers_is_declined(environment: Environment) -> None:
    rollouts = [rollout for rollout in played(environment, "guided", 60) if not rollout.metrics["answer_correct"]]
    assert rollouts
    assert all(rollout.metrics["returned_i_dont_know"] for rollout in rollouts)


def _check_legitimate(rollout: Rollout) -> None:
    """Keywords are words of the question, and only what a search showed is read and cited."""
    question = {word.lower() for word in words(rollout.messages[1].content)}
    shown: set[str] = set()
    for call in rollout.calls:
        if call.name == "search_emails":
            assert {keyword.lower() for keyword in call.arguments["keywords"]} <= question
            shown.update(found_ids(call.output))
        elif call.name == "read_email":
            assert call.arguments["message_id"] in shown
        else:
            assert set(call.arguments["sources"]) <= shown
