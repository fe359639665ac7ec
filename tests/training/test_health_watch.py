"""A run that is watched: alerts in the store and to the observer, pausing and going on, and looking back at it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.symbols import VALUES, drawers, reward, say
from support.training import assert_same_tensors, optimizer_of, train_drawers, weights_of
from typer.testing import CliRunner

import etude
from etude.cli.health import register as register_health
from etude.cli.inspect import register as register_inspect
from etude.environment.environment import Environment
from etude.environment.tools import ToolContext, tool
from etude.errors import ConfigError, RunPaused
from etude.store.records import Event as StoredEvent
from etude.store.store import Store
from etude.training.config import HealthConfig
from etude.training.events import Event, Note
from etude.training.health.watch import health_of, saved_moments

STEPS = 6


def stuck() -> Environment:
    """One drawer of some scenarios is stuck, whoever opens it: `faults` fires at step 3."""

    @tool
    async def open_drawer(number: int, context: ToolContext) -> str:
        """Open a drawer."""
        if number == 1 and int(context.scenario.id.split("-")[1]) % 2:
            raise RuntimeError("the drawer is stuck")
        context.state["opened"] = number
        return VALUES[context.scenario["contents"][number]]

    return drawers(reward, tools=[open_drawer, say])


def train(folder: Path, **settings: Any) -> Any:
    merged = {"training": {"checkpoint_every": 2, "eval_every": 4, "eval_scenarios": 4}, **settings}
    folder.mkdir(exist_ok=True)
    return train_drawers(folder, steps=STEPS, environment=stuck(), **merged)


def stored(folder: Path) -> tuple[str, str, list[StoredEvent]]:
    """The only run's id and status, and its alerts."""
    with Store.open(folder / "work") as store:
        (run,) = store.runs()
        return run.id, run.status, [event for event in store.events(run.id) if event.type == "alert"]


def told(events: list[StoredEvent]) -> list[tuple[Any, ...]]:
    return [(event.step, event.level, event.message, event.data) for event in events]


def test_an_alert_is_stored_and_told_with_its_evidence(tmp_path: Path) -> None:
    seen: list[Event] = []
    train_with = {"observer": seen.append}
    run = etude.train(stuck(), **_as_settings(tmp_path), **train_with)
    with Store.open(tmp_path / "work") as store:
        (alert,) = [event for event in store.events(run.run_id) if event.type == "alert"]
        assert (alert.step, alert.level, alert.data["rule"]) == (3, "warn", "faults")
        assert alert.data["evidence"]["tool:open_drawer"] >= 5
        assert alert.data["advice"] in alert.message
        looked = health_of(store, run.run_id)
    assert [note.message for note in seen if isinstance(note, Note) and note.type == "alert"] == [alert.message]
    assert [(each.rule, each.step) for each in looked.alerts] == [("faults", 3)]
    assert looked.alerts[0].message in alert.message
    assert looked.active == {"faults"}
    assert (looked.steps, looked.unseen) == (STEPS, 0)


def _as_settings(folder: Path) -> dict[str, Any]:
    from support.symbols import save_symbol_model

    return {
        "model": {"name": str(save_symbol_model(folder / "model")), "chat": "symbols"},
        "steps": STEPS,
        "deterministic": True,
        "threads": 1,
        "sampling": {"groups_per_step": 4, "rollouts_per_group": 4},
        "learning": {"lr": 5e-3},
        "workspace": str(folder / "work"),
    }


def test_a_watch_that_is_off_tells_nothing_and_can_be_made_up_for(tmp_path: Path) -> None:
    train(tmp_path, health={"enabled": False})
    run, status, alerts = stored(tmp_path)
    assert (status, alerts) == ("succeeded", [])
    with Store.open(tmp_path / "work") as store:
        assert [alert.rule for alert in health_of(store, run).alerts] == ["faults"]
        stricter = HealthConfig(thresholds={"faults": {"share": 0.9}})
        assert health_of(store, run, stricter).alerts == []


def test_a_paused_run_says_why_and_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    train(tmp_path / "whole")
    with pytest.raises(RunPaused) as pause:
        train(tmp_path / "paused", health={"pause_on": ["faults"]})
    run, status, alerts = stored(tmp_path / "paused")
    assert status == "cancelled"
    assert "paused at step 3 by faults: " in str(pause.value)
    assert "tool:open_drawer" in str(pause.value)
    assert f'resume="{run}"' in str(pause.value)
    assert [alert.step for alert in alerts] == [3]
    train(tmp_path / "paused", resume=run)  # its alert was told: it does not pause again
    _, status, alerts = stored(tmp_path / "paused")
    _, _, alerts_of_whole = stored(tmp_path / "whole")
    assert status == "succeeded"
    assert told(alerts) == told(alerts_of_whole)
    folders = [next((tmp_path / name / "work" / "runs").iterdir()) for name in ("whole", "paused")]
    assert_same_tensors(*[weights_of(folder) for folder in folders])
    assert_same_tensors(*[optimizer_of(folder) for folder in folders])


def test_an_alert_that_a_kill_kept_from_being_told_is_told_and_pauses_then(tmp_path: Path) -> None:
    with pytest.raises(RunPaused):
        train(tmp_path, health={"pause_on": ["all"]})
    run, _, first = stored(tmp_path)
    connection = sqlite3.connect(tmp_path / "work" / "etude.db")  # as if it had died between checkpoint and alert
    with connection:
        connection.execute("DELETE FROM events WHERE type = 'alert'")
    connection.close()
    with pytest.raises(RunPaused, match="paused at step 3 by faults"):
        train(tmp_path, resume=run)
    assert told(stored(tmp_path)[2]) == told(first)
    train(tmp_path, resume=run)
    _, status, alerts = stored(tmp_path)
    assert status == "succeeded"
    assert told(alerts) == told(first)


def test_the_last_step_is_no_place_to_pause(tmp_path: Path) -> None:
    settings = {"health": {"pause_on": ["faults"], "thresholds": {"faults": {"steps": STEPS}}}}
    train(tmp_path, **settings)
    _, status, alerts = stored(tmp_path)
    assert status == "succeeded"
    assert [alert.step for alert in alerts] == [STEPS]


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"sampling": {"staleness": 1, "max_retries": 0}},
        {"sampling": {"max_retries": 0}, "training": {"zero_variance": "refill", "eval_every": 2}},
    ],
    ids=["on-policy", "one step behind", "refilled"],
)
def test_figures_of_saved_rollouts_are_those_of_the_run(tmp_path: Path, chosen: dict[str, Any]) -> None:
    """Bit for bit: an older run, or another held-out metric, is looked at as if it had been watched."""
    train(tmp_path, **chosen)
    run, _, _ = stored(tmp_path)
    with Store.open(tmp_path / "work") as store:
        written = saved_moments(store, run, "answer_correct")
        computed = saved_moments(store, run, "answer_correct", again=True)
    assert [moment.step for moment in written] == list(range(STEPS + 1))
    assert [moment.figures for moment in computed] == [moment.figures for moment in written]


def test_a_run_whose_rollouts_were_not_kept_keeps_its_figures(tmp_path: Path) -> None:
    train(tmp_path, training={"keep_rollouts": "none"})
    run, _, alerts = stored(tmp_path)
    assert len(alerts) == 1
    with Store.open(tmp_path / "work") as store:
        assert health_of(store, run).unseen == 0
        other = health_of(store, run, HealthConfig(held_out="another"))
    assert (other.unseen, other.alerts) == (STEPS, [])


def etude_command(*words: str) -> str:
    import typer

    app = typer.Typer()
    register_health(app)
    register_inspect(app)
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_commands_show_alerts_and_what_became_of_the_rollouts(tmp_path: Path) -> None:
    train(tmp_path)
    place = ["--workspace", str(tmp_path / "work")]
    text = etude_command("health", "last", *place)
    assert "faults" in text
    assert "tool:open_drawer" in text
    assert "(still so)" in text
    assert "no alert in 6 steps" in etude_command("health", "last", "faults.share=0.9", *place)
    assert "outputs_converging" in etude_command("health", "--rules")
    why = etude_command("show", "last", "--why", *place)
    assert "step sampled trained env fault" in why
    assert "tool:open_drawer" in why
    assert "a tool or the environment broke: no reward" in why
    for wrong in ("faults", "fault.share=1", "faults.share=x", "faults.rate=1"):
        with pytest.raises(ConfigError):
            etude_command("health", "last", wrong, *place)
