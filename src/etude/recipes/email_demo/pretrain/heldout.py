"""How well a model plays, in a company whose names no trace has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from etude.engine.local import LocalEngine
from etude.engine.protocol import SampleRequest
from etude.environment.calls import ToolCall
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.evaluation.evaluate import play_scenarios, tickets_of
from etude.grading.answer import check_answer
from etude.model.load import load_model
from etude.recipes.email_demo.company import Company, CompanySize, open_company
from etude.recipes.email_demo.names import Split
from etude.recipes.email_demo.pretrain.settings import PretrainSettings
from etude.recipes.email_demo.recipe import MAX_TOKENS, MAX_TOKENS_PER_TURN, DemoSettings, environment_of
from etude.recipes.email_demo.tools import READ_TOKENS, RESULTS, SEARCH_TOKENS
from etude.recipes.email_demo.views import COMPACT
from etude.recipes.email_search.tools import ANSWER, READ, SEARCH
from etude.rollout.chat import ChatFormat, chat_format
from etude.rollout.messages import Message
from etude.rollout.player import Player
from etude.rollout.rollout import Rollout

# The names of "train", which pretraining does not use, and a seed that is no demo's.
SPLIT: Split = "train"
SEED, INBOXES = 1_000_000, 2
SLOTS = 64


def heldout_company(settings: PretrainSettings, folder: Path) -> Company:
    size = CompanySize(INBOXES, settings.play_mails_per_inbox, settings.play_scenarios)
    return open_company(folder, SPLIT, SEED, size)


def play_heldout(folder: Path, company: Company, scenarios: int, temperature: float) -> dict[str, float]:
    """Figures of the model in `folder` over the first `scenarios` questions, once each. temperature 0 is greedy.

    right, hallucinated, declined, found, read: shares of attempts; right_if_read: of those that opened a right mail;
    bad_calls: attempts with a call or turn that was none. given: the share of right answers where search and right mail
    are there already, and only the answer is to be given (greedily, of questions that have one).
    """
    environment = environment_of({SPLIT: company}, DemoSettings(), {})
    loaded = load_model(str(folder))
    chat = chat_format(loaded.tokenizer)
    compute = ThreadPoolExecutor(1)
    engine = LocalEngine(
        loaded.model, max_slots=SLOTS, max_context=MAX_TOKENS, lockstep=False, version_of=lambda: 0, compute=compute
    )

    async def play() -> dict[str, float]:
        player = Player(environment, engine, chat, seed=0, temperature=temperature, max_concurrent=SLOTS)
        try:
            groups = await play_scenarios(
                player,
                tickets_of(company.scenarios[:scenarios]),
                1,
                name="heldout",
                chunk=None,
                on_group=lambda group: None,
                on_progress=lambda done, total: None,
            )
            figures = _figures([rollout for group in groups for rollout in group.scored])
            return figures | {"given": await _answers_given(environment, company, scenarios, engine, chat)}
        finally:
            await engine.aclose()

    with compute:
        return asyncio.run(play())


def _figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
    named = {
        "right": "answer_correct",
        "declined": "returned_i_dont_know",
        "hallucinated": "hallucinated",
        "found": "ever_found_right_email",
        "read": "ever_read_right_email",
        "sources": "sources_correct",
        "turns": "num_turns",
    }
    figures = {name: _mean([rollout.metrics[metric] for rollout in rollouts]) for name, metric in named.items()}
    metrics = [rollout.metrics for rollout in rollouts]
    figures["right_if_read"] = _mean([each["answer_correct"] for each in metrics if each["ever_read_right_email"]])
    bad = ("cant_parse_tool_call", "bad_tool_call_name", "bad_tool_call_args", "truncated")
    figures["bad_calls"] = _mean([max(each[name] for name in bad) for each in metrics])
    figures["tokens"] = _mean([rollout.prompt_tokens + rollout.completion_tokens for rollout in rollouts])
    figures["attempts"] = len(rollouts)
    return {name: round(value, 4) for name, value in figures.items()}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


async def _answers_given(
    environment: Environment, company: Company, scenarios: int, engine: LocalEngine, chat: ChatFormat
) -> float:
    """The share of right answers to questions whose right mail was opened for the model."""
    asked = [scenario for scenario in company.scenarios[:scenarios] if scenario["answer"]]

    async def answer(number: int, scenario: Scenario) -> bool:
        key = f"given/{number}"
        prompt = chat.start(_opened(environment, company, scenario, chat), environment.tool_specs)
        engine.open(key)
        try:
            sample = await engine.sample(
                SampleRequest(key, tuple(prompt), MAX_TOKENS_PER_TURN, chat.stop_ids, temperature=0)
            )
        finally:
            engine.close(key)
        answers = [call.arguments for call in chat.parse(sample.tokens).calls if call.name == ANSWER]
        return bool(answers) and check_answer(scenario, str(answers[0].get("answer"))).correct

    right = await asyncio.gather(*(answer(number, scenario) for number, scenario in enumerate(asked)))
    return round(_mean([float(each) for each in right]), 4)


def _opened(environment: Environment, company: Company, scenario: Scenario, chat: ChatFormat) -> list[Message]:
    """A conversation in which the names were searched for and the right mail was opened."""
    view = {"inbox": scenario["inbox"], "visible_until": scenario["query_date"]}
    keywords = re.findall(r"(?<!^)\b[A-Z][a-z]+", scenario["question"]) or re.findall(r"\w+", scenario["question"])[:1]
    hits = company.database.search(keywords, **view, limit=RESULTS, snippet_words=COMPACT.snippet_words)
    mail = company.database.read(scenario["message_ids"][0], **view)
    assert mail is not None  # a question rests on a mail that can be seen
    steps = (
        (ToolCall(SEARCH, {"keywords": keywords}), COMPACT.hits(hits), SEARCH_TOKENS),
        (ToolCall(READ, {"message_id": mail.message_id}), COMPACT.mail(mail), READ_TOKENS),
    )
    messages = [Message("system", environment.instructions_for(scenario)), Message("user", scenario["question"])]
    for call, shown, budget in steps:
        messages += [Message("assistant", "", (call,)), Message("tool", chat.cut(shown, budget)[0], name=call.name)]
    return messages
