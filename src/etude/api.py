"""The library's front door: `etude.train(environment, ...)` and its siblings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.environment.environment import Environment
from etude.evaluation.regrade import Regraded
from etude.evaluation.regrade import regrade as _regrade
from etude.evaluation.run_eval import EvalResult
from etude.evaluation.run_eval import evaluate as _evaluate
from etude.store.store import Store
from etude.training import run as _run
from etude.training.config import RunConfig, parse_config
from etude.training.events import Observer, silent
from etude.training.run import RunResult


def train(
    environment: Environment,
    *,
    model: str | Mapping[str, Any] = "tiny-random",
    steps: int = 100,
    observer: Observer = silent,
    resume: str | None = None,
    **settings: Any,
) -> RunResult:
    """Train `model` on its own attempts at the environment's train scenarios.

    model: its name, or the whole section (`{"name": ..., "lora": {"rank": 8}}`). steps: optimizer steps. settings: any
    other field of the configuration, sections as dicts, for instance `sampling={"groups_per_step": 8},
    learning={"lr": 1e-4}, workspace="runs", seed=1` (`etude train --fields` lists them). resume: goes on with an
    earlier run of this environment. Raises ConfigError for settings that cannot work."""
    config = _config(environment, model, {**settings, "training": {**settings.get("training", {}), "steps": steps}})
    return _run.train(config, environment=environment, observer=observer, resume=resume)


def sft(
    environment: Environment,
    *,
    model: str | Mapping[str, Any],
    traces: str,
    observer: Observer = silent,
    resume: str | None = None,
    **settings: Any,
) -> RunResult:
    """Warm start: imitate traces (a JSONL of conversations, or "run:RUN"). settings: as of `train`."""
    config = _config(environment, model, {**settings, "sft": {**settings.get("sft", {}), "traces": traces}})
    return _run.sft(config, environment=environment, observer=observer, resume=resume)


def evaluate(
    environment: Environment,
    *,
    model: str | Mapping[str, Any],
    split: str = "validation",
    observer: Observer = silent,
    **settings: Any,
) -> EvalResult:
    """Play a split and grade it; every figure comes with its 95 % interval. settings: as of `train`."""
    config = _config(environment, model, {**settings, "eval": {**settings.get("eval", {}), "split": split}})
    return _evaluate(config, environment=environment, observer=observer)


def regrade(
    environment: Environment, *, run: str = "last", workspace: str = ".etude", observer: Observer = silent
) -> Regraded:
    """Recompute rewards over a run's saved rollouts with this environment's rubric: no model, no tools."""
    with Store.open(Path(workspace)) as store:
        return _regrade(store, run, environment=environment, observer=observer)


def _config(environment: Environment, model: str | Mapping[str, Any], settings: Mapping[str, Any]) -> RunConfig:
    section = {"name": model} if isinstance(model, str) else model
    return parse_config({**settings, "model": section, "environment": {"entry": f"<{environment.name}>"}})
