"""The demo's environment: e-mail search over a generated company, with short results, for the bundled model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import get_args

from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.errors import ConfigError
from etude.grading.art_e import ArtESettings, art_e_reward, binary_reward, source_scores
from etude.grading.rubric import Rubric
from etude.recipes.email_demo.company import Company, CompanySize, open_company
from etude.recipes.email_demo.names import Split
from etude.recipes.email_demo.searcher import ClumsySearcher
from etude.recipes.email_demo.tools import compact_tools
from etude.recipes.email_demo.values import MONTHS
from etude.recipes.email_demo.views import compact_ids
from etude.recipes.email_search.database import MailDatabase
from etude.recipes.email_search.episode import Episode
from etude.recipes.email_search.recipe import Reward, TurnBonus, measure
from etude.rollout.rollout import Rollout

BASELINE_SKILL = 0.3
# A call takes about 20 tokens and the longest possible answer 40; an attempt takes some 300, and 700 at the most.
MAX_TOKENS_PER_TURN, MAX_TOKENS = 64, 768
# Hundreds of attempts share two cores, perhaps with other work: time is a limit against hanging here, and no more.
TOOL_TIMEOUT_S, MAX_SECONDS = 300.0, 3600.0


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The rules: see `environment`. Raises ConfigError for what is none of the choices."""

    reward: Reward = "art_e"
    partial_credit: bool = True
    turn_bonus: TurnBonus = "fewer"
    bad_call_cost: float = 0.2
    max_turns: int = 8

    def __post_init__(self) -> None:
        for name, value, choices in (("reward", self.reward, Reward), ("turn_bonus", self.turn_bonus, TurnBonus)):
            if value not in get_args(choices):
                raise ConfigError(f"email_demo: {name} is {value!r}; use one of {', '.join(get_args(choices))}")


def environment(
    folder: str | Path = ".etude/demo",
    *,
    seed: int = 0,
    inboxes: int = 3,
    mails_per_inbox: int = 2500,
    train_questions: int = 1500,
    validation_questions: int = 300,
    test_questions: int = 400,
    reward: Reward = "art_e",
    partial_credit: bool = True,
    turn_bonus: TurnBonus = "fewer",
    bad_call_cost: float = 0.2,
    max_turns: int = 8,
) -> Environment:
    """The environment that `email_demo` names in a configuration; its arguments are `environment.args`.

    folder: where the companies of `seed` are built on first use (some 20 s): one for each split that has questions,
    with `inboxes` inboxes of `mails_per_inbox` mails; the splits share no name. reward: "art_e" or "binary", and with
    partial_credit, turn_bonus and bad_call_cost as in `email_search`. max_turns: of an attempt.
    Raises ConfigError for what cannot be had or is none of its choices, StorageError where nothing can be written.
    """
    settings = DemoSettings(reward, partial_credit, turn_bonus, bad_call_cost, max_turns)
    questions: dict[Split, int] = {
        "train": train_questions,
        "validation": validation_questions,
        "test": test_questions,
    }
    sizes = {split: CompanySize(inboxes, mails_per_inbox, count) for split, count in questions.items() if count}
    companies = {split: open_company(Path(folder), split, seed, size) for split, size in sizes.items()}
    return environment_of(companies, settings, {"scripted": ClumsySearcher(seed, sizes, BASELINE_SKILL)})


def environment_of(
    companies: Mapping[Split, Company], settings: DemoSettings, policies: Mapping[str, ClumsySearcher]
) -> Environment:
    """The environment over companies that are there already, one for each split."""
    art_e = ArtESettings("continue", settings.partial_credit, settings.turn_bonus, settings.bad_call_cost)

    def art_e_score(rollout: Rollout, scenario: Scenario) -> float:
        return art_e_reward(_episode(rollout, scenario).facts(settings.max_turns), art_e)

    def correct(rollout: Rollout, scenario: Scenario) -> float:
        return binary_reward(_episode(rollout, scenario).facts(settings.max_turns))

    databases: dict[str, MailDatabase] = {split: company.database for split, company in companies.items()}
    return Environment(
        name="email_demo",
        instructions=lambda scenario: instructions(scenario["query_date"]),
        tools=compact_tools(databases, timeout_s=TOOL_TIMEOUT_S),
        rubric=Rubric(scores={"art_e": art_e_score} if settings.reward == "art_e" else {"correct": correct}),
        scenarios={split: company.scenarios for split, company in companies.items()},
        limits=Limits(
            max_turns=settings.max_turns,
            max_tokens_per_turn=MAX_TOKENS_PER_TURN,
            max_tokens=MAX_TOKENS,
            max_seconds=MAX_SECONDS,
        ),
        metrics=metrics,
        policies=policies,
    )


def instructions(query_date: str) -> str:
    """All that the model is told: the day on which the question is asked. The bundled model knows its task."""
    day = date.fromisoformat(query_date)
    return f"{day.day} {MONTHS[day.month - 1]}"


def metrics(rollout: Rollout, scenario: Scenario) -> dict[str, float]:
    """Those of `email_search`; precision and recall of the sources; and answer_correct again, under the wording of the
    question: answer_correct_seen or answer_correct_unseen (worded as no training question is)."""
    episode = _episode(rollout, scenario)
    measured = measure(episode)
    sources = source_scores(episode.sources, episode.needed_ids, episode.also_ids)
    measured |= {"sources_precision": sources.precision, "sources_recall": sources.recall}
    return measured | {f"answer_correct_{scenario['wording']}": measured["answer_correct"]}


def _episode(rollout: Rollout, scenario: Scenario) -> Episode:
    return Episode(rollout, scenario, compact_ids)
