"""Files of every age: old ones are brought up to date with their data, newer ones are refused untouched."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.environment.scenario import Scenario
from etude.errors import StorageError
from etude.rollout.rollout import Rollout
from etude.store import Store
from etude.store.schema import MIGRATIONS, SCHEMA_VERSION

TRAIN, EVAL = "train-20261101-080000-0a1b", "eval-20261101-090000-0c2d"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A workspace whose store is of version 1: a finished run with a step, rollouts, an event; and one cut off."""
    connection = sqlite3.connect(tmp_path / "etude.db")
    connection.executescript(Path(__file__).with_name("version_1.sql").read_text(encoding="utf-8"))
    connection.close()
    return tmp_path


def everything(path: Path) -> Iterator[str]:
    connection = sqlite3.connect(path)
    yield from connection.iterdump()
    yield str(connection.execute("PRAGMA user_version").fetchone())
    connection.close()


def tables(path: Path) -> set[tuple[Any, ...]]:
    """Every column of every table, and every index, as SQLite sees them."""
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    columns = {(name, *row[1:]) for name in names for row in connection.execute(f"PRAGMA table_xinfo({name})")}
    keys = {(name, *row[2:]) for name in names for row in connection.execute(f"PRAGMA foreign_key_list({name})")}
    indexes = {(name, *row[1:]) for name in names for row in connection.execute(f"PRAGMA index_list({name})")}
    connection.close()
    return columns | keys | indexes


def test_a_version_1_file_is_migrated_with_everything_in_it(old: Path) -> None:
    with Store.open(old) as store:
        train, cut_off = store.find_run(TRAIN), store.find_run(EVAL)
        assert (train.status, train.config, train.finished) == ("succeeded", {"seed": 7}, 1793520100.0)
        assert (cut_off.status, cut_off.parent) == ("interrupted", TRAIN)
        (step,) = store.steps(TRAIN)
        assert (step.step, step.metrics["loss"], str(step.metrics["kl"])) == (1, 0.5, "nan")
        assert [event.message for event in store.events(TRAIN)] == ["step 1"]
        rows = store.rollouts(TRAIN)
        assert [(row.trace_id, row.reward, row.saved) for row in rows] == [
            ("trace_0", 0.0, True),
            ("trace_1", 0.25, True),
            ("trace_2", 0.5, True),
            ("trace_3", 0.75, False),
        ]
        saved = list(store.iter_rollouts(TRAIN, dropped="skip"))
        assert [each.rollout.answer for each in saved] == ["Ici 0", "Ici 1", "Ici 2"]
        assert [each.scenario for each in saved] == [
            Scenario(f"s-{n}", "train", {"question": f"Q{n}"}) for n in (0, 1, 0)
        ]


def test_a_migrated_file_is_like_a_new_one_and_can_be_used(
    old: Path, tmp_path_factory: pytest.TempPathFactory, make_rollout: Callable[..., Rollout], scenario: Scenario
) -> None:
    with Store.open(old) as store:
        run = store.create_run("regrade", name="x", environment="shop", model="tiny", config={}, parent=TRAIN)
        store.add_regrades(run, [saved.rollout for saved in store.iter_rollouts(TRAIN, dropped="skip")])
        store.add_rollouts(TRAIN, 2, "train", [make_rollout(trace_id="trace_new")], [scenario])
        assert store.add_event(TRAIN, "new", level="info", type="message") == 10  # ids go on where they were
        assert len(store.regrades(run)) == 3
    with Store.open(tmp_path_factory.mktemp("new")) as new:
        assert tables(store.path) == tables(new.path)


def test_a_migration_that_fails_leaves_the_version_before(old: Path, monkeypatch: Any) -> None:
    broken = (*MIGRATIONS[1][:3], "CREATE TABLE nonsense (")
    monkeypatch.setattr("etude.store.schema.MIGRATIONS", (MIGRATIONS[0], broken))
    before = list(everything(old / "etude.db"))
    with pytest.raises(StorageError, match=r"could not open the store .* incomplete input"):
        Store.open(old)
    assert list(everything(old / "etude.db")) == before
    monkeypatch.undo()
    with Store.open(old) as store:
        assert len(store.runs()) == 2


def test_a_newer_file_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "etude.db"
    connection = sqlite3.connect(path)
    connection.executescript(f"CREATE TABLE runs (future); PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StorageError, match=rf"written by a newer Etude \(schema {SCHEMA_VERSION + 1}; .* upgrade"):
            Store.open(tmp_path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_reader_does_not_migrate(old: Path) -> None:
    before = list(everything(old / "etude.db"))
    with pytest.raises(StorageError, match=r"has the older schema 1 .* open it once for writing"):
        Store.open(old, read_only=True)
    assert list(everything(old / "etude.db")) == before


def test_opening_again_changes_nothing(store: Store, new_run: Callable[..., str]) -> None:
    new_run()
    before = list(everything(store.path))
    with Store.open(store.workspace) as again:
        assert [run.id for run in again.runs()] == [run.id for run in store.runs()]
    assert list(everything(store.path)) == before
