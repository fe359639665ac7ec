"""Replies that are kept: what is a hit, what is not, and that nothing on the disk can stop a run or tell a secret."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.openai_server import Garbage, OpenAIServer, Status, text

import etude.engine.remote.client as client_module
from etude.engine.protocol import EngineFault
from etude.engine.remote.cache import CachedReply, ReplyCache, cache_key
from etude.engine.remote.client import ChatClient, Completion
from etude.engine.remote.settings import EndpointSettings
from etude.errors import StorageError

ASK = [{"role": "user", "content": "what now"}]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.005)
    return tmp_path / "cache" / "replies.db"


def ask(server: OpenAIServer, requests: Sequence[dict[str, Any]], **settings: Any) -> list[Completion]:
    async def main() -> list[Completion]:
        async with ChatClient(EndpointSettings(server.url, **{"model": "small", **settings})) as client:
            return [await client.complete(**{"messages": ASK, **request}) for request in requests]

    return asyncio.run(main())


def test_the_same_request_is_asked_once(file: Path) -> None:
    with OpenAIServer(text("yes")) as server:
        prices = {"prompt_price": 1.0, "completion_price": 1.0}
        first, second = ask(server, [{}, {}], cache=file, **prices)
        (third,) = ask(server, [{}], cache=file, **prices)
    assert len(server.requests) == 1
    assert [each.cached for each in (first, second, third)] == [False, True, True]
    assert third.message == first.message
    assert (third.cost, third.seconds, third.prompt_tokens) == (first.cost, first.seconds, first.prompt_tokens)


def test_hits_are_counted_and_cost_nothing(file: Path) -> None:
    async def main(server: OpenAIServer) -> ChatClient:
        settings = EndpointSettings(server.url, "small", cache=file, prompt_price=1.0, completion_price=1.0)
        async with ChatClient(settings) as client:
            for _ in range(3):
                await client.complete(ASK)
            return client

    with OpenAIServer(text("yes")) as server:
        stats = asyncio.run(main(server)).stats
    assert (stats.cache_hits, stats.requests, stats.replies) == (2, 1, 1)
    assert stats.spent == pytest.approx(3e-6)  # two words asked, one said, once


@pytest.mark.parametrize(
    "other",
    [{"messages": [{"role": "user", "content": "what then"}]}, {"max_tokens": 9}, {"temperature": 0.5},
     {"extra": {"top_p": 0.5}}, {"tools": [{"type": "function", "function": {"name": "a"}}]}],
    ids=str,
)  # fmt: skip
def test_another_request_is_another_reply(file: Path, other: dict[str, Any]) -> None:
    with OpenAIServer(text("yes")) as server:
        ask(server, [{}, other], cache=file)
    assert len(server.requests) == 2


def test_attempts_differ_where_there_is_chance(file: Path) -> None:
    with OpenAIServer(text("yes")) as server:
        ask(server, [{"temperature": 1.0, "seed": seed} for seed in (1, 2, 1)], cache=file)
        assert len(server.requests) == 2
        # ... also where the endpoint takes no seed, or reads only a part of it
        ask(server, [{"temperature": 1.0, "seed": seed} for seed in (1, 2, 1)], cache=file, extra={"seed": None})
        assert len(server.requests) == 4
        ask(server, [{"temperature": 1.0, "seed": seed} for seed in (7, 7 + 2**31)], cache=file)
        assert len(server.requests) == 6
        ask(server, [{"temperature": 0.0, "seed": seed} for seed in (1, 2)], cache=file)
        assert len(server.requests) == 7
        # ... and where the endpoint's own temperature is used
        ask(server, [{"seed": seed} for seed in (1, 2)], cache=file, extra={"temperature": None})
        assert len(server.requests) == 9


def test_other_endpoints_and_models_are_others(file: Path) -> None:
    with OpenAIServer(text("one")) as one, OpenAIServer(text("two")) as two:
        ask(one, [{}], cache=file)
        assert ask(two, [{}], cache=file)[0].content == "two"
        assert not ask(one, [{}], cache=file, model="large")[0].cached


def test_off_is_off(tmp_path: Path) -> None:
    with OpenAIServer(text("yes")) as server:
        ask(server, [{}, {}], cache=None)
    assert len(server.requests) == 2
    assert list(tmp_path.rglob("*")) == []


def test_what_failed_is_not_kept(file: Path) -> None:
    with OpenAIServer(text("yes"), faults=[Status(500), Garbage(), None]) as server:
        for _ in range(2):
            with pytest.raises(EngineFault):
                ask(server, [{}], cache=file, max_retries=0)
        assert not ask(server, [{}], cache=file)[0].cached


def test_no_key_and_no_request_is_in_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    with OpenAIServer(text("yes"), key="sk-very-secret") as server:
        ask(server, [{}], cache=file, api_key_env="MY_KEY")
    held = b"".join(each.read_bytes() for each in file.parent.iterdir())
    assert b"sk-very-secret" not in held
    assert b"what now" not in held


def test_an_entry_that_is_no_reply_is_asked_for_again(file: Path) -> None:
    with OpenAIServer(text("yes")) as server:
        ask(server, [{}], cache=file)
        connection = sqlite3.connect(file)
        key = connection.execute("SELECT key FROM replies").fetchone()[0]
        cache = ReplyCache(file)
        cache.put(key, CachedReply(b"{}", 1.0))
        cache.close()
        connection.close()
        assert [each.cached for each in ask(server, [{}, {}], cache=file)] == [False, True]


def test_a_file_that_is_no_cache_says_what_to_do(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(StorageError, match=r"replies\.db.*delete the file.*model\.remote\.cache=false"):
        ReplyCache(file)


def test_a_file_of_a_newer_etude_is_left_alone(file: Path) -> None:
    ReplyCache(file).close()
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version=9")
    connection.close()
    with pytest.raises(StorageError, match="newer"):
        ReplyCache(file)


def test_a_disk_that_fills_up_loses_no_reply(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ReplyCache, key: bytes, reply: CachedReply) -> None:
        raise StorageError("disk full")

    async def main(server: OpenAIServer) -> ChatClient:
        async with ChatClient(EndpointSettings(server.url, "small", cache=file)) as client:
            assert (await client.complete(ASK)).content == "yes"
            return client

    monkeypatch.setattr(ReplyCache, "put", full)
    with OpenAIServer(text("yes")) as server:
        stats = asyncio.run(main(server)).stats
    assert stats.cache_errors == 1
    assert "could not be kept" in stats.problems()[0]


def test_keys_are_of_everything() -> None:
    keys = {cache_key(url, body, seed) for url in ("a", "b") for body in (b"a", b"b") for seed in (None, 0, 1)}
    assert len(keys) == 12


WRITER = """
import sys
from pathlib import Path
from etude.engine.remote.cache import CachedReply, ReplyCache, cache_key
cache = ReplyCache(Path(sys.argv[1]))
for number in range(10**6):
    cache.put(cache_key(sys.argv[2], b"", number), CachedReply(sys.argv[2].encode() * 1000, number))
    print(number, flush=True)
"""


def test_several_processes_write_and_a_kill_leaves_what_was_written(file: Path) -> None:
    ReplyCache(file).close()
    writers = {
        name: subprocess.Popen([sys.executable, "-c", WRITER, str(file), name], stdout=subprocess.PIPE, text=True)
        for name in ("a", "b")
    }
    written: dict[str, int] = {}
    for writer in writers.values():
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
    time.sleep(0.1)
    for name, writer in writers.items():
        os.kill(writer.pid, signal.SIGKILL)
        assert writer.stdout is not None
        lines = writer.stdout.read().splitlines(keepends=True)
        written[name] = max(int(line) for line in ["19", *lines] if line.endswith("\n") or line == "19")
        writer.wait()
    cache = ReplyCache(file)
    for name, last in written.items():
        for number in range(last + 1):
            assert cache.get(cache_key(name, b"", number)) == CachedReply(name.encode() * 1000, float(number))
    cache.put(b"new", CachedReply(b"1", 0.0))
    assert len(cache) >= sum(written.values()) + 3
    cache.close()
