"""The local engine: the synchronous core behind the asynchronous protocol, on the thread that also trains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from torch import nn

from etude.engine.local.core import EngineCore
from etude.engine.local.stats import EngineStats
from etude.engine.local.turn import Turn
from etude.engine.protocol import Sample, SampleRequest
from etude.errors import ModelError

STEPS_PER_HOP = 16  # steps on the compute thread before the event loop is asked again; less where something happened


@dataclass(slots=True, eq=False)
class _Call:
    """One `sample` that waits. turn: None until it was handed to the core."""

    request: SampleRequest
    future: asyncio.Future[Sample]
    turn: Turn | None = None


class LocalEngine:
    """`etude.engine.protocol.Engine` in this process: sampling from the weights that the learner trains.

    Steps run on `compute`, an executor of one thread on which the learner steps too, so that weights change only
    between steps. A task drives them while there are calls; between two hops to that thread, and only then, calls join
    and leave. A rollout keeps its KV cache when the version changes.

    In lock-step, a wave starts when every open rollout waits in `sample`; it runs to completion in the order of the
    rollouts' keys and is answered in that order, so that its bits depend on its requests alone.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        max_slots: int,
        max_context: int,
        lockstep: bool,
        version_of: Callable[[], int],
        compute: Executor,
    ) -> None:
        """model: with Etude's attention, in evaluation mode. max_slots: rollouts that are sampled at once and whose
        cache is kept; more may be open. max_context: tokens of a prompt and its sample. version_of: the policy version
        of the weights now."""
        self._core = EngineCore(model, max_slots=max_slots, max_context=max_context, version_of=version_of)
        self._lockstep = lockstep
        self._compute = compute
        self._open: set[str] = set()
        self._calls: dict[str, _Call] = {}  # by rollout
        self._changes: list[Callable[[], None]] = []  # to the core, for when it is between hops
        self._driver: asyncio.Task[None] | None = None
        self._news = False
        self._closed = False

    @property
    def version(self) -> int:
        return self._core.version

    @property
    def stats(self) -> EngineStats:
        return self._core.stats

    def open(self, rollout: str) -> None:
        """Raises ValueError where it is open already."""
        if rollout in self._open:
            raise ValueError(f"rollout {rollout!r} is open already")
        self._open.add(rollout)

    def close(self, rollout: str) -> None:
        """Raises ValueError while it samples."""
        if rollout in self._calls:
            raise ValueError(f"rollout {rollout!r} is sampling: cancel that before closing it")
        self._open.discard(rollout)
        self._changes.append(partial(self._core.close, rollout))
        self._wake()

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises ValueError for a request that cannot run, ModelError where the model fails or the engine is closed."""
        rollout = request.rollout
        if self._closed:
            raise ModelError("the engine is closed")
        if rollout not in self._open or rollout in self._calls:
            raise ValueError(f"rollout {rollout!r} is {'sampling already' if rollout in self._calls else 'not open'}")
        self._core.check(request)
        call = self._calls[rollout] = _Call(request, asyncio.get_running_loop().create_future())
        self._wake()
        try:
            return await call.future
        finally:
            del self._calls[rollout]
            if call.turn is not None and call.turn.sample is None:
                self._changes.append(partial(self._core.cancel, call.turn))
                self._wake()

    async def aclose(self) -> None:
        """End within one step. Calls that wait raise ModelError; the cache is given back."""
        self._closed = self._news = True
        if self._driver is not None and not self._driver.done():
            await asyncio.wait([self._driver])
        self._fail(ModelError("the engine was closed"))

    def _wake(self) -> None:
        """Something changed: the hop under way ends with its step. Where none is and a call waits, a driver starts."""
        self._news = True
        if self._calls and not self._closed and (self._driver is None or self._driver.done()):
            self._driver = asyncio.get_running_loop().create_task(self._drive(), name="etude local engine")

    async def _drive(self) -> None:
        """Runs while there is work, and touches the core only between hops."""
        loop = asyncio.get_running_loop()
        try:
            while self._calls and not self._closed:
                try:
                    if not self._admit():
                        return
                    await loop.run_in_executor(self._compute, self._hop)
                except Exception as error:  # noqa: BLE001 - whatever broke is told to every caller
                    self._fail(error)
                self._answer()
                await asyncio.sleep(0)  # callers that go on at once join the next hop
        except asyncio.CancelledError:  # the event loop is ending, and a step may still be running
            self._closed = self._news = True
            for call in self._calls.values():
                call.future.cancel()
            raise

    def _admit(self) -> bool:
        """Apply changes and hand calls to the core. False where there is nothing to run."""
        self._news = False
        changes, self._changes = self._changes, []
        for change in changes:
            change()
        waiting = [call for call in self._calls.values() if call.turn is None]
        if self._lockstep:
            complete = len(waiting) == len(self._open) and not self._core.busy
            waiting = sorted(waiting, key=_key) if complete else []
        for call in waiting:
            call.turn = self._core.submit(call.request)
        return self._core.busy

    def _hop(self) -> None:
        """On the compute thread: steps until a call can be answered, or something changed."""
        for _ in range(STEPS_PER_HOP):
            done = self._core.step()
            if self._news or not self._core.busy or (done and not self._lockstep):
                return

    def _answer(self) -> None:
        if self._lockstep and self._core.busy:
            return
        for call in sorted(self._calls.values(), key=_key):
            if call.turn is not None and call.turn.sample is not None and not call.future.done():
                call.future.set_result(call.turn.sample)

    def _fail(self, error: Exception) -> None:
        """The core's state is unknown: every call fails, and it starts afresh."""
        for call in self._calls.values():
            if not call.future.done():
                failure = ModelError(f"sampling failed: {error}")
                failure.__cause__ = error
                call.future.set_exception(failure)
        self._core.reset()


def _key(call: _Call) -> str:
    return call.request.rollout
