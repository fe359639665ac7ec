"""Short trainings of the world of drawers, and what they end with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import etude
from etude.environment.environment import Environment
from etude.training.checkpoints import Checkpoints
from etude.training.run import RunResult
from support.symbols import drawers, save_symbol_model

GROUPS, ROLLOUTS = 4, 4
SETTINGS: dict[str, Any] = {
    "deterministic": True,
    "threads": 1,
    "sampling": {"groups_per_step": GROUPS, "rollouts_per_group": ROLLOUTS},
    "learning": {"lr": 5e-3},
}


def train_drawers(
    folder: Path,
    *,
    steps: int,
    environment: Environment | None = None,
    seed: int = 0,
    resume: str | None = None,
    **settings: Any,
) -> RunResult:
    """settings: sections are merged with SETTINGS."""
    merged = {name: {**SETTINGS.get(name, {}), **value} if isinstance(value, dict) else value
              for name, value in settings.items()}  # fmt: skip
    model = {"name": str(save_symbol_model(folder / "model")), "chat": "symbols", **merged.pop("model", {})}
    return etude.train(
        drawers() if environment is None else environment,
        model=model,
        steps=steps,
        seed=seed,
        resume=resume,
        workspace=str(folder / "work"),
        **{**SETTINGS, **merged},
    )


def weights_of(run: Path) -> dict[str, Tensor]:
    """The weights, or the adapter's, in the last checkpoint of a run's folder."""
    (file,) = (last_checkpoint(run) / "model").glob("*.safetensors")
    return load_file(file)


def optimizer_of(run: Path) -> dict[str, Tensor]:
    """The optimizer's state in the last checkpoint, flat."""
    saved = torch.load(last_checkpoint(run) / "learner.pt", weights_only=False)
    return {
        f"{name}.{part}": tensor
        for name, parts in saved["learner"]["optimizer"].items()
        for part, tensor in parts.items()
    }


def last_checkpoint(run: Path) -> Path:
    latest = Checkpoints(run / "checkpoints").latest()
    assert latest is not None
    return latest.path


def assert_same_tensors(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """Bit for bit, names too."""
    assert left.keys() == right.keys()
    assert left, "there is nothing to compare"
    different = [name for name in left if not torch.equal(left[name], right[name])]
    assert not different, f"{len(different)} of {len(left)} tensors differ, such as {different[0]}"
