"""Asking an OpenAI-compatible endpoint: `ChatClient.complete`, for evaluation and for judges.

Every wait has a limit: a try takes at most `timeout_s`, there are at most `max_retries` more of them, and pauses
between them are bounded. No credentials are taken from the surroundings (no netrc, no proxy), and no redirect is
followed. The key is in the header of requests, and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx2

from etude.engine.protocol import EngineFault
from etude.engine.remote.cache import CachedReply, ReplyCache, cache_key
from etude.engine.remote.pace import Pace, retry_after
from etude.engine.remote.reply import BadReply, Reply, parse_reply
from etude.engine.remote.settings import PATH, EndpointSettings, read_key
from etude.engine.remote.stats import ClientStats
from etude.engine.remote.status import Failed, check_status
from etude.errors import ModelError, StorageError

MOST_BYTES = 16 * 2**20  # of a reply
CONNECT_S = 15.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
LONGEST_RETRY_AFTER_S = 120.0  # an endpoint that asks for more is not waited for
_MOST_SEED = 2**31  # several endpoints read 32 bits


@dataclass(frozen=True, slots=True)
class Completion:
    """message: the assistant's in OpenAI's form, as it can be sent back: content is text (never null), tool_calls are
    there only where it made some, their arguments are the text that the model wrote. finish_reason: "stop",
    "tool_calls", "length", ... prompt_tokens, completion_tokens: None where the endpoint told none; hidden_tokens of
    them are reasoning that the message does not hold. cost: USD at the configured prices, None without them; of a
    cached reply, what it had cost. seconds: from sending to the whole reply; of a cached one, what it had taken."""

    message: Mapping[str, Any]
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    hidden_tokens: int
    cost: float | None
    cached: bool
    seconds: float

    @property
    def content(self) -> str:
        return str(self.message["content"])


class ChatClient:
    """For one event loop; close it, or use it as an async context manager.

    Raises ConfigError for a key that is missing (`read_key`), StorageError for a cache that cannot be used."""

    def __init__(self, settings: EndpointSettings) -> None:
        key = read_key(settings)
        self.settings, self.stats = settings, ClientStats()
        self._secret = key or ""
        self._cache = None if settings.cache is None else ReplyCache(settings.cache)
        self._gate = asyncio.Semaphore(settings.connections)
        self._pace = Pace(settings.requests_per_minute)
        self._jitter = random.Random()  # its own: pauses must not change what the run draws
        self._failed_in_a_row = 0
        self._http = httpx2.AsyncClient(
            headers={
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",  # nothing small that becomes large
                **({"Authorization": f"Bearer {key}"} if key else {}),
            },
            timeout=httpx2.Timeout(settings.timeout_s, connect=min(CONNECT_S, settings.timeout_s)),
            limits=httpx2.Limits(max_connections=settings.connections, max_keepalive_connections=settings.connections),
            trust_env=False,
            follow_redirects=False,
        )

    @property
    def has_key(self) -> bool:
        return bool(self._secret)

    def __repr__(self) -> str:
        return f"ChatClient({self.settings.model!r} at {self.settings.url})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()
        if self._cache is not None:
            self._cache.close()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        extra: Mapping[str, Any] | None = None,
    ) -> Completion:
        """One reply. messages, tools: in OpenAI's form. max_tokens: None leaves it to the endpoint. seed: makes samples
        repeatable where the endpoint can, and tells them apart in the cache; a greedy request (temperature 0) has none.
        extra: more fields of the request (`response_format`, ...), over the settings' own; a value of None
        takes a field out.

        Raises EngineFault where this request failed after all tries; ConfigError or ModelError where no request can
        succeed as things are (no key, no such model, an endpoint that is down); ValueError for what is not JSON.
        """
        fields = {**self._fields(messages, tools, max_tokens, temperature), **self.settings.extra, **(extra or {})}
        greedy = fields["temperature"] == 0  # None: it was taken out, and the endpoint's own is seldom 0
        if not greedy:
            fields.setdefault("seed", seed % _MOST_SEED)
        fields = {name: value for name, value in fields.items() if value is not None}
        body = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        key = cache_key(self.settings.url, body, None if greedy else seed)
        found = await self._find(key)
        if found is not None:
            self.stats.cache_hits += 1
            return self._completion(found[0], found[1], cached=True)
        data, reply, seconds = await self._fetch(body)
        self._count(reply, seconds)
        await self._keep(key, CachedReply(data, seconds))
        return self._completion(reply, seconds, cached=False)

    def _fields(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        max_tokens: int | None,
        temperature: float,
    ) -> dict[str, Any]:
        return {
            "model": self.settings.model,
            "messages": list(messages),
            "temperature": temperature,
            self.settings.max_tokens_field: max_tokens,
            "tools": list(tools) or None,
        }

    async def _find(self, key: bytes) -> tuple[Reply, float] | None:
        if self._cache is None:
            return None
        found = await asyncio.to_thread(self._cache.get, key)
        if found is None:
            return None
        try:
            return parse_reply(found.data), found.seconds
        except BadReply:  # not written by this version: ask again
            return None

    async def _keep(self, key: bytes, reply: CachedReply) -> None:
        if self._cache is None:
            return
        try:
            await asyncio.to_thread(self._cache.put, key, reply)
        except StorageError:  # a full disk: the reply was paid for, and is good; the run says so at its end
            self.stats.cache_errors += 1

    async def _fetch(self, body: bytes) -> tuple[bytes, Reply, float]:
        """A whole reply, its bytes and its seconds, in as many tries as there may be."""
        retry = 0
        while True:
            try:
                done = await self._try(body)
            except Failed as failed:
                pause = self._pause(retry, failed)
                if not failed.retry or retry >= self.settings.max_retries or pause > LONGEST_RETRY_AFTER_S:
                    raise self._given_up(failed, retry + 1) from None
                if failed.busy:
                    self._pace.hold(pause)
                await asyncio.sleep(pause)
                retry += 1
                self.stats.retries += 1
            else:
                self._failed_in_a_row = 0
                return done

    async def _try(self, body: bytes) -> tuple[bytes, Reply, float]:
        """Raises Failed, and ConfigError or ModelError where another try, or request, would be no better."""
        async with self._gate:
            await self._pace.wait()
            self.stats.requests += 1
            started = time.perf_counter()
            try:
                async with asyncio.timeout(
                    self.settings.timeout_s
                ):  # httpx limits the pauses of a reply, not the whole
                    status, headers, data = await self._send(body)
            except (TimeoutError, httpx2.TimeoutException):
                raise Failed("timeout", f"no whole reply within {self.settings.timeout_s:g} s") from None
            except (httpx2.TransportError, httpx2.DecodingError) as error:
                detail = self._redacted(str(error))
                raise Failed("connection", f"{type(error).__name__}: {detail or 'the connection broke'}") from None
            seconds = time.perf_counter() - started
        check_status(self.settings, status, headers, data, worked=self.stats.replies > 0, redact=self._redacted)
        try:
            return data, parse_reply(data), seconds
        except BadReply as error:
            raise Failed("bad_reply", self._redacted(str(error))) from None

    async def _send(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body. Raises Failed for a body without end."""
        parts: list[bytes] = []
        size = 0
        async with self._http.stream("POST", self.settings.url + PATH, content=body) as response:
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise Failed("too_large", f"a reply of more than {MOST_BYTES >> 20} MiB", retry=False)
        return response.status_code, response.headers, b"".join(parts)

    def _pause(self, retry: int, failed: Failed) -> float:
        """Exponential, with jitter, so that those who failed together do not come back together."""
        growing = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**retry) * self._jitter.uniform(0.5, 1.0)
        return max(growing, retry_after(failed.headers))

    def _given_up(self, failed: Failed, tries: int) -> EngineFault | ModelError:
        """Where nothing has succeeded for long, the endpoint is down, and going on would only take hours to say so."""
        self.stats.failures += 1
        self._failed_in_a_row += failed.counts
        after = f" ({tries} tries)" if tries > 1 else ""
        text = f"{self.settings.url}: {failed}{after}"
        if self._failed_in_a_row < max(16, 2 * self.settings.connections):
            return EngineFault(failed.kind, text)
        return ModelError(
            f"the endpoint has failed {self._failed_in_a_row} requests in a row, the last with: {text}. See to it, and "
            "start again: replies that were cached are not asked for twice"
        )

    def _redacted(self, text: str) -> str:
        return text.replace(self._secret, "[key]") if self._secret else text

    def _count(self, reply: Reply, seconds: float) -> None:
        stats = self.stats
        stats.replies += 1
        stats.latencies.append(seconds)
        stats.without_usage += reply.prompt_tokens is None or reply.completion_tokens is None
        stats.prompt_tokens += reply.prompt_tokens or 0
        stats.completion_tokens += reply.completion_tokens or 0
        stats.spent += self._cost(reply) or 0.0

    def _cost(self, reply: Reply) -> float | None:
        settings = self.settings
        if settings.prompt_price is None or settings.completion_price is None:
            return None
        prompt, completion = reply.prompt_tokens or 0, reply.completion_tokens or 0
        return (prompt * settings.prompt_price + completion * settings.completion_price) / 1e6

    def _completion(self, reply: Reply, seconds: float, cached: bool) -> Completion:
        return Completion(
            message=reply.message,
            finish_reason=reply.finish_reason,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            hidden_tokens=reply.hidden_tokens,
            cost=self._cost(reply),
            cached=cached,
            seconds=seconds,
        )
