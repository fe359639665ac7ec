"""Stopping on Ctrl-C (or SIGTERM) within two seconds, whatever a thread or a tool is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from etude.errors import RunCancelled

T = TypeVar("T")
GRACE_S = 1.2
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_until_stopped(main: Coroutine[Any, Any, T], message: str, on_hard_stop: Callable[[], None]) -> T:
    """asyncio.run, but SIGINT and SIGTERM cancel `main`, which then cleans up; raises RunCancelled(message).

    A forward pass in a thread cannot be interrupted, and a tool may refuse to be: where the clean-up takes longer than
    GRACE_S, or on a second signal, on_hard_stop records what happened and the process ends with exit code 130.
    Checkpoints are atomic, so nothing that was saved is lost. Outside of the main thread signals are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(main)
    stopper = _Stopper(on_hard_stop)
    with stopper.listening():
        try:
            return asyncio.run(stopper.watch(main))
        except asyncio.CancelledError:
            if stopper.stopped:
                raise RunCancelled(message) from None
            raise


class _Stopper:
    """What a signal does. Its handler is Python's, not the event loop's: a tool may be blocking the loop."""

    def __init__(self, on_hard_stop: Callable[[], None]) -> None:
        self.stopped = False
        self._on_hard_stop = on_hard_stop
        self._cancel: Callable[[], object] | None = None  # None until there is something to cancel
        self._timer = threading.Timer(GRACE_S, self._end)  # runs on while asyncio.run waits for its own threads
        self._timer.daemon = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {name: signal.signal(name, self._handle) for name in SIGNALS}
        try:
            yield
        finally:
            self._timer.cancel()
            for name, handler in before.items():
                signal.signal(name, handler)

    async def watch(self, main: Coroutine[Any, Any, T]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.stopped:
            main.close()
            raise asyncio.CancelledError
        return await main

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            self._end()
        self.stopped = True
        self._timer.start()
        if self._cancel is not None:
            self._cancel()

    def _end(self) -> None:
        try:
            self._on_hard_stop()
        finally:
            os._exit(RunCancelled.exit_code)
