"""Traces as tokens, a file for each company, made by many processes. A shard depends on settings and number alone."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from etude.errors import DataError
from etude.recipes.email_demo.corpus import generate
from etude.recipes.email_demo.pretrain.settings import PretrainSettings
from etude.recipes.email_demo.recipe import MAX_TOKENS, instructions
from etude.recipes.email_demo.tools import READ_TOKENS, RESULTS, SEARCH_TOKENS, compact_tools
from etude.recipes.email_demo.traces import Trace, clumsy_traces
from etude.recipes.email_demo.views import COMPACT
from etude.recipes.email_search.tools import READ, SEARCH
from etude.rollout.chat import ChatFormat, chat_format
from etude.rollout.messages import Message
from etude.rollout.traces import Trace as Conversation
from etude.rollout.traces import trace_row

_BUDGETS = {SEARCH: SEARCH_TOKENS, READ: READ_TOKENS}


@dataclass(frozen=True, slots=True)
class TokenTraces:
    """Traces end to end. tokens, written: of each token its id, and whether the assistant wrote it. lengths: tokens of
    each trace."""

    tokens: NDArray[np.int16]
    written: NDArray[np.bool_]
    lengths: NDArray[np.int32]

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.cumsum(self.lengths, dtype=np.int64) - self.lengths


def make_shards(
    settings: PretrainSettings, tokenizer_folder: Path, folder: Path, *, workers: int
) -> Generator[tuple[int, int], None, None]:
    """Make what is missing; yields (shards there, shards in all) after each. Closing the iterator stops the workers.

    A shard appears as a whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [number for number in range(settings.companies) if not _file(folder, number).is_file()]
    there = settings.companies - len(missing)
    yield there, settings.companies
    with _workers(min(workers, len(missing)), _Maker(settings, tokenizer_folder, folder)) as made:
        for _ in made(missing):
            there += 1
            yield there, settings.companies


def load_shards(folder: Path, companies: int) -> TokenTraces:
    """Those shards, in their order. Raises DataError where one cannot be read."""
    parts = []
    for number in range(companies):
        try:
            with np.load(_file(folder, number)) as shard:
                parts.append(TokenTraces(shard["tokens"], shard["written"], shard["lengths"]))
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{_file(folder, number)} is no shard: {error}; delete it and run again") from error
    return TokenTraces(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.written for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )


def tokens_of_company(settings: PretrainSettings, number: int, chat: ChatFormat) -> TokenTraces:
    """The attempts in one company. One that is longer than an attempt may be is left out, as it could not happen."""
    seed = settings.seed * settings.companies + number
    corpus = generate("pretrain", seed, settings.inboxes, settings.mails_per_inbox, settings.questions)
    specs = tuple(tool.spec() for tool in compact_tools({}, timeout_s=1.0))
    rows = []
    for attempt in range(settings.rounds):
        skill = Random(f"skill {seed} {attempt}").choice(settings.skills)
        traces = clumsy_traces(corpus, seed * settings.rounds + attempt, skill=skill, results=RESULTS, view=COMPACT)
        rows += [trace_row(chat, Conversation(_messages(trace, chat), specs)) for trace in traces]
    rows = [row for row in rows if len(row) <= MAX_TOKENS]
    return TokenTraces(
        np.concatenate([row.tokens for row in rows]).astype(np.int16),
        np.concatenate([row.action_mask for row in rows]),
        np.array([len(row) for row in rows], dtype=np.int32),
    )


def _messages(trace: Trace, chat: ChatFormat) -> tuple[Message, ...]:
    """The whole conversation, results cut as the tools cut them."""
    messages = [
        Message("system", instructions(trace.question["query_date"])),
        Message("user", trace.question["question"]),
    ]
    for message in trace.messages():
        if message.role == "tool":
            shown, _, _ = chat.cut(message.content, _BUDGETS[message.name])
            message = Message("tool", shown, call_id=message.call_id, name=message.name)
        messages.append(message)
    return tuple(messages)


@dataclass(frozen=True)
class _Maker:
    """Makes shards; goes to worker processes, each of which reads the tokenizer once."""

    settings: PretrainSettings
    tokenizer_folder: Path
    folder: Path

    def __call__(self, number: int) -> None:
        made = tokens_of_company(self.settings, number, _chat(self.tokenizer_folder))
        file = _file(self.folder, number)
        unfinished = file.with_name(f".{file.stem}.{os.getpid()}.npz")
        np.savez(unfinished, tokens=made.tokens, written=made.written, lengths=made.lengths)
        unfinished.replace(file)


@cache
def _chat(tokenizer_folder: Path) -> ChatFormat:
    from transformers import AutoTokenizer

    return chat_format(AutoTokenizer.from_pretrained(tokenizer_folder), "compact")


@contextmanager
def _workers(count: int, make: _Maker) -> Iterator[Callable[[Iterable[int]], Iterator[None]]]:
    """Runs `make` over numbers: in `count` processes, in any order; in this one where count is 0."""
    if not count:
        yield lambda numbers: map(make, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        yield lambda numbers: pool.imap_unordered(make, numbers)


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.npz"
