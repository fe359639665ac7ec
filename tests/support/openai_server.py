"""An OpenAI-compatible server on this machine: real HTTP on a loopback port, in threads of its own, scripted by tests.

    with OpenAIServer(text("yes")) as server:
        client = ChatClient(EndpointSettings(server.url, "any-model"))

What it answers is a function of the request's body (or one answer for all); `text`, `call`, `calls` make answers:

    def policy(body):                                     # body: the request, as a dict
        if body["messages"][-1]["role"] == "user":
            return call("look_up", word="one")
        return text("done")

    OpenAIServer(policy)
    OpenAIServer(by_turn(call("look_up", word="one"), text("done")))     # by the number of assistant messages so far

What goes wrong is a list over the requests in the order in which they arrive (None: nothing), or a function of number
and body; after the list, nothing does:

    OpenAIServer(text("yes"), faults=[Status(429, {"Retry-After": "0"}), Hang(2.0), None, Garbage()])

Afterwards `requests` holds what was asked (body, headers, when), and `most_at_once` how many were in work together.
`python -m support.openai_server` (in tests/) serves "yes" until it is stopped, for trying things by hand.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Body = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the model says. usage: None leaves it out; {} counts words. raw_calls: tool calls as they are sent."""

    content: str | None = None
    raw_calls: tuple[dict[str, Any], ...] = ()
    finish: str | None = None
    usage: Mapping[str, Any] | None = field(default_factory=dict)

    def body(self, request: Body) -> Body:
        message: Body = {"role": "assistant", "content": self.content}
        if self.raw_calls:
            message["tool_calls"] = list(self.raw_calls)
        finish = self.finish or ("tool_calls" if self.raw_calls else "stop")
        made: Body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": request.get("model", "")}
        made["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
        if self.usage is not None:
            made["usage"] = dict(self.usage) or _count(request, message)
        return made


def text(content: str, **fields: Any) -> Answer:
    """A turn without a call. fields: `finish`, `usage`."""
    return Answer(content, **fields)


def call(name: str, /, **arguments: Any) -> Answer:
    """A turn with one call."""
    return calls((name, arguments))


def calls(*wanted: tuple[str, Mapping[str, Any] | str]) -> Answer:
    """A turn with several. Arguments that are a string are sent as they are, JSON or not."""
    made = []
    for name, arguments in wanted:
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        identity = f"call_{next(_numbers)}"
        made.append({"id": identity, "type": "function", "function": {"name": name, "arguments": written}})
    return Answer(None, tuple(made))


def by_turn(*answers: Answer) -> Callable[[Body], Answer]:
    """The n-th answer to a conversation with n assistant messages; the last one for all that are longer."""
    return lambda body: answers[min(turn_of(body), len(answers) - 1)]


def turn_of(body: Body) -> int:
    """How many assistant messages the request's conversation holds."""
    return sum(message["role"] == "assistant" for message in body["messages"])


@dataclass(frozen=True)
class Status:
    """An HTTP error. code, message: of its body, in OpenAI's form."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    message: str = "scripted"


@dataclass(frozen=True)
class Hang:
    """Says nothing for so long, then answers as it would have."""

    seconds: float


@dataclass(frozen=True)
class Drip:
    """Answers one byte at a time, with a pause after each: no single wait is long."""

    pause_s: float


@dataclass(frozen=True)
class Garbage:
    """Status 200, and then this."""

    data: bytes = b"<html>not JSON</html>"


@dataclass(frozen=True)
class Redirect:
    location: str
    status: int = 307


@dataclass(frozen=True)
class Cut:
    """Promises a whole body and closes the connection in its middle."""


@dataclass(frozen=True)
class Drop:
    """Closes the connection without an answer."""


@dataclass(frozen=True)
class Endless:
    """A body of so many bytes."""

    size: int


Fault = Status | Hang | Drip | Garbage | Redirect | Cut | Drop | Endless
Faults = Sequence[Fault | None] | Callable[[int, Body], Fault | None]


@dataclass
class Recorded:
    """One request. started: of time.monotonic. headers: names in lower case."""

    body: Body
    headers: dict[str, str]
    path: str
    started: float


class OpenAIServer:
    """A server for the time of a `with` block. latency_s: of every answer. key: where set, others get 401."""

    def __init__(
        self,
        reply: Answer | Callable[[Body], Answer],
        *,
        faults: Faults = (),
        latency_s: float = 0.0,
        key: str | None = None,
        port: int = 0,
    ) -> None:
        self.reply, self.faults, self.latency_s, self.key = reply, faults, latency_s, key
        self.requests: list[Recorded] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._http = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"owner": self}))

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def bodies(self) -> list[Body]:
        return [request.body for request in self.requests]

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()  # whoever hangs lets go
        self._http.shutdown()
        self._http.server_close()

    def sleep(self, seconds: float) -> None:
        self._over.wait(seconds)

    def enter(self, request: Recorded) -> int:
        """The request's number, from 0."""
        with self._lock:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return len(self.requests) - 1

    def leave(self) -> None:
        with self._lock:
            self._at_once -= 1

    def fault(self, number: int, body: Body) -> Fault | None:
        if callable(self.faults):
            return self.faults(number, body)
        return self.faults[number] if number < len(self.faults) else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # who finds the default of 5 full tries again only a second later


class _Handler(BaseHTTPRequestHandler):
    owner: OpenAIServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        owner = self.owner
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        number = owner.enter(Recorded(body, headers, self.path, time.monotonic()))
        answered = False
        try:
            if owner.latency_s:
                owner.sleep(owner.latency_s)
            answered = self._answer(number, body)
        except (BrokenPipeError, ConnectionResetError):  # the client has given up
            self.close_connection = True
        finally:
            if not answered:
                owner.leave()

    def _answer(self, number: int, body: Body) -> bool:
        """Whether it left: before the last byte goes out, after which the client may send the next request."""
        owner = self.owner
        if owner.key is not None and self.headers["Authorization"] != f"Bearer {owner.key}":
            return self._error(
                Status(401, code="invalid_api_key", message=f"Incorrect key: {self.headers['Authorization']}")
            )
        if self.path != "/v1/chat/completions":
            return self._error(Status(404, message=f"no route {self.path}"))
        fault = owner.fault(number, body)
        match fault:
            case Status():
                return self._error(fault)
            case Redirect():
                return self._send(fault.status, b"", {"Location": fault.location})
            case Garbage():
                return self._send(200, fault.data)
            case Endless():
                return self._send(200, b" " * fault.size)
            case Drop():
                self.close_connection = True
                return False
            case Hang():
                owner.sleep(fault.seconds)
        reply = owner.reply(body) if callable(owner.reply) else owner.reply
        data = json.dumps(reply.body(body)).encode()
        return self._send(
            200, data, cut=isinstance(fault, Cut), pause_s=fault.pause_s if isinstance(fault, Drip) else 0.0
        )

    def _error(self, fault: Status) -> bool:
        error = {"message": fault.message, "type": "error", "code": fault.code or None}
        return self._send(fault.status, json.dumps({"error": error}).encode(), fault.headers)

    def _send(
        self,
        status: int,
        data: bytes,
        headers: Mapping[str, str] | None = None,
        cut: bool = False,
        pause_s: float = 0.0,
    ) -> bool:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if pause_s:
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.owner.sleep(pause_s)
        self.owner.leave()
        try:
            self.wfile.write(data[: len(data) // 2] if cut else b"" if pause_s else data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        if cut:
            self.close_connection = True
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests look at `requests`."""


_numbers = itertools.count()


def _count(request: Body, message: Body) -> Body:
    """Words as tokens."""
    prompt = sum(len(str(each.get("content") or "").split()) for each in request.get("messages", ()))
    completion = len(str(message.get("content") or "").split()) + 5 * len(message.get("tool_calls", ()))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


if __name__ == "__main__":
    with OpenAIServer(text("yes"), port=8000) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        threading.Event().wait()
