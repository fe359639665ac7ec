"""How far a demo has come, in a file, so that the next `etude demo` goes on where this one stopped."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from etude.errors import StorageError

Stage = Literal["before", "train", "after"]
STAGES: tuple[Stage, ...] = ("before", "train", "after")


@dataclass
class Progress:
    """config: what decides the demo, as it was when it began. runs: ids by stage, as they start. done: stages that are
    over. seconds: by stage, all starts of it together."""

    config: dict[str, Any]
    runs: dict[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return set(STAGES) <= set(self.done)

    def save(self, file: Path) -> None:
        """Write it whole or not at all. Raises StorageError."""
        write_json(file, asdict(self))


def write_json(file: Path, data: dict[str, Any]) -> None:
    """Write it whole or not at all. Raises StorageError."""
    unfinished = file.with_suffix(".unfinished")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(file)
    except OSError as error:
        raise StorageError(f"cannot write {file}: {error.strerror or error}") from error


def load_progress(file: Path) -> Progress | None:
    """What was saved, or None where nothing is. Raises StorageError for a file that cannot be read as such."""
    try:
        return Progress(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise StorageError(f"{file} is damaged ({error}): delete it, and the demo starts anew") from error
