"""What a run works with, built from its configuration: environment first, the model last.

Everything that can be refused without the model is refused before it loads.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from etude.engine.remote.settings import EndpointSettings
from etude.environment.environment import Environment, load_environment
from etude.environment.scenario import Scenario
from etude.errors import ConfigError
from etude.model.load import LoadedModel, load_model
from etude.model.lora import LoraSettings
from etude.model.source import ModelSource, resolve_model
from etude.rollout.chat import ChatFormat, chat_format
from etude.rollout.template_chat import TemplateChat
from etude.store.records import RunKind
from etude.store.store import Store
from etude.training.config import ModelConfig, RunConfig

T = TypeVar("T")
LEARNED: tuple[RunKind, ...] = ("train", "sft")  # kinds of runs that have checkpoints
PLAYED: tuple[RunKind, ...] = ("train", "eval", "baseline")  # kinds of runs that have rollouts


def build_environment(config: RunConfig) -> Environment:
    """Raises ConfigError or DataError."""
    if config.environment.entry.startswith("<"):
        raise ConfigError(
            f"this run was started from Python with the environment {config.environment.entry}, which no file names: "
            "go on from Python too (etude.train(environment, resume=...), etude.regrade(environment, run=...))"
        )
    return load_environment(config.environment.entry, config.environment.args)


def pin_runs(config: RunConfig, store: Store) -> RunConfig:
    """'run:last' and other short names of runs, replaced by whole ids: what they mean must not change when this run,
    or a later one, becomes the last. "last" is the last run that can have what is asked of it: checkpoints for a
    model, rollouts for traces. Raises ConfigError."""

    def whole(name: str | None, kinds: tuple[RunKind, ...]) -> str | None:
        if name is None or not name.startswith("run:"):
            return name
        text = name.removeprefix("run:")
        return f"run:{store.find_run(text, kinds=kinds if text == 'last' else None).id}"

    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"name": whole(config.model.name, LEARNED)}),
            "sft": config.sft.model_copy(update={"traces": whole(config.sft.traces, PLAYED)}),
        }
    )


def find_model(config: RunConfig, store: Store) -> ModelSource:
    """Which weights `model.name` means; 'run:RUN' is that run's best checkpoint. Raises ModelError, ConfigError."""
    return resolve_model(model_name(config.model, store))


def model_name(model: ModelConfig, store: Store) -> str:
    if not model.name.startswith("run:"):
        return model.name
    from etude.training.checkpoints import Checkpoints

    run = store.find_run(model.name.removeprefix("run:"))
    best = Checkpoints(run_folder(store, run.id) / "checkpoints").chosen()
    if best is None:
        raise ConfigError(f"run {run.id} has no checkpoint, so {model.name!r} names no weights")
    return str(best.path / "model")


def endpoint_settings(config: RunConfig) -> EndpointSettings:
    """Of a configuration whose model.endpoint is set; as many connections as rollouts."""
    model, remote = config.model, config.model.remote
    if model.endpoint is None:
        raise ValueError("model.endpoint is not set")
    return EndpointSettings(
        url=model.endpoint,
        model=model.name,
        api_key_env=remote.api_key_env,
        connections=config.sampling.max_concurrent,
        requests_per_minute=remote.requests_per_minute,
        timeout_s=remote.timeout_s,
        max_retries=remote.max_retries,
        max_tokens_field=remote.max_tokens_field,
        prompt_price=remote.price_per_million_prompt_tokens,
        completion_price=remote.price_per_million_completion_tokens,
        extra=remote.extra_body,
        cache=Path(config.workspace) / "cache" / "replies.db" if remote.cache else None,
    )


def run_folder(store: Store, run_id: str) -> Path:
    return store.workspace / "runs" / run_id


@dataclass
class Runtime:
    """A loaded model with what turns it into an agent. compute: the one thread on which weights are read or changed."""

    config: RunConfig
    environment: Environment
    loaded: LoadedModel
    chat: ChatFormat
    compute: ThreadPoolExecutor

    @property
    def problems(self) -> tuple[str, ...]:
        """What the model's own chat template does to a conversation, in words for a person."""
        return self.chat.report.problems if isinstance(self.chat, TemplateChat) else ()

    async def in_compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.compute, work)


@asynccontextmanager
async def open_runtime(config: RunConfig, environment: Environment, source: ModelSource) -> AsyncIterator[Runtime]:
    """The model is loaded on the compute thread, as it is used there: the event loop, and Ctrl-C, need not wait. At the
    end the thread's last work is waited for, so that nothing is written after the run has ended."""
    compute = ThreadPoolExecutor(1, thread_name_prefix="compute")
    try:
        loading = partial(_build_runtime, config, environment, source, compute)
        yield await asyncio.get_running_loop().run_in_executor(compute, loading)
    finally:
        compute.shutdown(wait=True, cancel_futures=True)


def _build_runtime(
    config: RunConfig, environment: Environment, source: ModelSource, compute: ThreadPoolExecutor
) -> Runtime:
    """Loads the model. Seeds every global generator, so that what libraries draw is the run's too."""
    import numpy as np
    import torch
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # a bar for each loaded or saved checkpoint would drown the run's own
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    random.seed(config.seed)
    np.random.seed(config.seed % 2**32)
    torch.manual_seed(config.seed)
    if config.deterministic:
        torch.use_deterministic_algorithms(True)
    section = config.model
    loaded = load_model(source, dtype=section.dtype, device=section.device, lora=lora_settings(section))
    chat = chat_format(loaded.tokenizer, section.chat)
    return Runtime(config, environment, loaded, chat, compute)


def lora_settings(model: ModelConfig) -> LoraSettings | None:
    """None where all weights train."""
    lora = model.lora
    return LoraSettings(rank=lora.rank, alpha=lora.alpha, targets=lora.targets) if lora.rank else None


def pick(environment: Environment, split: str, count: int | None) -> list[Scenario]:
    """The first `count` scenarios of a split (all where None): always the same ones, so that runs compare."""
    scenarios = list(environment.scenarios_of(split))
    return scenarios if count is None else scenarios[:count]


def peak_memory_gib() -> float:
    """The most memory that this process has held, in GiB (ru_maxrss counts KiB on Linux, bytes on macOS)."""
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
