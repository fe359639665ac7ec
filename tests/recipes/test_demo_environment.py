"""The demo's environment: companies on disk, tools that show little, the rules of email_search, and its baseline."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from etude.environment.calls import ToolCall
from etude.environment.environment import Environment, load_environment
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, run_calls
from etude.errors import ConfigError
from etude.recipes.email_demo.company import CompanySize, open_company
from etude.recipes.email_demo.corpus import generate
from etude.recipes.email_demo.recipe import DemoSettings, environment_of
from etude.recipes.email_demo.tools import RESULTS
from etude.recipes.email_demo.traces import clumsy_traces
from etude.recipes.email_demo.views import COMPACT, NOTHING_FOUND, compact_ids
from etude.recipes.email_search.database import Hit
from etude.recipes.email_search.mail import Mail
from etude.rollout.messages import Message
from etude.rollout.rollout import Rollout
from etude.rollout.scripted import play

SMALL = {
    "inboxes": 1,
    "mails_per_inbox": 150,
    "train_questions": 30,
    "validation_questions": 24,
    "test_questions": 24,
    "seed": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def environment(folder: Path) -> Environment:
    return load_environment("email_demo", {"folder": str(folder), **SMALL})


class Turns:
    """A policy that makes the given calls."""

    def __init__(self, *calls: ToolCall) -> None:
        self._calls = calls

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        return Message("assistant", "", (self._calls[sum(m.role == "assistant" for m in messages)],))


def attempt(environment: Environment, scenario: Scenario, *calls: ToolCall) -> Rollout:
    return asyncio.run(play(environment, scenario, Turns(*calls)))


def answered(environment: Environment, split: str = "validation") -> Scenario:
    return next(each for each in environment.scenarios_of(split) if each["answer"])


def read(message_id: str) -> ToolCall:
    return ToolCall("read_email", {"message_id": message_id})


def answer(text: str, *sources: str) -> ToolCall:
    return ToolCall("return_final_answer", {"answer": text, "sources": list(sources)})


# --- companies on disk --------------------------------------------------------------------------------------------


def test_each_split_has_its_questions_and_a_third_of_the_later_ones_is_worded_anew(environment: Environment) -> None:
    for split, count in (("train", 30), ("validation", 24), ("test", 24)):
        scenarios = environment.scenarios_of(split)
        unseen = sum(each["wording"] == "unseen" for each in scenarios)
        assert len(scenarios) == count
        assert unseen == 0 if split == "train" else count / 6 < unseen < count / 2


def test_a_company_is_built_once(folder: Path, environment: Environment) -> None:
    databases = sorted(folder.glob("*/mail.db"))
    before = [file.stat().st_mtime_ns for file in databases]
    again = load_environment("email_demo", {"folder": str(folder), **SMALL})
    assert [file.stat().st_mtime_ns for file in databases] == before
    assert len(databases) == 3
    assert again.scenarios_of("test") == environment.scenarios_of("test")


def test_another_seed_is_another_company_beside_it(folder: Path, environment: Environment) -> None:
    size = CompanySize(inboxes=1, mails_per_inbox=60, questions=5)
    first, again, other = (open_company(folder, "test", seed, size) for seed in (1, 1, 2))
    assert first.scenarios == again.scenarios != other.scenarios
    assert first.database.path == again.database.path != other.database.path
    assert not list(folder.glob(".*"))


def test_sizes_that_cannot_be_had_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mails_per_inbox must be at least 20"):
        open_company(tmp_path, "test", 0, CompanySize(1, 5, 5))
    assert not list(tmp_path.iterdir())


# --- what the model sees ------------------------------------------------------------------------------------------


def test_hits_are_a_line_each_with_id_and_day() -> None:
    hits = [Hit("m12", "... the plan m99 1 May: ...", "2012-05-03T10:00:00"), Hit("m345", "x", "2012-12-24T08:00:00")]
    shown = COMPACT.hits(hits)
    assert shown == "m12 3 May: ... the plan m99 1 May: ...\nm345 24 Dec: x"
    assert compact_ids(shown) == ["m12", "m345"]
    assert COMPACT.hits([]) == NOTHING_FOUND
    assert compact_ids(NOTHING_FOUND) == []


def test_a_mail_is_shown_without_addresses_and_empty_lines() -> None:
    mail = Mail("m1", "2013-06-07T09:05:00", "The plan", "belo.karsa@x.example", (), (), (), "Hi,\n\nNo.\n\nBelo", "f")
    assert COMPACT.mail(mail) == "7 Jun, Belo Karsa: The plan\nHi,\nNo.\nBelo"


def test_the_prompt_is_the_day_and_the_question(environment: Environment) -> None:
    scenario = answered(environment)
    assert re.fullmatch(r"\d{1,2} [A-Z][a-z]+", environment.instructions_for(scenario))
    assert environment.prompt_for(scenario) == scenario["question"]


def test_a_split_sees_its_own_mail_only(environment: Environment) -> None:
    splits = ("train", "validation", "test")
    asked = {split: answered(environment, split) for split in splits}
    shown = {
        (split, owner): attempt(environment, asked[split], read(asked[owner]["message_ids"][0]), answer("x")).calls[0]
        for split in splits
        for owner in splits
    }
    for split, owner in shown:
        assert (shown[split, owner].output == shown[owner, owner].output) == (split == owner)
        assert shown[owner, owner].kind == "ok"


def test_the_tools_show_what_the_traces_show(folder: Path) -> None:
    size = CompanySize(inboxes=2, mails_per_inbox=300, questions=60)
    company = open_company(folder, "train", 8, size)
    environment = environment_of({"train": company}, DemoSettings(), {})
    scenarios = {scenario.id: scenario for scenario in company.scenarios}
    corpus = generate("train", 8, 2, 300, 60)

    async def replay(trace_id: str, calls: Sequence[ToolCall]) -> list[str]:
        context = ToolContext(scenario=scenarios[trace_id], trace_id="t", state={})
        results = await run_calls(environment.tools_by_name, calls, context, lambda text, most: (text, 1, False))
        return [result.output for result in results]

    for trace in clumsy_traces(corpus, 1, skill=0.4, results=RESULTS, view=COMPACT):
        shown = asyncio.run(replay(trace.question["id"], [step.call for step in trace.steps[:-1]]))
        assert shown == [step.shown for step in trace.steps[:-1]]


def test_mistakes_are_told_to_the_model(environment: Environment) -> None:
    searches = [ToolCall("search_emails", {"keywords": words}) for words in (["?"], [])]
    rollout = attempt(environment, answered(environment), *searches, read("m0"), answer("x"))
    assert [call.kind for call in rollout.calls] == ["error", "bad_arguments", "error", "ok"]
    assert all(call.output.startswith("Error: ") for call in rollout.calls[:3])


# --- rewards and figures ------------------------------------------------------------------------------------------


def test_the_right_answer_from_the_right_mail_earns_most(environment: Environment) -> None:
    scenario = answered(environment)
    right = scenario["message_ids"][0]
    names = re.findall(r"(?<!^)\b[A-Z][a-z]+", scenario["question"])
    best = attempt(
        environment,
        scenario,
        ToolCall("search_emails", {"keywords": names}),
        read(right),
        answer(scenario["answer"], right),
    )
    unknown = attempt(environment, scenario, answer("I don't know"))
    wrong = attempt(environment, scenario, answer("purple"))
    rewards = [rollout.reward or 0.0 for rollout in (best, unknown, wrong)]
    assert rewards[0] > 1.3
    assert rewards == sorted(rewards, reverse=True)
    assert rewards[2] < 0
    assert best.metrics["answer_correct"] == best.metrics["sources_precision"] == best.metrics["sources_recall"] == 1
    assert best.metrics["ever_read_right_email"] == 1
    assert unknown.metrics["sources_recall"] == wrong.metrics["answer_correct"] == 0
    found = right in compact_ids(best.calls[0].output)
    assert best.metrics["ever_found_right_email"] == found


def test_accuracy_is_told_apart_by_wording(environment: Environment) -> None:
    for wording, other in (("seen", "unseen"), ("unseen", "seen")):
        scenario = next(each for each in environment.scenarios_of("validation") if each["wording"] == wording)
        metrics = attempt(environment, scenario, answer(scenario["answer"] or "I don't know")).metrics
        assert metrics[f"answer_correct_{wording}"] == 1
        assert f"answer_correct_{other}" not in metrics


def test_the_binary_reward_is_0_or_1(folder: Path) -> None:
    environment = load_environment("email_demo", {"folder": str(folder), **SMALL, "reward": "binary"})
    scenario = answered(environment)
    assert attempt(environment, scenario, answer(scenario["answer"])).reward == 1
    assert attempt(environment, scenario, answer("purple")).reward == 0


@pytest.mark.parametrize(("name", "value"), [("reward", "best"), ("turn_bonus", "some")])
def test_a_setting_that_is_none_of_its_choices_is_refused(folder: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is '{value}'; use one of "):
        load_environment("email_demo", {"folder": str(folder), **SMALL, name: value})


def test_the_baseline_plays_by_the_rules_and_is_no_good(environment: Environment) -> None:
    scenarios = environment.scenarios_of("train")
    rollouts = [asyncio.run(play(environment, each, environment.policies["scripted"])) for each in scenarios]
    assert all(rollout.outcome == "ok" and not rollout.parse_failures for rollout in rollouts)
    assert {call.kind for rollout in rollouts for call in rollout.calls} == {"ok"}
    accuracy = sum(rollout.metrics["answer_correct"] for rollout in rollouts) / len(rollouts)
    assert 0.15 < accuracy < 0.85
