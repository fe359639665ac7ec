"""The e-mail search environment: a question about somebody's mail, three tools, ART·E's reward and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from etude.environment.environment import Environment, Limits
from etude.environment.scenario import SPLITS, Scenario, load_scenarios
from etude.errors import ConfigError, DataError
from etude.grading.art_e import ArtESettings, art_e_reward, binary_reward
from etude.grading.rubric import Rubric
from etude.recipes.email_search.database import MailDatabase
from etude.recipes.email_search.episode import Episode
from etude.recipes.email_search.scripted import GuidedSearcher, ScriptedSearcher
from etude.recipes.email_search.tools import mail_tools
from etude.rollout.rollout import Rollout

Reward = Literal["art_e", "binary"]
OnBadCall = Literal["continue", "end"]
TurnBonus = Literal["fewer", "more", "none"]

_INSTRUCTIONS = """\
You are an e-mail search agent. You answer questions of a user about the user's own e-mail. Search the inbox, read the \
e-mails that may hold the answer, and give the final answer with the message ids of the e-mails it rests on.
All keywords of a search must occur in an e-mail for it to be found: if nothing is found, use fewer or other keywords.
You may take at most {max_turns} turns, and the last one must be your final answer. If the inbox does not hold the \
answer, the final answer is "I don't know", without sources.
The user's e-mail address is {inbox}. Today's date is {query_date}."""


def environment(
    questions: str | Path = ".etude/mail",
    database: str | Path = ".etude/mail/enron.db",
    *,
    reward: Reward = "art_e",
    on_bad_call: OnBadCall = "continue",
    partial_credit: bool = True,
    turn_bonus: TurnBonus = "fewer",
    bad_call_cost: float = 0.2,
    max_turns: int = 10,
    max_tokens_per_turn: int = 2048,
    max_tokens: int = 8192,
    max_seconds: float = 300.0,
    search_tokens: int = 1000,
    read_tokens: int = 1500,
    tool_timeout_s: float = 30.0,
) -> Environment:
    """The environment that `email_search` names in a configuration; its arguments are `environment.args`.

    questions: folder of questions_train.jsonl, questions_validation.jsonl and questions_test.jsonl; a file that is not
    there is a split that is not there. database: as `etude mail import` built it. reward: "art_e" (the table of
    `etude.grading.art_e`) or "binary" (1 for the correct answer). on_bad_call, partial_credit, turn_bonus,
    bad_call_cost: see `ArtESettings`; "binary" knows none of them. max_*: limits of one attempt, see `Limits`.
    search_tokens, read_tokens: longest output of the two tools. tool_timeout_s: for each call.

    Raises ConfigError where the files are missing or a setting is none of its choices, DataError for a question that
    cannot be asked of this database.
    """
    for name, value, choices in (
        ("reward", reward, Reward),
        ("on_bad_call", on_bad_call, OnBadCall),
        ("turn_bonus", turn_bonus, TurnBonus),
    ):
        if value not in get_args(choices):
            raise ConfigError(f"email_search: {name} is {value!r}; use one of {', '.join(get_args(choices))}")
    mail = MailDatabase(database)
    scenarios = _load_questions(Path(questions), mail)
    art_e = ArtESettings(on_bad_call, partial_credit, turn_bonus, bad_call_cost)

    def art_e_score(rollout: Rollout, scenario: Scenario) -> float:
        return art_e_reward(Episode(rollout, scenario).facts(max_turns), art_e)

    def correct(rollout: Rollout, scenario: Scenario) -> float:
        return binary_reward(Episode(rollout, scenario).facts(max_turns))

    def instructions(scenario: Scenario) -> str:
        return _INSTRUCTIONS.format(max_turns=max_turns, inbox=scenario["inbox"], query_date=scenario["query_date"])

    return Environment(
        name="email_search",
        instructions=instructions,
        tools=mail_tools(mail, search_tokens=search_tokens, read_tokens=read_tokens, timeout_s=tool_timeout_s),
        rubric=Rubric(scores={"art_e": art_e_score} if reward == "art_e" else {"correct": correct}),
        scenarios=scenarios,
        limits=Limits(
            max_turns=max_turns,
            max_tokens_per_turn=max_tokens_per_turn,
            max_tokens=max_tokens,
            max_seconds=max_seconds,
        ),
        on_bad_call=on_bad_call,
        metrics=metrics,
        policies={
            "scripted": ScriptedSearcher(mail, max_turns=max_turns),
            "guided": GuidedSearcher(mail, max_turns=max_turns),
        },
    )


def metrics(rollout: Rollout, scenario: Scenario) -> dict[str, float]:
    """See `measure`."""
    return measure(Episode(rollout, scenario))


def measure(episode: Episode) -> dict[str, float]:
    """The 15 metrics of the article's rubric, then Etude's own; what is true or false is 1 or 0. Times are seconds.

    tool_latency is the mean over the calls (0 where there is none); wall_time is the whole attempt's.
    """
    rollout = episode.rollout
    calls = rollout.calls
    measured = {
        "answer_correct": episode.right,
        "sources_correct": episode.sources_correct,
        "num_turns": rollout.turns,
        "attempted_answer": episode.attempted,
        "ever_found_right_email": episode.found_right,
        "ever_read_right_email": episode.read_right,
        "cant_parse_tool_call": episode.unparsable_calls > 0,
        "bad_tool_call_name": episode.unknown_tools > 0,
        "bad_tool_call_args": episode.bad_arguments > 0,
        "ran_out_of_turns": episode.ran_out_of_turns,
        "returned_i_dont_know": episode.declined,
        "num_sources": len(episode.sources),
        "ever_tried_to_read_invalid_email": episode.invalid_reads > 0,
        "prompt_tokens": rollout.prompt_tokens,
        "completion_tokens": rollout.completion_tokens,
        "hallucinated": episode.attempted and not episode.right,
        "duplicate_tool_calls": episode.duplicate_calls,
        "tool_latency": sum(call.seconds for call in calls) / len(calls) if calls else 0.0,
        "truncated": episode.truncated,
        "wall_time": rollout.wall_s,
    }
    return {name: float(value) for name, value in measured.items()}


class _Question(BaseModel):
    """What a row must hold to be played and graded; `answer` None or "" is a question that the inbox cannot answer."""

    model_config = ConfigDict(strict=True)

    inbox: str
    question: str
    answer: str | None
    message_ids: list[str]
    also_ids: list[str]
    query_date: str

    @field_validator("query_date")
    @classmethod
    def _a_day(cls, day: str) -> str:
        if date.fromisoformat(day).isoformat() != day:
            raise ValueError("want YYYY-MM-DD")
        return day


def _load_questions(folder: Path, mail: MailDatabase) -> Mapping[str, list[Scenario]]:
    files = {split: folder / f"questions_{split}.jsonl" for split in SPLITS}
    scenarios = {split: load_scenarios(file, split) for split, file in files.items() if file.is_file()}
    if not scenarios:
        raise ConfigError(
            f"email_search: no questions in {folder} ({', '.join(file.name for file in files.values())}): "
            "set environment.args.questions to their folder"
        )
    for split, rows in scenarios.items():
        for row in rows:
            _check_question(row, f"{files[split]}: question {row.id}")
    _check_sources([row for rows in scenarios.values() for row in rows], mail)
    return scenarios


def _check_question(row: Mapping[str, Any], where: str) -> None:
    try:
        _Question.model_validate(dict(row))
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _check_sources(rows: list[Scenario], mail: MailDatabase) -> None:
    """So that a database of other mail is noticed before a model has failed at every question."""
    for row, unknown in zip(rows, mail.unknown_ids([row["message_ids"] for row in rows]), strict=True):
        if unknown:
            raise DataError(
                f"question {row.id} rests on the mail {unknown[0]}, which is not in {mail.path}: "
                "import the mail that the questions were written for"
            )
