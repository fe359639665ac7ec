"""The engine behind the protocol: calls join and leave, version changes, lock-step, failures, ends. No call hangs."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
from torch import nn

from etude.engine.local import EngineCore, LocalEngine
from etude.engine.protocol import Engine, Sample, SampleRequest
from etude.errors import ModelError
from etude.model.attention import use_etude_attention
from etude.model.tiny import tiny_model, tiny_tokenizer

CONTEXT = 256
T = TypeVar("T")


@pytest.fixture(scope="module")
def model() -> nn.Module:
    made = tiny_model(tiny_tokenizer(vocab_size=300), hidden=32)
    use_etude_attention(made)
    return made


@pytest.fixture
def compute() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def ask(rollout: str, prompt: Sequence[int] = (1, 2, 3), tokens: int = 10, seed: int = 0) -> SampleRequest:
    return SampleRequest(rollout, tuple(prompt), tokens, frozenset(), seed=seed)


def make_engine(
    model: nn.Module,
    compute: ThreadPoolExecutor,
    *,
    lockstep: bool = False,
    slots: int = 4,
    version_of: Callable[[], int] = lambda: 0,
) -> LocalEngine:
    return LocalEngine(
        model, max_slots=slots, max_context=CONTEXT, lockstep=lockstep, version_of=version_of, compute=compute
    )


def run(work: Awaitable[T]) -> T:
    """Nothing here may take long, so that a hang is a failure and not a hang."""

    async def within() -> T:
        return await asyncio.wait_for(work, timeout=120)

    return asyncio.run(within())


class Gate:
    """Stops a model's forward pass until it is opened, and can make it fail."""

    def __init__(self, model: nn.Module) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self._hook = model.get_input_embeddings().register_forward_hook(self._stop)  # type: ignore[operator]

    def _stop(self, *_: object) -> None:
        self.reached.set()
        assert self.opened.wait(60)
        if self.error is not None:
            raise self.error

    async def wait_until_reached(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.reached.wait, 60)

    def remove(self) -> None:
        self.opened.set()
        self._hook.remove()


@pytest.fixture
def gate(model: nn.Module) -> Iterator[Gate]:
    made = Gate(model)
    yield made
    made.remove()


async def agent(engine: Engine, rollout: str, turns: int = 3, seed: int = 0) -> list[Sample]:
    """Samples some turns, with pauses of random length between."""
    engine.open(rollout)
    try:
        held, samples = [1, 2, 3, *range(20)], []
        for turn in range(turns):
            samples.append(await engine.sample(ask(rollout, held, tokens=5 + seed % 7, seed=100 * seed + turn)))
            held += [*samples[-1].tokens, 7, 8]
            for _ in range(random.randrange(20)):
                await asyncio.sleep(0)
        return samples
    finally:
        engine.close(rollout)


def test_many_agents_get_what_each_would_get_alone(model: nn.Module, compute: ThreadPoolExecutor) -> None:
    async def together() -> list[list[Sample]]:
        engine: Engine = make_engine(model, compute)
        samples = await asyncio.gather(*(agent(engine, f"r{i}", seed=i) for i in range(9)))
        await engine.aclose()
        return samples

    async def alone(i: int) -> list[Sample]:
        return await agent(make_engine(model, compute), f"r{i}", seed=i)

    for i, samples in enumerate(run(together())):
        for sample, expected in zip(samples, run(alone(i)), strict=True):
            assert sample.tokens == expected.tokens
            assert sample.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


@pytest.mark.parametrize("slots", [2, 16])
def test_lockstep_gives_the_same_bits_in_every_order_of_arrival(
    model: nn.Module, compute: ThreadPoolExecutor, slots: int
) -> None:
    async def play(order: list[int]) -> dict[int, list[Sample]]:
        engine = make_engine(model, compute, lockstep=True, slots=slots)
        samples = await asyncio.gather(*(agent(engine, f"r{i}", turns=1 + i % 3, seed=i) for i in order))
        return dict(zip(order, samples, strict=True))

    expected = run(play(list(range(6))))
    for shuffle in range(3):
        order = random.Random(shuffle).sample(range(6), 6)
        assert run(play(order)) == expected


def test_a_lockstep_wave_is_the_core_s_generate(model: nn.Module, compute: ThreadPoolExecutor) -> None:
    requests = [ask(f"r{i}", range(1, 5 + i), seed=i) for i in range(5)]

    async def wave() -> list[Sample]:
        engine = make_engine(model, compute, lockstep=True)
        for request in requests:
            engine.open(request.rollout)
        return await asyncio.gather(*map(engine.sample, reversed(requests)))

    core = EngineCore(model, max_slots=4, max_context=CONTEXT, version_of=lambda: 0)
    assert run(wave())[::-1] == core.generate(requests)


def test_a_lockstep_wave_waits_for_every_open_rollout_and_answers_in_order(
    model: nn.Module, compute: ThreadPoolExecutor
) -> None:
    async def check() -> None:
        engine = make_engine(model, compute, lockstep=True)
        answered: list[str] = []

        async def sample(rollout: str) -> None:
            await engine.sample(ask(rollout, tokens=1 if rollout == "c" else 9))
            answered.append(rollout)

        for rollout in "abcd":
            engine.open(rollout)
        first = [asyncio.create_task(sample(rollout)) for rollout in "cab"]
        for _ in range(50):
            await asyncio.sleep(0)
        assert engine.stats.steps == 0
        engine.close("d")  # which leaves nobody to wait for
        await asyncio.gather(*first)
        assert answered == ["a", "b", "c"]

    run(check())


def test_a_cancelled_sample_leaves_at_the_next_step_and_its_slot_stays_valid(
    model: nn.Module, compute: ThreadPoolExecutor
) -> None:
    async def check() -> None:
        engine = make_engine(model, compute, slots=1)
        engine.open("long")
        engine.open("next")
        task = asyncio.create_task(engine.sample(ask("long", range(40), tokens=200)))
        while engine.stats.decode_tokens < 5:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(engine.sample(ask("next", [9, 9])))  # there is one slot
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await waiting
        assert engine.stats.decode_tokens < 200
        assert engine.stats.evictions == 1

        again = asyncio.create_task(engine.sample(ask("next", [9, 9], tokens=200)))
        while engine.stats.decode_tokens < 30:
            await asyncio.sleep(0)
        again.cancel()
        await asyncio.wait([again])
        engine.stats.take()
        repeated = await engine.sample(ask("next", [9, 9], tokens=3))
        assert engine.stats.take()["kept_tokens"] == 1
        assert repeated.tokens == (await alone(ask("next", [9, 9], tokens=3))).tokens

    async def alone(request: SampleRequest) -> Sample:
        fresh = make_engine(model, compute)
        fresh.open(request.rollout)
        return await fresh.sample(request)

    run(check())


def test_cancelling_a_lockstep_call_lets_the_others_go_on(
    model: nn.Module, compute: ThreadPoolExecutor, gate: Gate
) -> None:
    async def check() -> None:
        engine = make_engine(model, compute, lockstep=True)
        engine.open("a")
        engine.open("b")
        tasks = [asyncio.create_task(engine.sample(ask(rollout))) for rollout in "ab"]
        await gate.wait_until_reached()
        tasks[0].cancel()
        await asyncio.sleep(0)
        gate.opened.set()
        sample = await tasks[1]
        assert len(sample.tokens) == 10
        engine.close("a")
        await engine.sample(ask("b"))

    run(check())


def test_the_learner_steps_between_steps_and_tokens_know_their_version(
    model: nn.Module, compute: ThreadPoolExecutor
) -> None:
    versions = [0]

    def learn() -> None:
        versions[0] += 1

    async def check() -> None:
        engine = make_engine(model, compute, version_of=lambda: versions[0])
        engine.open("r")
        task = asyncio.create_task(engine.sample(ask("r", tokens=100)))
        for target in (5, 40):
            while engine.stats.decode_tokens < target:
                await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(compute, learn)
        sample = await task
        assert set(sample.versions) == {0, 1, 2}
        assert list(sample.versions) == sorted(sample.versions)
        assert engine.version == 2

    run(check())


def test_a_failure_of_the_model_reaches_every_caller_and_the_engine_goes_on(
    model: nn.Module, compute: ThreadPoolExecutor, gate: Gate
) -> None:
    async def check() -> None:
        engine = make_engine(model, compute, slots=2)
        for rollout in "abc":
            engine.open(rollout)
        tasks = [asyncio.create_task(engine.sample(ask(rollout))) for rollout in "abc"]  # the third has no slot yet
        await gate.wait_until_reached()
        gate.error = MemoryError("no room for 64 GB")
        gate.opened.set()
        failures = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(failure) for failure in failures] == ["sampling failed: no room for 64 GB"] * 3
        assert all(isinstance(failure, ModelError) for failure in failures)
        assert all(isinstance(failure.__cause__, MemoryError) for failure in failures)  # type: ignore[union-attr]
        gate.error = None
        assert len((await engine.sample(ask("a"))).tokens) == 10

    run(check())


def test_a_compute_thread_that_is_gone_is_an_error_and_not_a_hang(model: nn.Module) -> None:
    compute = ThreadPoolExecutor(1)
    compute.shutdown()

    async def check() -> None:
        engine = make_engine(model, compute)
        engine.open("r")
        with pytest.raises(ModelError, match="cannot schedule new futures after shutdown"):
            await engine.sample(ask("r"))

    run(check())


@pytest.mark.parametrize("lockstep", [False, True])
def test_closing_the_engine_ends_within_a_step_and_tells_who_waits(
    model: nn.Module, compute: ThreadPoolExecutor, gate: Gate, lockstep: bool
) -> None:
    async def check() -> None:
        engine = make_engine(model, compute, lockstep=lockstep)
        engine.open("r")
        task = asyncio.create_task(engine.sample(ask("r", tokens=250)))
        await gate.wait_until_reached()
        closing = asyncio.create_task(engine.aclose())
        await asyncio.sleep(0)
        gate.opened.set()
        await closing
        with pytest.raises(ModelError, match="the engine was closed"):
            await task
        assert engine.stats.steps == 1
        engine.close("r")
        with pytest.raises(ModelError, match="the engine is closed"):
            await engine.sample(ask("r"))
        await engine.aclose()

    run(check())


def test_a_loop_that_ends_stops_the_engine(model: nn.Module, compute: ThreadPoolExecutor) -> None:
    engine = make_engine(model, compute)
    engine.open("r")

    async def leave_while_it_samples() -> None:
        task = asyncio.create_task(engine.sample(ask("r", tokens=250)))
        while engine.stats.decode_tokens < 3:
            await asyncio.sleep(0)
        assert not task.done()

    run(leave_while_it_samples())
    compute.submit(int).result(timeout=60)  # the thread is free again
    assert engine.stats.decode_tokens < 250


def test_what_the_protocol_does_not_allow_is_refused(model: nn.Module, compute: ThreadPoolExecutor) -> None:
    async def check() -> None:
        engine = make_engine(model, compute)
        with pytest.raises(ValueError, match="'r' is not open"):
            await engine.sample(ask("r"))
        engine.open("r")
        with pytest.raises(ValueError, match="'r' is open already"):
            engine.open("r")
        with pytest.raises(ValueError, match="the prompt has 256 tokens"):
            await engine.sample(ask("r", [1] * CONTEXT))
        task = asyncio.create_task(engine.sample(ask("r")))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="'r' is sampling already"):
            await engine.sample(ask("r"))
        with pytest.raises(ValueError, match="'r' is sampling: cancel that"):
            engine.close("r")
        await task
        engine.close("r")
        engine.open("r")

    run(check())


def test_weights_may_be_trained_after_they_sampled(model: nn.Module, compute: ThreadPoolExecutor) -> None:
    """Nothing that inference leaves behind may enter autograd."""
    from etude.model.attention import output_head, packed_hidden

    async def sample() -> Sample:
        engine = make_engine(model, compute)
        engine.open("r")
        return await engine.sample(ask("r"))

    tokens = torch.tensor(run(sample()).tokens)
    output_head(model)(packed_hidden(model, tokens, [len(tokens)])).logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.zero_grad()
