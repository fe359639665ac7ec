"""`etude eval` of a model behind an endpoint, as a person would type it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.openai_server import Answer, OpenAIServer, Status, call, turn_of
from typer.testing import CliRunner

from etude.cli import app
from etude.errors import ConfigError, TrainingError
from etude.store.store import Store

ENVIRONMENT = '''
import etude

@etude.tool
def look_up(word: str) -> str:
    """Look up a word."""
    return word.upper()

@etude.tool(final=True)
def answer(text: str) -> str:
    """Answer."""
    return text

def correct(rollout, scenario):
    return float(rollout.answer == scenario["answer"].upper())

def environment():
    rows = [{"question": f"Say word{number}.", "answer": f"word{number}"} for number in range(12)]
    return etude.Environment(
        name="words", instructions="Use the tools.", tools=[look_up, answer], rubric=correct,
        scenarios={"validation": rows, "train": [{"question": "Say it.", "answer": "it"}]},
        metrics=lambda rollout, scenario: {"answer_correct": correct(rollout, scenario)},
    )
'''
PRICES = (
    "model.remote.price_per_million_prompt_tokens=1",
    "model.remote.price_per_million_completion_tokens=10",
)
SECRET = "sk-0123456789abcdef"


def player(body: dict[str, Any]) -> Answer:
    """Looks the word up and answers; of one word it is wrong."""
    word = body["messages"][1]["content"].removeprefix("Say ").removesuffix(".")
    if turn_of(body) == 0:
        return call("look_up", word=word)
    return call("answer", text="nonsense" if word == "word7" else body["messages"][-1]["content"])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("etude.engine.remote.client.FIRST_PAUSE_S", 0.005)
    (tmp_path / "words.py").write_text(ENVIRONMENT)
    (tmp_path / "run.yaml").write_text(
        f"environment: {{entry: '{tmp_path}/words.py:environment'}}\n"
        "model: {name: tiny-random}\n"
        f"workspace: {tmp_path}/work\n"
        "sampling: {max_concurrent: 4, max_retries: 1}\n"
    )
    return tmp_path


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(player, latency_s=0.01) as server:
        yield server


def etude(here: Path, command: str, server: OpenAIServer | None, *words: str) -> str:
    endpoint = [f"model.endpoint={server.url}", "model.name=some/model"] if server is not None else []
    result = CliRunner().invoke(app, [command, str(here / "run.yaml"), *endpoint, *words], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def figures_of(here: Path) -> dict[str, float]:
    with Store.open(here / "work") as store:
        run = store.find_run("last")
        (step,) = store.steps(run.id)
        return dict(step.metrics)


def test_an_endpoint_is_measured(here: Path, server: OpenAIServer) -> None:
    output = etude(here, "eval", server, *PRICES)
    assert "metric/answer_correct" in output
    assert "cost/usd_per_1000" in output
    figures = figures_of(here)
    assert figures["reward/mean"] == pytest.approx(11 / 12)
    assert figures["rollouts/scored"] == 12
    assert (figures["endpoint/requests"], figures["endpoint/retries"], figures["endpoint/cache_hits"]) == (24, 0, 0)
    assert figures["tokens/completion"] == 10
    assert figures["tokens/prompt"] > 0
    assert figures["endpoint/latency_s"] >= 0.01
    spent = (figures["endpoint/prompt_tokens"] + 10 * figures["endpoint/completion_tokens"]) / 1e6
    assert figures["cost/usd"] == pytest.approx(spent)
    assert figures["cost/usd_per_1000"] == pytest.approx(1000 * spent / 12)
    assert 2 <= server.most_at_once <= 4
    assert {body["model"] for body in server.bodies} == {"some/model"}
    with Store.open(here / "work") as store:
        run = store.find_run("last")
        assert run.model == "some/model at 127.0.0.1"
        saved = next(iter(store.iter_rollouts(run.id))).rollout
    assert saved.usage["requests"] == 2
    assert saved.trajectory.rows == ()


def test_a_second_time_costs_nothing_and_says_the_same(here: Path, server: OpenAIServer) -> None:
    etude(here, "eval", server, *PRICES)
    first = figures_of(here)
    etude(here, "eval", server, *PRICES)
    second = figures_of(here)
    assert len(server.requests) == 24
    assert (second["endpoint/cache_hits"], second["endpoint/requests"], second["cost/usd"]) == (24, 0, 0)
    assert second["cost/usd_per_1000"] == pytest.approx(first["cost/usd_per_1000"])
    assert second["tokens/prompt"] == first["tokens/prompt"]
    etude(here, "eval", server, "model.remote.cache=false")
    assert len(server.requests) == 48
    assert "cost/usd" not in figures_of(here)


def test_attempts_at_a_temperature(here: Path, server: OpenAIServer) -> None:
    output = etude(here, "eval", server, "eval.attempts=2", "eval.temperature=1", "eval.scenarios=3")
    assert "pass@2" in output
    assert len({body["seed"] for body in server.bodies}) == 12


def test_what_goes_wrong_now_and_then_is_counted_and_never_scored(here: Path, server: OpenAIServer) -> None:
    server.faults = lambda number, body: Status(503) if number % 3 == 0 else None
    etude(here, "eval", server)
    figures = figures_of(here)
    assert figures["reward/mean"] == pytest.approx(11 / 12)
    assert figures["endpoint/retries"] > 8
    assert figures["endpoint/requests"] == 24 + figures["endpoint/retries"]


def test_an_endpoint_that_is_down_measures_nothing(here: Path, server: OpenAIServer) -> None:
    server.faults = lambda number, body: Status(500)
    with pytest.raises(TrainingError, match=r"all 2 rollouts faulted.*engine server_error: http://127"):
        etude(here, "eval", server, "eval.scenarios=2", "model.remote.max_retries=0")
    assert figures_of(here)["outcome/env_fault"] == 4
    assert "reward/mean" not in figures_of(here)


def test_a_dry_run_asks_nobody_and_loads_no_torch(here: Path, server: OpenAIServer) -> None:
    output = etude(here, "eval", server, "--dry-run", "model.remote.requests_per_minute=60", *PRICES)
    for part in ("some/model at http://127.0.0.1", "at most 120, 4 at once", "about 2 min", "USD", "replies.db"):
        assert part.removeprefix("about ") in output, part
    assert server.requests == []
    assert not (here / "work" / "cache").exists()
    code = (
        "import sys\nfrom etude.cli import app\n"
        f"sys.argv = ['etude', 'eval', {str(here / 'run.yaml')!r}, 'model.endpoint={server.url}', '--dry-run']\n"
        "try:\n    app()\nexcept SystemExit as end:\n    assert not end.code\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=here)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["train", "sft"])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_weights_behind_an_endpoint_cannot_be_trained(
    here: Path, server: OpenAIServer, command: str, more: list[str]
) -> None:
    with pytest.raises(ConfigError, match=rf"`etude {command}` changes weights.*take out model\.endpoint"):
        etude(here, command, server, *more)
    assert server.requests == []


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.endpoint=localhost:8000", r"model\.endpoint: write a base URL that begins with http"),
        ("model.endpoint=http://me:hunter2@host/v1", r"model\.endpoint: .*model\.remote\.api_key_env"),
        ("model.remote.requests_per_minute=0", r"model\.remote\.requests_per_minute"),
        ("model.remote.api_key=x", r"model\.remote\.api_key: .*there are: api_key_env"),
        ("model.remote.api_key_env=UNSET_KEY", "UNSET_KEY is not set"),
    ],
)
def test_settings_that_cannot_work(here: Path, server: OpenAIServer, override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        etude(here, "eval", server, override)
    assert "hunter2" not in str(error.value)
    assert server.requests == []


def test_the_key_is_written_nowhere(
    here: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    server.key = SECRET
    outputs = [etude(here, "eval", server, "model.remote.api_key_env=MY_KEY", "eval.scenarios=2", *more)
               for more in ([], ["--dry-run"])]  # fmt: skip
    server.key = "another"
    with pytest.raises(ConfigError) as error:
        etude(here, "eval", server, "model.remote.api_key_env=MY_KEY", "model.remote.cache=false")
    assert "MY_KEY" in str(error.value)
    files = [each for each in here.rglob("*") if each.is_file()]
    assert len(files) > 4
    held = b"".join(each.read_bytes() for each in files).decode("latin-1")
    assert SECRET not in "".join([held, *outputs, str(error.value), *capfd.readouterr()])


def test_stopped_in_the_middle_it_goes_on_from_the_cache(here: Path, server: OpenAIServer) -> None:
    server.latency_s = 0.1
    words = ["eval", str(here / "run.yaml"), f"model.endpoint={server.url}", "model.name=some/model"]
    process = subprocess.Popen([sys.executable, "-m", "etude", *words], stdout=subprocess.PIPE, text=True)

    async def until_some() -> None:
        async with asyncio.timeout(100):
            while len(server.requests) < 10:
                await asyncio.sleep(0.02)

    asyncio.run(until_some())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    server.latency_s = 0.0
    asked = len(server.requests)
    etude(here, "eval", server)
    figures = figures_of(here)
    assert figures["reward/mean"] == pytest.approx(11 / 12)
    assert figures["endpoint/cache_hits"] >= 4  # all but what was in flight, or not yet written
    assert len(server.requests) - asked == 24 - figures["endpoint/cache_hits"]
