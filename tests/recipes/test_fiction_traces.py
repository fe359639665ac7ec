"""The clumsy searcher's traces: what they show is what the real tools show, and skill helps."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, run_calls
from etude.errors import ConfigError
from etude.grading.answer import check_answer, says_i_dont_know
from etude.recipes.email_demo.corpus import Corpus, generate, write_corpus
from etude.recipes.email_demo.index import MailIndex
from etude.recipes.email_demo.traces import Trace, clumsy_traces
from etude.recipes.email_search.database import MailDatabase
from etude.recipes.email_search.importing import import_mail
from etude.recipes.email_search.tools import ANSWER, READ, SEARCH, mail_tools


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return generate("pretrain", 1, inboxes=2, mails_per_inbox=400, questions=200)


@pytest.fixture(scope="module")
def database(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> MailDatabase:
    folder = tmp_path_factory.mktemp("fiction")
    mails, _ = write_corpus(corpus, folder)
    import_mail([mails], folder / "mail.db")
    return MailDatabase(folder / "mail.db")


@pytest.fixture(scope="module")
def index(corpus: Corpus) -> MailIndex:
    return MailIndex(corpus.mails)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_the_index_answers_as_the_database_does(
    corpus: Corpus, index: MailIndex, database: MailDatabase, data: st.DataObject
) -> None:
    row = data.draw(st.sampled_from(corpus.questions))
    said = [*re.findall(r"\w+", row["question"]), "moved", "now", "?", 'a "quote']
    keywords = data.draw(st.lists(st.sampled_from(said), min_size=1, max_size=3))
    limit = data.draw(st.integers(1, 10))
    view = {"inbox": row["inbox"], "visible_until": row["query_date"]}
    assert index.search(keywords, **view, limit=limit) == database.search(keywords, **view, limit=limit)


def test_the_tools_would_have_shown_the_same(corpus: Corpus, database: MailDatabase) -> None:
    tools = {tool.name: tool for tool in mail_tools(database)}

    async def replay(trace: Trace) -> list[str]:
        scenario = Scenario(trace.question["id"], "train", trace.question)  # type: ignore[arg-type]
        context = ToolContext(scenario=scenario, trace_id="t", state={})
        results = await run_calls(
            tools, [step.call for step in trace.steps[:-1]], context, lambda text, most: (text, len(text), False)
        )
        assert all(result.kind == "ok" for result in results)
        return [result.output for result in results]

    traces = list(clumsy_traces(corpus, 1, skill=0.5, results=4, say_results=True))[:40]
    for trace in traces:
        assert asyncio.run(replay(trace)) == [step.shown for step in trace.steps[:-1]]


@pytest.fixture(scope="module")
def by_skill(corpus: Corpus) -> dict[float, list[Trace]]:
    return {skill: list(clumsy_traces(corpus, 2, skill=skill, results=5)) for skill in (0.0, 0.5, 1.0)}


def right_ids(trace: Trace) -> set[str]:
    return {*trace.question["message_ids"], *trace.question["also_ids"]}


def opened(trace: Trace) -> set[str]:
    return {step.call.arguments["message_id"] for step in trace.steps if step.call.name == READ}


def test_skill_finds_the_right_mail_more_often_and_never_always(by_skill: dict[float, list[Trace]]) -> None:
    shares = []
    for traces in by_skill.values():
        answerable = [trace for trace in traces if trace.question["answer"]]
        shares.append(sum(bool(opened(trace) & right_ids(trace)) for trace in answerable) / len(answerable))
    assert shares == sorted(shares)
    assert 0.1 < shares[0] < shares[1] - 0.1 < shares[2] - 0.2
    assert shares[2] < 0.95


def test_whoever_opened_only_the_right_mail_answers_rightly(by_skill: dict[float, list[Trace]]) -> None:
    for trace in (trace for traces in by_skill.values() for trace in traces):
        if trace.question["answer"] and opened(trace) and opened(trace) <= right_ids(trace):
            answer = trace.steps[-1].call.arguments
            assert check_answer(trace.question, answer["answer"]).correct
            assert set(answer["sources"]) <= right_ids(trace)


def test_all_endings_occur(by_skill: dict[float, list[Trace]]) -> None:
    answers = [(t.question, t.steps[-1].call.arguments["answer"]) for t in by_skill[0.5]]
    unknown = sum(says_i_dont_know(answer) for _, answer in answers)
    right = sum(check_answer(row, answer).correct for row, answer in answers if row["answer"])
    wrong = sum(not says_i_dont_know(a) and not check_answer(row, a).correct for row, a in answers)
    assert min(unknown, right, wrong) > len(answers) // 20


def test_a_trace_is_calls_and_results_and_one_answer(by_skill: dict[float, list[Trace]]) -> None:
    for trace in by_skill[0.5]:
        names = [step.call.name for step in trace.steps]
        assert names[0] == SEARCH
        assert names.count(ANSWER) == 1
        assert names[-1] == ANSWER
        assert 2 <= len(names) <= 7
        messages = trace.messages()
        assert [message.role for message in messages] == ["assistant", "tool"] * (len(names) - 1) + ["assistant"]
        assert all(a.tool_calls[0].id == t.call_id for a, t in zip(messages[:-1:2], messages[1::2], strict=True))


def test_a_mail_is_opened_once_and_only_if_it_was_found(by_skill: dict[float, list[Trace]]) -> None:
    for trace in by_skill[0.0]:
        seen, read = "", []
        for step in trace.steps:
            if step.call.name == READ:
                assert f'"{step.call.arguments["message_id"]}"' in seen
                read.append(step.call.arguments["message_id"])
            elif step.call.name == SEARCH:
                seen += step.shown
        assert len(read) == len(set(read)) <= 3


def test_the_same_seed_gives_the_same_traces(corpus: Corpus) -> None:
    first, again, other = (list(clumsy_traces(corpus, seed, skill=0.4, results=5))[:50] for seed in (3, 3, 4))
    assert first == again != other


def test_each_round_asks_every_question(corpus: Corpus) -> None:
    asked = [trace.question["id"] for trace in clumsy_traces(corpus, 1, skill=1, results=3, rounds=2)]
    ids = sorted(row["id"] for row in corpus.questions)
    assert sorted(asked[: len(ids)]) == sorted(asked[len(ids) :]) == ids


@pytest.mark.parametrize("skill", [-0.1, 1.5])
def test_skill_is_from_0_to_1(corpus: Corpus, skill: float) -> None:
    with pytest.raises(ConfigError, match="skill must be from 0 to 1"):
        next(clumsy_traces(corpus, 1, skill=skill, results=5))
