"""Whoever a configuration says is measured, as a `Player`: local weights, an endpoint, or a scripted policy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from etude.environment.environment import Environment
from etude.rollout.player import Player
from etude.rollout.scripted import MessagePlayer, voices_of
from etude.training.recorder import Recorder
from etude.training.run import Prepared
from etude.training.runtime import Runtime, endpoint_settings, find_model, open_runtime

if TYPE_CHECKING:
    from etude.engine.local import LocalEngine


@asynccontextmanager
async def open_player(prepared: Prepared, recorder: Recorder, temperature: float) -> AsyncIterator[Player]:
    """`eval.policy` (of an evaluation) comes first, then `model.endpoint`, then `model.name`. What makes the figures
    worth less is noted. Raises what loading the model, or the endpoint's settings, raise."""
    config = prepared.config
    if prepared.kind == "eval" and config.eval.policy != "model":
        yield _policy_player(prepared)
        return
    opened = _open_local if config.model.endpoint is None else _open_endpoint
    async with opened(prepared, recorder, temperature) as player:
        yield player


def _policy_player(prepared: Prepared) -> Player:
    """One rollout after the other: they are kept in the order of the scenarios, and so are traces made of them."""
    config, environment = prepared.config, prepared.environment
    return MessagePlayer(
        environment=environment,
        voices=voices_of(environment.policies[config.eval.policy]),
        seed=config.seed,
        max_retries=config.sampling.max_retries,
        max_concurrent=1,
    )


@asynccontextmanager
async def _open_endpoint(prepared: Prepared, recorder: Recorder, temperature: float) -> AsyncIterator[Player]:
    from etude.engine.remote.client import ChatClient  # imports an HTTP library
    from etude.rollout.endpoint import endpoint_voices

    config = prepared.config
    settings = endpoint_settings(config)
    priced = settings.prompt_price is not None and settings.completion_price is not None
    async with ChatClient(settings) as client:
        if client.has_key and settings.url.startswith("http:") and not settings.is_local:
            recorder.note("warn", f"the key goes to {settings.host} unencrypted: use https where you can")
        yield MessagePlayer(
            environment=prepared.environment,
            voices=endpoint_voices(client),
            seed=config.seed,
            temperature=temperature,
            max_retries=config.sampling.max_retries,
            max_concurrent=config.sampling.max_concurrent,
            figures=lambda: client.stats.figures(priced),
        )
        for problem in client.stats.problems():
            recorder.note("warn", problem, type="endpoint")


@asynccontextmanager
async def _open_local(prepared: Prepared, recorder: Recorder, temperature: float) -> AsyncIterator[Player]:
    config = prepared.config
    source = find_model(config, prepared.store)
    async with open_runtime(config, prepared.environment, source) as runtime:
        recorder.problems(runtime.problems)
        engine = await runtime.in_compute(partial(_make_engine, runtime))
        try:
            yield _local_player(runtime, prepared.environment, engine, temperature)
        finally:
            await engine.aclose()


def _local_player(runtime: Runtime, environment: Environment, engine: LocalEngine, temperature: float) -> Player:
    config = runtime.config
    return Player(
        environment=environment,
        engine=engine,
        chat=runtime.chat,
        seed=config.seed,
        temperature=temperature,
        max_retries=config.sampling.max_retries,
        max_concurrent=None if config.deterministic else config.sampling.max_concurrent,
    )


def _make_engine(runtime: Runtime) -> LocalEngine:
    from etude.training.loop import make_engine  # imports torch

    return make_engine(runtime, runtime.config.sampling.max_concurrent, lambda: 0)
