"""Asking an endpoint over real HTTP: what is sent, what is tried again, what is not, and every limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.openai_server import (
    Answer,
    Cut,
    Drip,
    Drop,
    Endless,
    Fault,
    Garbage,
    Hang,
    OpenAIServer,
    Redirect,
    Status,
    call,
    calls,
    text,
)

import etude.engine.remote.client as client_module
from etude.engine.protocol import EngineFault
from etude.engine.remote.client import ChatClient, Completion
from etude.engine.remote.settings import EndpointSettings
from etude.errors import ConfigError, EtudeError, ModelError

ASK = [{"role": "user", "content": "how many words are these"}]
BUSY = Status(429, {"Retry-After": "0"})
TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.005)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def with_client(
    server: OpenAIServer | str, work: Callable[[ChatClient], Coroutine[Any, Any, Any]], **settings: Any
) -> tuple[Any, ChatClient]:
    """What `work` returns, and the client, closed."""

    async def main() -> tuple[Any, ChatClient]:
        url = server if isinstance(server, str) else server.url
        async with ChatClient(EndpointSettings(url, "small", **settings)) as client:
            return await work(client), client

    return asyncio.run(main())


def ask(server: OpenAIServer | str, **settings: Any) -> tuple[Completion, ChatClient]:
    return with_client(server, lambda client: client.complete(ASK, max_tokens=7), **settings)


def refused(kind: type[Exception], *faults: Fault, **settings: Any) -> tuple[str, OpenAIServer]:
    """The error's text where the first requests go wrong."""
    with OpenAIServer(text("yes"), faults=faults) as server, pytest.raises(kind) as error:
        ask(server, **settings)
    return str(error.value), server


def test_what_is_sent_and_what_comes_back() -> None:
    with OpenAIServer(call("look", word="one")) as server:
        prices = {"prompt_price": 2.0, "completion_price": 10.0}
        work = lambda client: client.complete(ASK, [TOOL], max_tokens=7, temperature=0.5, seed=2**40 + 3)  # noqa: E731
        done, client = with_client(server, work, **prices)
    assert server.bodies == [
        {"model": "small", "messages": ASK, "temperature": 0.5, "max_tokens": 7, "tools": [TOOL], "seed": 3}
    ]
    assert "authorization" not in server.requests[0].headers
    assert done.message["content"] == ""
    assert done.message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"word": "one"}'}
    assert (done.finish_reason, done.prompt_tokens, done.completion_tokens, done.cached) == ("tool_calls", 5, 5, False)
    assert done.cost == pytest.approx((5 * 2 + 5 * 10) / 1e6)
    assert client.stats.spent == done.cost
    assert 0 < done.seconds < 60


def test_greedy_requests_have_no_seed_and_no_empty_fields() -> None:
    with OpenAIServer(text("yes")) as server:
        with_client(server, lambda client: client.complete(ASK, seed=5))
    assert server.bodies == [{"model": "small", "messages": ASK, "temperature": 0.0}]


def test_fields_can_be_added_and_taken_out() -> None:
    with OpenAIServer(text("{}")) as server:
        schema = {"response_format": {"type": "json_object"}}
        work = lambda client: client.complete(ASK, max_tokens=7, extra=schema)  # noqa: E731
        settings = {"extra": {"temperature": None, "top_k": 3}, "max_tokens_field": "max_completion_tokens"}
        with_client(server, work, **settings)
    assert server.bodies == [
        {"model": "small", "messages": ASK, "max_completion_tokens": 7, "top_k": 3, **schema, "seed": 0}
    ]


@pytest.mark.parametrize(
    "fault",
    [BUSY, Status(408), Status(409), Status(500), Status(503), Status(529), Cut(), Drop(), Garbage(), Garbage(b"{}"),
     Garbage(b""), Garbage(b'{"choices":[]}'), Garbage(b'{"choices":[{"message":{"content":3}}]}'),
     Garbage(b"[" * 200_000), Garbage(b'{"choices":[{"message":{"tool_calls":[{"id":"a"}]}}]}')],
    ids=lambda fault: str(fault)[:40],
)  # fmt: skip
def test_what_may_go_better_is_tried_again(fault: Fault) -> None:
    with OpenAIServer(text("yes"), faults=[fault, fault]) as server:
        done, client = ask(server, timeout_s=20)
    assert done.content == "yes"
    assert (client.stats.requests, client.stats.retries, client.stats.replies) == (3, 2, 1)
    assert len(server.requests) == 3


@pytest.mark.parametrize("fault", [Hang(30), Drip(0.02)])
def test_a_try_has_a_time_limit_even_where_bytes_keep_coming(fault: Fault) -> None:
    with OpenAIServer(text("yes"), faults=[fault]) as server:
        done, client = ask(server, timeout_s=0.3)
    assert done.content == "yes"
    assert client.stats.retries == 1


def test_tries_have_an_end() -> None:
    message, server = refused(EngineFault, *[Status(500)] * 9, max_retries=2)
    assert len(server.requests) == 3
    assert "3 tries" in message
    assert server.url in message
    assert "status 500" in message


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Status(429), "rate_limit"), (Status(502), "server_error"), (Drop(), "connection"), (Garbage(), "bad_reply"),
     (Hang(9), "timeout"), (Endless(17 << 20), "too_large")],
    ids=str,
)  # fmt: skip
def test_faults_have_kinds(fault: Fault, kind: str) -> None:
    with OpenAIServer(text("yes"), faults=[fault]) as server, pytest.raises(EngineFault) as error:
        ask(server, max_retries=0, timeout_s=0.5 if kind == "timeout" else 20)
    assert error.value.kind == kind


def test_a_huge_reply_is_not_asked_for_again() -> None:
    message, server = refused(EngineFault, *[Endless(40 << 20)] * 3)
    assert "16 MiB" in message
    assert len(server.requests) == 1


def test_retry_after_is_honoured_by_all_who_wait() -> None:
    async def work(client: ChatClient) -> None:
        await asyncio.gather(*(client.complete(ASK) for _ in range(3)))

    with OpenAIServer(text("yes"), faults=[Status(429, {"Retry-After": "0.4"})]) as server:
        with_client(server, work, connections=1)
    times = [request.started for request in server.requests]
    assert len(times) == 4
    assert times[1] - times[0] >= 0.39


def test_who_asks_for_too_much_patience_gets_none() -> None:
    message, server = refused(EngineFault, Status(429, {"Retry-After": "7200"}))
    assert len(server.requests) == 1
    assert "429" in message


def test_a_dead_endpoint_is_a_fault_with_its_url() -> None:
    with pytest.raises(EngineFault, match=r"http://127\.0\.0\.1:9/v1: ConnectError"):
        ask("http://127.0.0.1:9/v1", max_retries=1)


def test_an_endpoint_that_stays_down_ends_it_all() -> None:
    async def work(client: ChatClient) -> list[BaseException]:
        return [await one(client) for _ in range(16)]

    async def one(client: ChatClient) -> BaseException:
        with pytest.raises((EngineFault, ModelError)) as error:
            await client.complete(ASK)
        return error.value

    with OpenAIServer(text("yes"), faults=[Status(500)] * 99) as server:
        errors, _ = with_client(server, work, max_retries=0, connections=2)
    assert [type(error) for error in errors] == [EngineFault] * 15 + [ModelError]
    assert "16 requests in a row" in str(errors[-1])


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (Status(400, message="no field top_k"), ConfigError, ["400", "no field top_k", "model.remote.extra_body"]),
        (Status(401, message="sk-***abc is wrong"), ConfigError, ["401", "OPENAI_API_KEY"]),
        (Status(403), ConfigError, ["403", "OPENAI_API_KEY"]),
        (Status(404, message="no model"), ModelError, ["404", "no model", "model.endpoint", "model.name"]),
        (Status(402), ModelError, ["402", "credit"]),
        (Status(429, code="insufficient_quota"), ModelError, ["credit"]),
        (Status(422), ConfigError, ["422"]),
        (Redirect("https://user:pass@elsewhere.example/v1/chat/completions?key=1"), ConfigError,
         ["307", "https://elsewhere.example/v1 ", "model.endpoint"]),
        (Redirect("/v2", 302), ConfigError, ["302", "model.endpoint"]),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_what_cannot_go_better_is_not_tried_again(fault: Fault, kind: type[EtudeError], words: list[str]) -> None:
    message, server = refused(kind, fault)
    assert len(server.requests) == 1
    assert server.url in message
    assert [word for word in words if word not in message] == []
    assert "pass" not in message
    assert "sk-" not in message


def test_no_redirect_is_followed() -> None:
    with OpenAIServer(text("no")) as other:
        refused(ConfigError, Redirect(f"{other.url}/chat/completions"))
        assert other.requests == []


def test_a_request_refused_among_good_ones_is_its_own_fault() -> None:
    async def work(client: ChatClient) -> Completion:
        await client.complete(ASK)
        with pytest.raises(EngineFault) as error:
            await client.complete(ASK)
        assert error.value.kind == "refused"
        return await client.complete(ASK)

    with OpenAIServer(text("yes"), faults=[None, Status(400)]) as server:
        assert with_client(server, work)[0].content == "yes"


def test_a_prompt_that_is_too_long_is_its_own_fault_from_the_first() -> None:
    faults = [Status(400, code="context_length_exceeded")]
    with OpenAIServer(text("yes"), faults=faults) as server, pytest.raises(EngineFault) as error:
        ask(server)
    assert error.value.kind == "too_long"


def test_never_more_at_once_than_connections() -> None:
    async def work(client: ChatClient) -> None:
        await asyncio.gather(*(client.complete(ASK) for _ in range(24)))

    with OpenAIServer(text("yes"), latency_s=0.01, faults=[BUSY, None, Status(500), Drop()]) as server:
        with_client(server, work, connections=3)
    assert server.most_at_once == 3
    assert len(server.requests) == 27


def test_requests_a_minute() -> None:
    async def work(client: ChatClient) -> None:
        await asyncio.gather(*(client.complete(ASK) for _ in range(5)))

    with OpenAIServer(text("yes")) as server:
        started = time.monotonic()
        with_client(server, work, requests_per_minute=1200)
        assert time.monotonic() - started >= 0.2  # four spaces of 50 ms
    assert len(server.requests) == 5


def test_cancelling_gives_its_place_free() -> None:
    async def work(client: ChatClient) -> Completion:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.complete(ASK)
        return await client.complete(ASK)

    with OpenAIServer(text("yes"), faults=[Hang(3600)]) as server:
        assert with_client(server, work, connections=1)[0].content == "yes"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "content"),
    [(Answer(None), ""), (Answer("half \ud83d pair"), "half \ufffd pair")],
)
def test_content_is_always_text_that_can_be_kept(answer: Answer, content: str) -> None:
    with OpenAIServer(answer) as server:
        assert ask(server)[0].content == content


def test_content_in_parts() -> None:
    body = b'{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}'
    with OpenAIServer(text("no"), faults=[Garbage(body)]) as server:
        done, client = ask(server)
    assert (done.content, done.finish_reason, done.prompt_tokens) == ("ab", "stop", None)
    assert client.stats.without_usage == 1
    assert "1 of 1 replies told no token counts" in client.stats.problems()[0]


def test_calls_get_ids_that_differ_and_arguments_stay_text() -> None:
    raw = [
        {"id": "", "function": {"name": "a", "arguments": ""}},
        {"id": "x", "function": {"name": "b", "arguments": "{broken"}},
        {"id": "x", "function": {"name": None, "arguments": {"k": 1}}},
    ]
    with OpenAIServer(Answer(None, tuple(raw))) as server:
        done, _ = ask(server)
    assert [made["id"] for made in done.message["tool_calls"]] == ["call_0", "x", "call_2"]
    assert [made["function"] for made in done.message["tool_calls"]] == [
        {"name": "a", "arguments": "{}"},
        {"name": "b", "arguments": "{broken"},
        {"name": "", "arguments": '{"k": 1}'},
    ]


@pytest.mark.parametrize("usage", [{"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": True}, {"a": "b"}])
def test_counts_that_cannot_be_are_none(usage: dict[str, Any]) -> None:
    with OpenAIServer(text("yes", usage=usage)) as server:
        assert ask(server)[0].prompt_tokens is None


def test_figures() -> None:
    with OpenAIServer(calls(("a", {}), ("b", {})), faults=[BUSY]) as server:
        _, client = ask(server, prompt_price=1.0, completion_price=1.0)
    figures = client.stats.figures(priced=True)
    assert figures["endpoint/requests"] == 2
    assert figures["endpoint/retries"] == 1
    assert figures["endpoint/prompt_tokens"] == 5
    assert figures["endpoint/completion_tokens"] == 10
    assert figures["cost/usd"] == pytest.approx(15e-6)
    assert figures["endpoint/latency_p95_s"] == figures["endpoint/latency_s"] > 0
    assert "cost/usd" not in client.stats.figures(priced=False)
