"""Where the key comes from and where it never goes; which URLs can be a base."""

from __future__ import annotations

import asyncio
import logging
import traceback
from pathlib import Path

import pytest
from support.openai_server import Fault, Garbage, OpenAIServer, Status, text

import etude.engine.remote.client as client_module
from etude.engine.protocol import EngineFault
from etude.engine.remote.client import ChatClient
from etude.engine.remote.pace import retry_after
from etude.engine.remote.settings import EndpointSettings, check_base_url, read_key
from etude.errors import ConfigError, EtudeError

SECRET = "sk-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.005)


@pytest.mark.parametrize(
    ("given", "base"),
    [("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"), ("https://api.openai.com/v1", "https://api.openai.com/v1"),
     (" http://[::1]:8000 ", "http://[::1]:8000")],
)  # fmt: skip
def test_base_urls(given: str, base: str) -> None:
    assert check_base_url(given) == base


@pytest.mark.parametrize(
    "given",
    ["", "localhost:8000", "ftp://a/v1", "http://", "http://me:hunter2@host/v1", "http://hunter2@host/v1",
     "https://host/v1?key=hunter2", "https://host/v1#hunter2", "https://host/v1/chat/completions", "http://h:hunter2/",
     "http://[hunter2/v1"],
)  # fmt: skip
def test_no_base_urls(given: str) -> None:
    with pytest.raises(ValueError, match="base URL") as error:
        check_base_url(given)
    assert "hunter2" not in str(error.value)


def test_a_key_goes_only_where_it_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f" {SECRET}\n")
    monkeypatch.setenv("OTHER", "other")
    assert read_key(EndpointSettings("https://api.openai.com/v1", "m")) == SECRET
    assert read_key(EndpointSettings("http://localhost:8000/v1", "m")) == SECRET
    assert read_key(EndpointSettings("https://elsewhere.example/v1", "m")) is None
    assert read_key(EndpointSettings("https://api.openai.com.elsewhere.example/v1", "m")) is None
    assert read_key(EndpointSettings("https://elsewhere.example/v1", "m", api_key_env="OTHER")) == "other"


def test_a_key_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_key(EndpointSettings("http://127.0.0.1:8000/v1", "m")) is None
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        read_key(EndpointSettings("https://api.openai.com/v1", "m"))
    with pytest.raises(ConfigError, match="MY_KEY is not set"):
        read_key(EndpointSettings("http://127.0.0.1:8000/v1", "m", api_key_env="MY_KEY"))
    monkeypatch.setenv("MY_KEY", "two\nlines")
    with pytest.raises(ConfigError, match="MY_KEY") as error:
        read_key(EndpointSettings("http://127.0.0.1:8000/v1", "m", api_key_env="MY_KEY"))
    assert "lines" not in str(error.value)


@pytest.mark.parametrize(
    "fault",
    [Status(400, message=f"bad {SECRET}"), Status(401, message=SECRET), Status(403, message=SECRET),
     Status(404, message=SECRET), Status(500, message=SECRET), Garbage(f"<p>{SECRET}</p>".encode()), None],
    ids=lambda fault: str(fault)[:24],
)  # fmt: skip
def test_the_key_is_in_no_error_and_no_log(
    fault: Fault | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async def main() -> None:
        settings = EndpointSettings(server.url, "m", api_key_env="MY_KEY", max_retries=1, cache=tmp_path / "c.db")
        async with ChatClient(settings) as client:
            told.extend([repr(client), repr(client.settings), str(client.__dict__["settings"])])
            await client.complete([{"role": "user", "content": "hi"}])

    monkeypatch.setenv("MY_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    with OpenAIServer(text("yes"), faults=lambda number, body: fault, key=SECRET) as server:
        try:
            asyncio.run(main())
        except (EtudeError, EngineFault) as error:
            assert fault is not None
            told += ["".join(traceback.format_exception(error)), str(error)]
        assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    told += [caplog.text, *(each.read_bytes().decode("latin-1") for each in tmp_path.iterdir())]
    assert SECRET not in "\n".join(told)


def test_nothing_is_taken_from_the_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://me:hunter2@127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://me:hunter2@127.0.0.1:9")

    async def main() -> None:
        async with ChatClient(EndpointSettings(server.url, "m")) as client:
            await client.complete([{"role": "user", "content": "hi"}])

    with OpenAIServer(text("yes")) as server:
        asyncio.run(main())
    assert "authorization" not in server.requests[0].headers
    assert not [name for name in server.requests[0].headers if name.startswith("proxy")]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("nan", 0.0), ("inf", 0.0), ("", 0.0), ("soon", 0.0),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)],
)  # fmt: skip
def test_retry_after(header: str, seconds: float) -> None:
    assert retry_after({"retry-after": header}) == seconds


def test_retry_after_a_date() -> None:
    assert retry_after({"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"}) > 1e6
    assert retry_after({}) == 0.0
