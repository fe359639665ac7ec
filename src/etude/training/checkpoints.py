"""Checkpoints: a folder `step-000012` is there whole, or it is not there.

A checkpoint is written to `.tmp-…` beside the others, brought to the disk (fsync of every file and folder), and
renamed. `manifest.json` lists every file with its size and SHA-256, so that damage is found before it is used.
One process writes (the one that has the run); others may read at any moment.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.errors import EtudeError, StorageError

FORMAT = 1
MANIFEST = "manifest.json"
_TEMPORARY = ".tmp-"
_NAME = re.compile(r"step-(\d{6,})")
_FULL_BELOW = 1 << 20  # bytes free under which a write that failed for no stated reason is put down to a full disk

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """path: the folder that `write` filled. meta: as given to `save`. validation_reward: None until it is known.
    created: seconds since the epoch. size: bytes of all files."""

    step: int
    path: Path
    meta: dict[str, Any]
    validation_reward: float | None
    created: float
    size: int


class Checkpoints:
    """The checkpoints of one run, in one folder.

    The `keep_last` last are kept, and besides them the `keep_best` best by validation reward (of equals the earlier).
    warn: told of every damaged checkpoint that is passed over; where it is left out, that is logged as a warning.
    """

    def __init__(
        self,
        folder: Path,
        keep_best: int = 3,
        keep_last: int = 1,
        *,
        warn: Callable[[str], None] = logger.warning,
    ) -> None:
        if keep_last < 1 or keep_best < 0:
            raise ValueError(f"keep_last is {keep_last} and must be at least 1; keep_best {keep_best}, at least 0")
        self.folder = folder
        self._keep_best, self._keep_last = keep_best, keep_last
        self._warn = warn
        self._writing = threading.Lock()

    def save(
        self, step: int, write: Callable[[Path], None], meta: dict[str, Any], validation_reward: float | None = None
    ) -> Checkpoint:
        """Write the checkpoint of `step`, then delete those that are no longer kept.

        write: fills the empty folder that it is given. meta: JSON values. Once this returns, the checkpoint survives a
        power cut. Raises StorageError where the disk is full or cannot be written, and whatever `write` raises; then
        the earlier checkpoints are as they were, and nothing is left of this one.
        """
        _check_reward(validation_reward)
        final = self._path(step)
        with self._changing(f"write the checkpoint of step {step}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            if final.exists():
                if self._is_whole(final):
                    raise StorageError(f"{final} is a whole checkpoint already: truncate before a step is done again")
                self._remove(final)
            with self._temporary_folder() as temporary:
                write(temporary)
                files = _describe_and_sync(temporary)
                created = time.time()
                _write_manifest(temporary, step, meta, validation_reward, created, files)
                os.rename(temporary, final)
            _sync(self.folder)
            self._prune()
        return Checkpoint(step, final, meta, validation_reward, created, sum(file["size"] for file in files.values()))

    def set_validation(self, step: int, reward: float) -> bool:
        """Note the validation reward of a checkpoint that was written before, then delete those that are no longer
        kept. False where there is no checkpoint of this step.

        Call it before the next `save`, which does not keep a checkpoint for a reward that it does not know yet.
        Raises StorageError.
        """
        _check_reward(reward)
        path = self._path(step)
        with self._changing(f"note the validation reward of step {step}"):
            if not path.is_dir():
                return False
            held = _read_manifest(path)
            with self._temporary_folder() as temporary:
                _write_manifest(temporary, step, held["meta"], reward, held["created"], held["files"])
                os.replace(temporary / MANIFEST, path / MANIFEST)
            _sync(path)
            self._prune()
        return True

    def list(self) -> tuple[Checkpoint, ...]:
        """Checkpoints by step. Only `latest` and `best` read all files of a checkpoint, to see that it is whole."""
        while True:
            folders = self._folders()
            read = [self._read(path) for path in folders]
            if all(path.exists() for path in folders):  # else one was pruned under our hands, after a newer one came
                return tuple(checkpoint for checkpoint in read if checkpoint is not None)

    def latest(self) -> Checkpoint | None:
        """The last checkpoint whose files are all as they were written; None where there is none."""
        return self._first_whole(lambda checkpoints: checkpoints[::-1])

    def best(self) -> Checkpoint | None:
        """The whole checkpoint with the highest validation reward; None where none has one."""
        return self._first_whole(_by_reward)

    def chosen(self) -> Checkpoint | None:
        """The one whose weights are the run's: the best by validation, where nothing was validated the last."""
        return self.best() or self.latest()

    def prune(self) -> tuple[int, ...]:
        """Delete what is no longer kept; gives the steps. `save` and `set_validation` do this by themselves."""
        with self._changing("delete old checkpoints"):
            return self._prune()

    def truncate(self, step: int) -> tuple[int, ...]:
        """Delete the checkpoints beyond `step`, damaged ones too, and what killed writes left; gives the steps.

        A run begins so, with 0 or the step that it goes on from. Raises StorageError.
        """
        with self._changing(f"go back to step {step}"):
            self._remove_leftovers()
            beyond = [path for path in self._folders() if _step_of(path) > step]
            for path in beyond:
                self._remove(path)
        return tuple(map(_step_of, beyond))

    def _prune(self) -> tuple[int, ...]:
        checkpoints = self.list()
        keep = {checkpoint.step for checkpoint in checkpoints[-self._keep_last :]}
        keep |= {checkpoint.step for checkpoint in _by_reward(checkpoints)[: self._keep_best]}
        gone = [checkpoint for checkpoint in checkpoints if checkpoint.step not in keep]
        for checkpoint in gone:
            self._remove(checkpoint.path)
        return tuple(checkpoint.step for checkpoint in gone)

    def _first_whole(self, order: Callable[[Sequence[Checkpoint]], Sequence[Checkpoint]]) -> Checkpoint | None:
        while True:
            for checkpoint in order(self.list()):
                if self._is_whole(checkpoint.path):
                    return checkpoint
                if not checkpoint.path.exists():
                    break  # likewise: look again
            else:
                return None

    def _is_whole(self, path: Path) -> bool:
        try:
            _verify(path)
        except _Damage as damage:
            self._warn_of(path, damage)
            return False
        return True

    def _read(self, path: Path) -> Checkpoint | None:
        try:
            manifest = _read_manifest(path)
        except _Damage as damage:
            self._warn_of(path, damage)
            return None
        size = sum(file["size"] for file in manifest["files"].values())
        return Checkpoint(
            manifest["step"], path, manifest["meta"], manifest["validation_reward"], manifest["created"], size
        )

    def _warn_of(self, path: Path, damage: _Damage) -> None:
        if path.exists():  # else it is not damaged, but pruned meanwhile
            self._warn(f"checkpoint {path} is damaged ({damage}): it is not used")

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"

    def _temporary_path(self) -> Path:
        return self.folder / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"

    def _folders(self) -> Sequence[Path]:
        """Folders with a checkpoint's name, by step."""
        if not self.folder.is_dir():
            return []
        return sorted((path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)), key=_step_of)

    def _remove(self, path: Path) -> None:
        """Rename first: what is half deleted must not have a checkpoint's name."""
        aside = self._temporary_path()
        os.rename(path, aside)
        shutil.rmtree(aside)

    def _remove_leftovers(self) -> None:
        for path in self.folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(path)

    @contextmanager
    def _temporary_folder(self) -> Iterator[Path]:
        """A folder that is gone afterwards, unless it was renamed."""
        path = self._temporary_path()
        path.mkdir()
        try:
            yield path
        except Exception as error:
            # Writers of tensors hide the system's error in their own; so look at the disk, before there is room again.
            unexplained = not isinstance(error, EtudeError) and getattr(error, "errno", None) is None
            if unexplained and shutil.disk_usage(self.folder).free < _FULL_BELOW:
                raise OSError(errno.ENOSPC, f"{type(error).__name__}: {error}") from error
            raise
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _changing(self, doing: str) -> Iterator[None]:
        with self._writing:
            try:
                yield
            except _Damage as damage:
                raise StorageError(f"could not {doing} in {self.folder}: it is damaged ({damage})") from damage
            except OSError as error:
                raise StorageError(f"could not {doing} in {self.folder}: {self._reason(error)}") from error

    def _reason(self, error: OSError) -> str:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return f"{error.strerror or error}; the other checkpoints are intact: check the disk and its permissions"
        free = shutil.disk_usage(self.folder).free >> 20
        return (
            f"the disk is full ({free} MiB free without it); the other checkpoints are intact: free space, then resume"
        )


class _Damage(Exception):
    """Why a checkpoint cannot be used."""


def _check_reward(reward: float | None) -> None:
    if reward is not None and not math.isfinite(reward):
        raise ValueError(f"validation reward {reward}: it must be finite, or None while it is not known")


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _by_reward(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Those with a validation reward, the best first, of equals the earlier."""
    known = [(checkpoint.validation_reward, checkpoint) for checkpoint in checkpoints]
    ranked = sorted((-reward, checkpoint.step, checkpoint) for reward, checkpoint in known if reward is not None)
    return [checkpoint for _, _, checkpoint in ranked]


def _describe_and_sync(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file by its path within `folder`, once they and the folders are on the disk."""
    paths = sorted(folder.rglob("*"))
    files = {}
    for path in paths:
        if not path.is_dir():
            files[path.relative_to(folder).as_posix()] = {"size": path.stat().st_size, "sha256": _sha256(path)}
        _sync(path)
    if not files:
        raise ValueError("the checkpoint's write() wrote no file")
    return files


def _write_manifest(
    folder: Path, step: int, meta: dict[str, Any], reward: float | None, created: float, files: dict[str, Any]
) -> None:
    content = {
        "format": FORMAT,
        "step": step,
        "created": created,
        "meta": meta,
        "validation_reward": None if reward is None else float(reward),
        "files": files,
    }
    path = folder / MANIFEST
    path.write_text(json.dumps({**content, "sha256": _digest(content)}, indent=1), encoding="utf-8")
    _sync(path)
    _sync(folder)


def _read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the checkpoint in `path`. Raises _Damage."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _Damage(f"{MANIFEST}: {error}") from error
    if not isinstance(manifest, dict) or manifest.pop("sha256", None) != _digest(manifest):
        raise _Damage(f"{MANIFEST} is not as it was written")
    if manifest["format"] != FORMAT:
        raise StorageError(f"{path} has format {manifest['format']}, this Etude reads {FORMAT}: upgrade Etude")
    return manifest


def _verify(path: Path) -> None:
    """Raises _Damage where a file is not as it was written."""
    for name, expected in _read_manifest(path)["files"].items():
        try:
            size, digest = (path / name).stat().st_size, _sha256(path / name)
        except OSError as error:
            raise _Damage(f"{name}: {error.strerror}") from error
        if size != expected["size"]:
            raise _Damage(f"{name} has {size} bytes, not {expected['size']}")
        if digest != expected["sha256"]:
            raise _Damage(f"{name} is not as it was written")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
