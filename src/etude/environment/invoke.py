"""Calling the user's code from the event loop, whatever that code does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any


async def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The result of a sync or async function. A sync one runs in a thread of its own.

    Raises what the function raises; SystemExit becomes RuntimeError, so that user code cannot end the process by the
    way. Cancelling ends the wait at once: a thread cannot be stopped, it is left to itself.
    """
    if is_async(function):
        result = function(*args, **kwargs)
    else:
        result = await _in_thread(functools.partial(function, *args, **kwargs))
    if not inspect.isawaitable(result):
        return result
    try:
        return await result
    except SystemExit as error:
        raise RuntimeError(f"it called sys.exit({error.code!r})") from error


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Like asyncio.to_thread, but in a daemon thread of its own: the default executor joins its threads at exit, so
    one function that never returns would keep the process alive for ever, and would take a worker from the others."""
    future: concurrent.futures.Future[tuple[Any, Exception | None]] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # so that cancelling the wait leaves it open for the thread to fill
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result((context.run(work), None))
        except Exception as error:  # noqa: BLE001 - raised again below
            # As a value: asyncio's futures refuse StopIteration as an exception, and the wait would never end.
            future.set_result((None, error))
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like end neither this thread nor the process
            future.set_result((None, RuntimeError(f"it raised {error!r}")))

    threading.Thread(target=run, name="etude-user-code", daemon=True).start()
    result, error = await asyncio.wrap_future(future)
    if error is not None:
        raise error
    return result
