"""Stopping on Ctrl-C (or SIGTERM) within two seconds, whatever a compute thread is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from etude.errors import RunCancelled

T = TypeVar("T")
GRACE_S = 1.5


def run_until_stopped(main: Coroutine[Any, Any, T], message: str, on_hard_stop: Callable[[], None]) -> T:
    """asyncio.run, but SIGINT and SIGTERM cancel `main`, which then cleans up; raises RunCancelled(message).

    A forward pass in a thread cannot be interrupted: where the clean-up takes longer than GRACE_S, or on a second
    signal, on_hard_stop records what happened and the process ends with exit code 130. Checkpoints are atomic, so
    nothing that was saved is lost. Outside of the main thread signals are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(main)

    def hard_stop() -> None:
        on_hard_stop()
        os._exit(RunCancelled.exit_code)

    timer = threading.Timer(GRACE_S, hard_stop)  # runs on while asyncio.run waits for its own threads
    timer.daemon = True

    async def supervised() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        stopped = False

        def stop() -> None:
            nonlocal stopped
            if stopped:
                hard_stop()
            stopped = True
            timer.start()
            if task is not None:
                task.cancel()

        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, stop)
        try:
            return await main
        except asyncio.CancelledError:
            if stopped:
                raise RunCancelled(message) from None
            raise
        finally:
            for name in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(name)

    try:
        return asyncio.run(supervised())
    finally:
        timer.cancel()
