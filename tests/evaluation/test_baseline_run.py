"""A baseline from start to end: what it saves and says, and that being killed changes nothing."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.lives import Life, Nursery, wait
from support.openai_server import Answer, OpenAIServer, call
from support.symbols import save_symbol_model
from typer.testing import CliRunner

from etude.cli import app
from etude.store.records import Run
from etude.store.store import Store

ATTEMPTS, SCENARIOS = 4, 24

WORDS = '''
import etude

@etude.tool(final=True)
def say(value: str) -> str:
    """Say it."""
    return value

def environment():
    rows = [{"question": f"word{number}"} for number in range(24)]
    def right(rollout, scenario):
        return float(rollout.answer == scenario["question"] + "/0")
    return etude.Environment(name="words", instructions="Say it.", tools=[say], rubric=right, scenarios={"train": rows},
                             metrics=lambda rollout, scenario: {"answer_correct": right(rollout, scenario)})
'''


def arguments(folder: Path, *more: str) -> list[str]:
    return [
        "environment.entry=support.symbols:drawers",
        f"model.name={save_symbol_model(folder / 'model')}",
        "model.chat=symbols",
        f"baseline={{attempts: {ATTEMPTS}, scenarios: {SCENARIOS}}}",
        "sampling.max_concurrent=16",
        "deterministic=true",
        "threads=1",
        "workspace=work",
        *more,
    ]


def saved(folder: Path) -> tuple[Run, dict[str, Any], dict[tuple[str, int], Any]]:
    """The run, its figures, and what of each attempt does not depend on the clock."""
    with Store.open(folder / "work") as store:
        (run,) = store.runs()
        figures = {
            name: value for name, value in store.steps(run.id)[0].metrics.items() if not name.startswith("time/")
        }
        attempts = {}
        for each in store.iter_rollouts(run.id):
            rollout = each.rollout
            rows = [(row.tokens.tolist(), row.logprobs.tobytes()) for row in rollout.trajectory.rows]
            attempts[each.summary.group, rollout.attempt] = (rollout.reward, rollout.metrics, rows)
    return run, figures, attempts


def test_it_measures_draws_and_says_what_follows(tmp_path: Path, nursery: Nursery) -> None:
    life = nursery.command(tmp_path, "baseline", *arguments(tmp_path))
    assert life.wait() == 0, life.output
    run, figures, attempts = saved(tmp_path)
    assert (run.kind, run.status) == ("baseline", "succeeded")
    assert len(attempts) == figures["attempts/scored"] == ATTEMPTS * SCENARIOS
    assert {
        "pass@1",
        "pass@4",
        "best@4/reward",
        "zero_variance/reward",
        "zero_variance/correctness/x16",
    } <= figures.keys()
    assert "What follows" in life.output
    assert (tmp_path / "work" / "runs" / run.id / "variance.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("moments", [[0.3], pytest.param([0.1, 0.5, 0.8], marks=pytest.mark.acceptance)])
def test_killed_in_the_middle_it_has_the_figures_of_one_that_was_not(
    tmp_path: Path, nursery: Nursery, moments: list[float]
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    # Slowly, so that there is a middle: each grading waits.
    slowly = "environment.entry=support.slowly:drawers"
    life = nursery.command(whole, "baseline", *arguments(whole, slowly))
    assert life.wait() == 0, life.output
    life = nursery.command(broken, "baseline", *arguments(broken, slowly))
    for moment in moments:
        wait(partial(has_come, life, broken, int(moment * ATTEMPTS * SCENARIOS)))
        life.send(signal.SIGKILL)
        life.wait()
        assert rollouts(broken) < ATTEMPTS * SCENARIOS
        life = nursery.command(broken, "baseline", "--resume", "last", "--workspace", "work")
    assert life.wait() == 0, life.output
    assert "were played before" in life.output
    assert saved(broken)[1:] == saved(whole)[1:]


def test_behind_an_endpoint_too(tmp_path: Path, nursery: Nursery) -> None:
    """A server that takes its time and answers by the request alone; one baseline is killed, the other is not."""

    def reply(body: dict[str, Any]) -> Answer:
        word = body["messages"][1]["content"]
        return call("say", value=f"{word}/{body.get('seed', 0) % 3}")

    runs = {}
    with OpenAIServer(reply, latency_s=0.05) as server:
        for name in ("whole", "broken"):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "words.py").write_text(WORDS)
            life = nursery.command(
                folder,
                "baseline",
                "environment.entry=words.py:environment",
                f"model={{name: any, endpoint: '{server.url}', remote: {{cache: false}}}}",
                f"baseline={{attempts: {ATTEMPTS}, scenarios: {SCENARIOS}}}",
                "sampling.max_concurrent=4",
                "workspace=work",
            )
            if name == "broken":
                wait(partial(has_come, life, folder, ATTEMPTS * SCENARIOS // 3))
                life.send(signal.SIGKILL)
                life.wait()
                life = nursery.command(folder, "baseline", "--resume", "last", "--workspace", "work")
            assert life.wait() == 0, life.output
            runs[name] = saved(folder)[1:]
        asked = len(server.requests)
    assert runs["broken"] == runs["whole"]
    assert 0 < runs["whole"][0]["pass@1"] < 1
    assert asked < 2 * ATTEMPTS * SCENARIOS * 1.5  # what was saved was not asked again


def has_come(life: Life, folder: Path, enough: int) -> bool:
    return life.ended() or rollouts(folder) >= enough


def rollouts(folder: Path) -> int:
    if not (folder / "work" / "etude.db").exists():
        return 0
    with Store.open(folder / "work") as store:
        runs = store.runs()
        return store.count_rollouts(runs[0].id) if runs else 0


def test_a_finished_baseline_is_not_gone_on_with(tmp_path: Path, nursery: Nursery) -> None:
    assert nursery.command(tmp_path, "baseline", *arguments(tmp_path)).wait() == 0
    again = nursery.command(tmp_path, "baseline", "--resume", "last", "--workspace", "work")
    assert again.wait() == 2
    assert "has ended" in again.output


def test_resume_takes_no_other_settings() -> None:
    result = CliRunner().invoke(app, ["baseline", "email_demo", "--resume", "last"])
    assert "give no file" in str(result.exception)
