"""Runs from start to end: made in the store, resumable, and marked with how they ended. What the command line and
`etude.train` call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.environment.environment import Environment
from etude.errors import ConfigError, RunCancelled
from etude.rollout.traces import Trace
from etude.store.records import Run, RunKind
from etude.store.store import Store
from etude.training.checkpoints import Checkpoint, Checkpoints
from etude.training.config import RunConfig, parse_config
from etude.training.events import Observer, RunStarted, silent
from etude.training.learner_config import learner_config
from etude.training.recorder import Recorder
from etude.training.runtime import Runtime, build_environment, build_runtime, find_model, pin_runs, run_folder
from etude.training.stop import run_until_stopped
from etude.training.traces import find_traces

HEARTBEAT_EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """folder: the run's folder, with its checkpoints. model: the folder of the weights to use (best by validation
    reward, else the last), None for runs that make none."""

    run_id: str
    folder: Path
    model: Path | None


@dataclass
class Prepared:
    """A configuration whose environment and model are known to exist; nothing heavy is loaded yet."""

    config: RunConfig
    environment: Environment
    store: Store

    kind: RunKind
    model: str  # what plays, for people: the model's name, or the scripted policy's

    @classmethod
    def of(cls, config: RunConfig, kind: RunKind, environment: Environment | None = None) -> Prepared:
        """Raises ConfigError, DataError or ModelError before any model loads."""
        made = build_environment(config) if environment is None else environment
        store = Store.open(Path(config.workspace))
        if kind == "eval" and config.eval.policy != "model":
            if config.eval.policy not in made.policies:
                known = ", ".join(["model", *made.policies])
                raise ConfigError(f"environment {made.name} has no policy {config.eval.policy!r}; there are: {known}")
            return cls(config, made, store, kind, f"policy {config.eval.policy}")
        config = pin_runs(config, store)
        find_model(config, store)
        return cls(config, made, store, kind, config.model.name)


def train(
    config: RunConfig, *, environment: Environment | None = None, observer: Observer = silent, resume: str | None = None
) -> RunResult:
    """Reinforcement from reward. environment: instead of the configuration's entry. resume: a run id, its unique
    beginning, or "last"; the run goes on with the configuration that it was started with.

    Raises EtudeError of the kind that stopped it; RunCancelled where a person did."""
    prepared, run = _prepare(config, environment, resume, "train")
    for split in ("train", "validation") if prepared.config.training.eval_every else ("train",):
        prepared.environment.scenarios_of(split)
    return _learn(prepared, observer, run)


def sft(
    config: RunConfig, *, environment: Environment | None = None, observer: Observer = silent, resume: str | None = None
) -> RunResult:
    """Supervised warm start on the traces that sft.traces names. Arguments and errors as of `train`."""
    prepared, run = _prepare(config, environment, resume, "sft")
    return _learn(prepared, observer, run)


def _prepare(
    config: RunConfig, environment: Environment | None, resume: str | None, kind: RunKind
) -> tuple[Prepared, Run | None]:
    run: Run | None = None
    if resume is not None:
        run = Store.open(Path(config.workspace)).find_run(resume)
        config = _saved_config(run, kind)
    prepared = Prepared.of(config, kind, environment)
    learner_config(prepared.config, prepared.environment.limits.max_tokens)
    return prepared, run


def _learn(prepared: Prepared, observer: Observer, run: Run | None) -> RunResult:
    config, store, kind = prepared.config, prepared.store, prepared.kind
    traces = find_traces(config, prepared.environment, store) if kind == "sft" else []
    with managed_run(prepared, run) as run_id:
        recorder = Recorder(store, run_id, observer, keep_payloads=config.training.keep_rollouts != "none")
        checkpoints = Checkpoints(run_folder(store, run_id) / "checkpoints", keep_best=config.training.keep_best)
        latest = checkpoints.latest() if run is not None else None
        step = latest.step if latest is not None else 0
        if run is not None:
            lost = store.truncate_run(run_id, step)
            checkpoints.truncate(step)
            recorder.note("info", f"resumed from step {step}", data={"truncated": lost})
        recorder.tell(RunStarted(run_id, kind, config.training.steps, step))
        with build_runtime(config, prepared.environment, find_model(config, store)) as runtime:
            recorder.problems(runtime.problems)
            work = _work(runtime, recorder, checkpoints, traces, kind, latest)
            drive(store, run_id, work, f"etude {kind} --resume {run_id}")
        kept = checkpoints.best() or checkpoints.latest()
        return RunResult(run_id, run_folder(store, run_id), kept.path / "model" if kept else None)


def _work(
    runtime: Runtime,
    recorder: Recorder,
    checkpoints: Checkpoints,
    traces: Sequence[Trace],
    kind: str,
    latest: Checkpoint | None,
) -> Coroutine[Any, Any, None]:
    """Made after the model is loaded, which is when torch may be imported."""
    if kind == "sft":
        from etude.training.warmstart import WarmStart

        return WarmStart(runtime, recorder, checkpoints, traces, latest).run()
    from etude.training.loop import Trainer

    return Trainer(runtime, recorder, checkpoints, latest).run()


def _saved_config(run: Run, kind: str) -> RunConfig:
    if run.kind != kind:
        raise ConfigError(f"{run.id} is a run of kind {run.kind}; `etude {kind} --resume` goes on with {kind} runs")
    if run.status == "succeeded":
        raise ConfigError(f"{run.id} has ended (succeeded); start a new run with model.name=run:{run.id} to go further")
    return parse_config(run.config)


def drive(store: Store, run_id: str, main: Coroutine[Any, Any, None], resume_command: str | None = None) -> None:
    """Runs the coroutine; Ctrl-C marks the run cancelled and raises RunCancelled within two seconds."""
    message = f"stopped; {run_id} is marked cancelled."
    if resume_command is not None:
        message += f" Go on with: {resume_command}"
    alive = _with_heartbeat(store, run_id, main)
    run_until_stopped(alive, message, on_hard_stop=lambda: _mark_cancelled(store, run_id))


async def _with_heartbeat(store: Store, run_id: str, main: Coroutine[Any, Any, None]) -> None:
    """Other hosts that share the workspace cannot see this process: they go by its heartbeat."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_EVERY_S)
            store.heartbeat(run_id)

    beating = asyncio.create_task(beat(), name="heartbeat")
    try:
        await main
    finally:
        beating.cancel()


def _mark_cancelled(store: Store, run_id: str) -> None:
    """From another thread, while the main one may hold the store: a connection of its own."""
    with Store.open(store.workspace) as own:
        own.set_status(run_id, "cancelled")


@contextmanager
def managed_run(prepared: Prepared, run: Run | None = None) -> Iterator[str]:
    """Creates the run (or goes on with it) and records how it ended: succeeded, cancelled or failed."""
    config, store = prepared.config, prepared.store
    if run is None:
        run_id = store.create_run(
            prepared.kind,
            name=config.name,
            environment=prepared.environment.name,
            model=prepared.model,
            config=config.model_dump(mode="json"),
        )
        folder = run_folder(store, run_id)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
    else:
        run_id = run.id
        store.resume_run(run_id)
    try:
        yield run_id
    except (RunCancelled, KeyboardInterrupt):
        store.set_status(run_id, "cancelled")
        raise
    except BaseException as error:
        store.set_status(run_id, "failed", error=f"{type(error).__name__}: {error}")
        raise
    store.set_status(run_id, "succeeded")
