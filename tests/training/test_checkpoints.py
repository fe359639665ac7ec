"""Checkpoints: whole or not there, verified before they are used, the best and the last kept."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from etude.errors import StorageError
from etude.training.checkpoints import Checkpoints

Write = Callable[[Path], None]


def writer(content: str = "weights") -> Write:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights.bin").write_text(content * 100)
        (folder / "state.json").write_text("{}")

    return write


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def checkpoints(tmp_path: Path, warnings: list[str]) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", warn=warnings.append)


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def steps(checkpoints: Checkpoints) -> list[int]:
    return [checkpoint.step for checkpoint in checkpoints.list()]


def test_a_checkpoint_is_found_as_it_was_saved(checkpoints: Checkpoints) -> None:
    assert checkpoints.list() == ()
    assert checkpoints.latest() is None
    assert checkpoints.best() is None
    saved = checkpoints.save(12, writer(), {"version": 12, "note": "é"}, validation_reward=0.5)
    assert saved.path == checkpoints.folder / "step-000012"
    assert (saved.step, saved.meta, saved.validation_reward) == (12, {"version": 12, "note": "é"}, 0.5)
    assert saved.size == 702
    assert checkpoints.list() == (saved,)
    assert checkpoints.latest() == checkpoints.best() == saved
    assert (saved.path / "model" / "weights.bin").read_text() == "weights" * 100
    assert names(checkpoints) == ["step-000012"]
    manifest = json.loads((saved.path / "manifest.json").read_text())
    assert manifest["files"].keys() == {"model/weights.bin", "state.json"}
    assert manifest["files"]["state.json"] == {
        "size": 2,
        "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    }


def test_steps_are_ordered_as_numbers(checkpoints: Checkpoints) -> None:
    for step in (999_999, 1_000_000, 5):
        checkpoints.save(step, writer(), {}, validation_reward=1.0)
    assert steps(checkpoints) == [5, 999_999, 1_000_000]


def test_a_reward_that_is_known_later_is_noted(checkpoints: Checkpoints, warnings: list[str]) -> None:
    before = checkpoints.save(1, writer(), {"version": 1})
    assert checkpoints.best() is None
    assert checkpoints.set_validation(1, 0.25)
    (after,) = checkpoints.list()
    assert after.validation_reward == 0.25
    assert (after.meta, after.created, after.size) == (before.meta, before.created, before.size)
    assert checkpoints.best() == checkpoints.latest() == after
    assert not checkpoints.set_validation(2, 0.5)
    assert names(checkpoints) == ["step-000001"]
    assert warnings == []


def kept_the_slow_way(history: list[tuple[str, int, float | None]], keep_best: int, keep_last: int) -> list[int]:
    """Which steps remain after saves and validations, one at a time, over plain dictionaries."""
    rewards: dict[int, float | None] = {}
    for action, step, reward in history:
        if action == "save" or step in rewards:
            rewards[step] = reward
        last = sorted(rewards)[-keep_last:]
        known = [(step, value) for step, value in sorted(rewards.items()) if value is not None]
        best = [step for step, _ in sorted(known, key=lambda pair: pair[1], reverse=True)][:keep_best]
        rewards = {step: value for step, value in rewards.items() if step in last or step in best}
    return sorted(rewards)


@given(
    st.lists(st.tuples(st.booleans(), st.none() | st.sampled_from([0.0, 0.5, 0.5, 0.75, -1.0])), max_size=9),
    st.integers(0, 3),
    st.integers(1, 2),
)
@settings(max_examples=15, deadline=None)
def test_the_best_and_the_last_are_kept(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[bool, float | None]], keep_best: int, keep_last: int
) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("kept"), keep_best, keep_last)
    history: list[tuple[str, int, float | None]] = []
    for step, (at_once, reward) in enumerate(plan, start=1):
        checkpoints.save(step, writer(), {}, reward if at_once else None)
        history.append(("save", step, reward if at_once else None))
        if not at_once and reward is not None:
            checkpoints.set_validation(step, reward)
            history.append(("validation", step, reward))
        assert steps(checkpoints) == kept_the_slow_way(history, keep_best, keep_last)
        assert len(names(checkpoints)) == len(steps(checkpoints))


def test_of_equal_rewards_the_earlier_is_the_best(checkpoints: Checkpoints) -> None:
    for step in range(1, 6):
        checkpoints.save(step, writer(), {}, validation_reward=0.5)
    best = checkpoints.best()
    assert best is not None
    assert best.step == 1
    assert steps(checkpoints) == [1, 2, 3, 5]


def test_other_settings_take_effect_by_pruning(checkpoints: Checkpoints) -> None:
    for step in range(1, 5):
        checkpoints.save(step, writer(), {}, validation_reward=step / 10)
    assert Checkpoints(checkpoints.folder, keep_best=1).prune() == (2, 3)
    assert steps(checkpoints) == [4]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def edit(path: Path) -> None:
    """Another step in the manifest: valid JSON, but not what was written."""
    path.write_text(path.read_text().replace('"step": 2', '"step": 3'))


DAMAGES: list[tuple[str, Callable[[Path], Any], str]] = [
    ("model/weights.bin", flip, "model/weights.bin is not as it was written"),
    ("model/weights.bin", lambda path: os.truncate(path, 10), "model/weights.bin has 10 bytes, not 700"),
    ("model/weights.bin", Path.unlink, "model/weights.bin: No such file"),
    ("model", shutil.rmtree, "model/weights.bin: No such file"),
    ("manifest.json", Path.unlink, "manifest.json: "),
    ("manifest.json", lambda path: os.truncate(path, 40), "manifest.json: "),
    ("manifest.json", lambda path: os.truncate(path, 0), "manifest.json: "),
    ("manifest.json", edit, "manifest.json is not as it was written"),
    ("manifest.json", lambda path: path.write_text("[]"), "manifest.json is not as it was written"),
    ("manifest.json", lambda path: path.write_bytes(b"\xff\xfe"), "manifest.json: "),
]


@pytest.mark.parametrize(("name", "damage", "reason"), DAMAGES)
def test_a_damaged_checkpoint_is_warned_about_and_the_one_before_is_used(
    checkpoints: Checkpoints, warnings: list[str], name: str, damage: Callable[[Path], Any], reason: str
) -> None:
    first = checkpoints.save(1, writer(), {}, validation_reward=0.5)
    second = checkpoints.save(2, writer(), {}, validation_reward=0.75)
    damage(second.path / name)
    for choose in (checkpoints.latest, checkpoints.best):
        warnings.clear()
        assert choose() == first
        assert len(warnings) == 1
        assert f"checkpoint {second.path} is damaged ({reason}" in warnings[0]
        assert "is not used" in warnings[0]
    # The run goes on from step 1 and comes to step 2 again.
    checkpoints.save(2, writer("again"), {}, validation_reward=0.75)
    warnings.clear()
    latest = checkpoints.latest()
    assert latest is not None
    assert (latest.path / "model" / "weights.bin").read_text() == "again" * 100
    assert warnings == []
    assert names(checkpoints) == ["step-000001", "step-000002"]


def test_nothing_whole_is_nothing_at_all(checkpoints: Checkpoints, warnings: list[str]) -> None:
    flip(checkpoints.save(1, writer(), {}).path / "state.json")
    assert checkpoints.latest() is None
    assert len(warnings) == 1


def test_damage_is_logged_where_nobody_else_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flip(Checkpoints(tmp_path).save(1, writer(), {}).path / "state.json")
    assert Checkpoints(tmp_path).latest() is None
    assert "step-000001 is damaged" in caplog.text


def test_a_reward_cannot_be_noted_on_a_damaged_manifest(checkpoints: Checkpoints) -> None:
    flip(checkpoints.save(1, writer(), {}).path / "manifest.json")
    with pytest.raises(StorageError, match=r"could not note the validation reward of step 1 in .* it is damaged"):
        checkpoints.set_validation(1, 0.5)


def test_a_newer_format_says_to_upgrade(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.training.checkpoints.FORMAT", 2)
    checkpoints.save(1, writer(), {})
    monkeypatch.undo()
    with pytest.raises(StorageError, match="format 2, this Etude reads 1: upgrade"):
        checkpoints.latest()


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken("no"), KeyboardInterrupt(), StorageError("its own words")])
def test_a_write_that_fails_leaves_nothing_and_raises_what_it_raised(
    checkpoints: Checkpoints, error: BaseException
) -> None:
    first = checkpoints.save(1, writer(), {})

    def write(folder: Path) -> None:
        (folder / "half.bin").write_bytes(bytes(1000))
        raise error

    with pytest.raises(type(error)) as raised:
        checkpoints.save(2, write, {})
    assert raised.value is error
    assert names(checkpoints) == ["step-000001"]
    assert checkpoints.latest() == first


@pytest.mark.parametrize("meta", [{"when": object()}, {"also": {1, 2}}])
def test_meta_that_is_not_json_leaves_nothing(checkpoints: Checkpoints, meta: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoints.save(1, writer(), meta)
    assert names(checkpoints) == []


def test_an_empty_checkpoint_is_refused(checkpoints: Checkpoints) -> None:
    with pytest.raises(ValueError, match=r"write\(\) wrote no file"):
        checkpoints.save(1, lambda folder: None, {})
    assert names(checkpoints) == []


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_what_is_no_reward_is_refused(checkpoints: Checkpoints, reward: float) -> None:
    with pytest.raises(ValueError, match="must be finite, or None while it is not known"):
        checkpoints.save(1, writer(), {}, validation_reward=reward)
    checkpoints.save(1, writer(), {})
    with pytest.raises(ValueError, match="must be finite"):
        checkpoints.set_validation(1, reward)


def test_a_whole_checkpoint_is_not_written_over(checkpoints: Checkpoints) -> None:
    first = checkpoints.save(1, writer(), {})
    with pytest.raises(StorageError, match="step-000001 is a whole checkpoint already: truncate"):
        checkpoints.save(1, writer("other"), {})
    assert checkpoints.latest() == first
    assert (first.path / "model" / "weights.bin").read_text() == "weights" * 100


def test_a_run_that_goes_on_from_an_earlier_step_deletes_the_later_ones(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 3, 4):
        checkpoints.save(step, writer(), {}, validation_reward=1.0)
    flip(checkpoints.folder / "step-000004" / "manifest.json")
    (checkpoints.folder / ".tmp-77-killed").mkdir()
    (checkpoints.folder / ".tmp-77-killed" / "half.bin").write_bytes(bytes(10))
    assert checkpoints.truncate(2) == (3, 4)
    assert names(checkpoints) == ["step-000001", "step-000002"]
    assert Checkpoints(checkpoints.folder / "none yet").truncate(0) == ()


def test_what_killed_writes_left_goes_with_the_next_save(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, writer(), {})
    for number in range(3):
        left = checkpoints.folder / f".tmp-77-{number}"
        left.mkdir()
        writer()(left)
    assert steps(checkpoints) == [1]
    checkpoints.save(2, writer(), {})
    assert names(checkpoints) == ["step-000002"]


def test_everything_is_on_the_disk_before_the_name_is(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    fsync, rename = os.fsync, os.rename

    def watched_fsync(descriptor: int) -> None:
        log.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def watched_rename(source: Path, target: Path) -> None:
        log.append(f"rename to {target.name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "rename", watched_rename)
    checkpoints.save(1, writer(), {})
    renamed = log.index("rename to step-000001")
    assert {"sync weights.bin", "sync state.json", "sync model", "sync manifest.json"} <= set(log[:renamed])
    assert log[renamed - 1].startswith("sync .tmp-")  # the folder itself, whose names the manifest is among
    assert log[renamed + 1] == "sync checkpoints"


def test_a_reader_sees_whole_checkpoints_while_they_come_and_go(checkpoints: Checkpoints, warnings: list[str]) -> None:
    checkpoints.save(1, writer(), {}, validation_reward=0.0)
    reader = Checkpoints(checkpoints.folder, warn=warnings.append)
    done = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not done.is_set():
            latest, best = reader.latest(), reader.best()
            seen.append(latest.step if latest is not None and best is not None else -1)

    thread = threading.Thread(target=read)
    thread.start()
    for step in range(2, 40):
        checkpoints.save(step, writer(), {}, validation_reward=float(step % 7))
    done.set()
    thread.join()
    assert warnings == []
    assert min(seen) >= 1
    assert seen == sorted(seen)


def raw(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(bytes(2_000_000))


def numpy_array(folder: Path) -> None:
    np.save(folder / "weights", np.zeros(500_000))


def safetensors(folder: Path) -> None:
    save_file({"weights": np.zeros(500_000)}, folder / "weights.safetensors")


def torch_file(folder: Path) -> None:
    import torch

    torch.save({"weights": torch.zeros(500_000)}, folder / "weights.pt")


@pytest.mark.parametrize(
    "write", [raw, numpy_array, safetensors, pytest.param(torch_file, marks=pytest.mark.acceptance)]
)
def test_a_full_disk_keeps_the_checkpoint_before_and_leaves_nothing(
    tiny_disk: Path, warnings: list[str], write: Write
) -> None:
    checkpoints = Checkpoints(tiny_disk / "checkpoints", warn=warnings.append)
    first = checkpoints.save(1, writer(), {}, validation_reward=0.5)
    with pytest.raises(
        StorageError, match=rf"could not write the checkpoint of step 2 in {checkpoints.folder}: the disk is full"
    ):
        checkpoints.save(2, write, {})
    assert names(checkpoints) == ["step-000001"]
    assert checkpoints.latest() == checkpoints.best() == first
    checkpoints.save(2, writer(), {})
    assert steps(checkpoints) == [1, 2]
    assert warnings == []


def test_a_fault_of_the_writer_on_a_disk_with_room_is_not_called_a_full_disk(checkpoints: Checkpoints) -> None:
    def write(folder: Path) -> None:
        raise OSError("no reason given")

    with pytest.raises(StorageError, match="no reason given; the other checkpoints are intact"):
        checkpoints.save(1, write, {})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(
        StorageError, match=f"could not write the checkpoint of step 1 in {tmp_path}/taken: File exists"
    ):
        Checkpoints(tmp_path / "taken").save(1, writer(), {})


@pytest.mark.parametrize(("keep_best", "keep_last"), [(3, 0), (-1, 1)])
def test_settings_that_would_keep_nothing_are_refused(tmp_path: Path, keep_best: int, keep_last: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        Checkpoints(tmp_path, keep_best, keep_last)
