"""Runs from start to end: made in the store, resumable, and marked with how they ended. What the command line and
`etude.train` call."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etude.engine.remote.settings import EndpointSettings, read_key
from etude.environment.environment import Environment
from etude.errors import ConfigError, RunCancelled, RunPaused, StorageError
from etude.rollout.chat import check_chat_name
from etude.rollout.traces import Trace
from etude.store.records import Run, RunKind
from etude.store.store import Store
from etude.training.checkpoints import Checkpoint, Checkpoints
from etude.training.config import RunConfig, parse_config
from etude.training.events import Note, Observer, RunStarted, silent
from etude.training.learner_config import learner_config
from etude.training.recorder import Recorder
from etude.training.runtime import (
    LEARNED,
    build_environment,
    endpoint_settings,
    find_model,
    open_runtime,
    pin_runs,
    run_folder,
)
from etude.training.stop import run_until_stopped
from etude.training.traces import find_traces

if TYPE_CHECKING:
    from etude.training.loop import Trainer
    from etude.training.warmstart import WarmStart

HEARTBEAT_EVERY_S = 15.0
HARD_STOP_WAIT_S = 0.3


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
    from_code: bool = False  # the environment was given by a program, and not named by the configuration

    @classmethod
    def of(cls, config: RunConfig, kind: RunKind, environment: Environment | None = None) -> Prepared:
        """Raises ConfigError, DataError or ModelError before any model loads."""
        made = build_environment(config) if environment is None else environment
        store = Store.open(Path(config.workspace))
        if kind == "eval" and config.eval.policy != "model":
            if config.eval.policy not in made.policies:
                known = ", ".join(["model", *made.policies])
                raise ConfigError(f"environment {made.name} has no policy {config.eval.policy!r}; there are: {known}")
            return cls(config, made, store, kind, f"policy {config.eval.policy}", environment is not None)
        if config.model.endpoint is not None:
            settings = endpoint_settings(config)
            _refuse_endpoint(settings, kind)
            return cls(config, made, store, kind, f"{settings.model} at {settings.host}", environment is not None)
        check_chat_name(config.model.chat)
        config = pin_runs(config, store)
        find_model(config, store)
        return cls(config, made, store, kind, config.model.name, environment is not None)


def _refuse_endpoint(settings: EndpointSettings, kind: RunKind) -> None:
    """Raises ConfigError for what an endpoint cannot do, and where its key is missing."""
    if kind in LEARNED:
        raise ConfigError(
            f"`etude {kind}` changes weights, and those behind {settings.url} cannot be changed: take out "
            "model.endpoint and name local weights in model.name (`etude eval` measures endpoints)"
        )
    read_key(settings)


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
    config, run = resumed(config, kind, resume)
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
        drive(recorder, _session(prepared, recorder, checkpoints, traces, latest), stopped_message(prepared, run_id))
        kept = checkpoints.chosen()
        return RunResult(run_id, run_folder(store, run_id), kept.path / "model" if kept else None)


async def _session(
    prepared: Prepared,
    recorder: Recorder,
    checkpoints: Checkpoints,
    traces: Sequence[Trace],
    latest: Checkpoint | None,
) -> None:
    """Everything between the start of the run and its end."""
    source = find_model(prepared.config, prepared.store)
    async with open_runtime(prepared.config, prepared.environment, source) as runtime:
        recorder.problems(runtime.problems)

        def make() -> Trainer | WarmStart:  # imports torch
            if prepared.kind == "sft":
                from etude.training.warmstart import WarmStart

                return WarmStart(runtime, recorder, checkpoints, traces, latest)
            from etude.training.loop import Trainer

            return Trainer(runtime, recorder, checkpoints, latest)

        work = await runtime.in_compute(make)
        await work.run()


def resumed(config: RunConfig, kind: RunKind, resume: str | None) -> tuple[RunConfig, Run | None]:
    """The run to go on with, and the configuration that it was started with; `config` and None where `resume` is None.
    Raises ConfigError where there is none, or it cannot go on."""
    if resume is None:
        return config, None
    with Store.open(Path(config.workspace)) as store:
        run = store.find_run(resume, kinds=[kind] if resume == "last" else None)
    return _saved_config(run, kind).model_copy(update={"workspace": config.workspace}), run  # it may have moved


def _saved_config(run: Run, kind: RunKind) -> RunConfig:
    if run.kind != kind:
        raise ConfigError(f"{run.id} is a run of kind {run.kind}; `etude {kind} --resume` goes on with {kind} runs")
    if run.status == "succeeded":
        raise ConfigError(f"{run.id} has ended (succeeded); start a new run with model.name=run:{run.id} to go further")
    return parse_config(run.config)


def stopped_message(prepared: Prepared, run_id: str) -> str:
    """What a person who stopped a run is told."""
    message, kind, workspace = f"stopped; {run_id} is marked cancelled.", prepared.kind, prepared.config.workspace
    if kind not in ("train", "sft", "baseline"):
        return message
    if prepared.from_code:
        return f'{message} Go on with: etude.{kind}(..., resume="{run_id}")'
    where = "" if workspace == RunConfig.model_fields["workspace"].default else f" --workspace {shlex.quote(workspace)}"
    return f"{message} Go on with: etude {kind} --resume {run_id}{where}"


def drive(recorder: Recorder, main: Coroutine[Any, Any, None], message: str) -> None:
    """Runs the coroutine; Ctrl-C raises RunCancelled(message) within two seconds, or marks the run cancelled, tells the
    observer so, and ends the process."""

    def on_hard_stop() -> None:
        # From another thread, while the main one may hold the store: a connection of its own, and no long wait.
        with Store.open(recorder.store.workspace, busy_timeout_s=HARD_STOP_WAIT_S) as own:
            own.set_status(recorder.run_id, "cancelled")
        recorder.tell(Note("warn", message, "stopped"))

    run_until_stopped(_with_heartbeat(recorder.store, recorder.run_id, main), message, on_hard_stop)


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
        await asyncio.wait([beating])
        if not beating.cancelled():  # the store failed it, and will tell whoever writes next
            beating.exception()


@contextmanager
def managed_run(prepared: Prepared, run: Run | None = None) -> Iterator[str]:
    """Creates the run (or goes on with it) and records how it ended: succeeded, cancelled or failed."""
    store = prepared.store
    run_id = _create_run(prepared) if run is None else run.id
    if run is not None:
        store.resume_run(run_id)
    with recorded_end(store, run_id, stopped_message(prepared, run_id)):
        if run is None:
            _save_config(prepared, run_id)
        yield run_id


@contextmanager
def recorded_end(store: Store, run_id: str, message: str) -> Iterator[None]:
    """Records how a run that has begun ends. message: for the person who stopped it, in a RunCancelled."""
    try:
        yield
    except RunPaused as pause:
        _mark(store, run_id, "cancelled", pause)
        raise RunPaused(f"{pause}\n{message.removeprefix('stopped; ')}") from None
    except (RunCancelled, KeyboardInterrupt) as stop:
        _mark(store, run_id, "cancelled", stop)
        raise RunCancelled(message) from None
    except BaseException as error:
        _mark(store, run_id, "failed", error)
        raise
    store.set_status(run_id, "succeeded")


def _create_run(prepared: Prepared) -> str:
    return prepared.store.create_run(
        prepared.kind,
        name=prepared.config.name,
        environment=prepared.environment.name,
        model=prepared.model,
        config=prepared.config.model_dump(mode="json"),
    )


def _save_config(prepared: Prepared, run_id: str) -> None:
    """For people: what is resumed is the configuration in the store. Raises StorageError."""
    folder = run_folder(prepared.store, run_id)
    try:
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(prepared.config.to_yaml(), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write the run's folder {folder}: {error.strerror or error}") from error


def _mark(store: Store, run_id: str, status: Literal["cancelled", "failed"], error: BaseException) -> None:
    """Records how the run ended. Where the store itself is what failed, the first error says so; a run that could not
    be marked shows as interrupted once its process is gone, and is as resumable."""
    try:
        store.set_status(run_id, status, error=None if status == "cancelled" else f"{type(error).__name__}: {error}")
    except StorageError as second:
        error.add_note(f"and the run could not be marked {status}: {second}")
