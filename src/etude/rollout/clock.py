"""The wall clock of one attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Clock:
    """The seconds that an attempt has left. It runs, except while somebody waits for what is not the attempt's doing:
    its turn at a busy endpoint, say. Made and used on the running event loop."""

    def __init__(self, seconds: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._deadline = self._now() + seconds
        self._timeout: asyncio.Timeout | None = None

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Raises TimeoutError where the time is over inside."""
        async with asyncio.timeout_at(self._deadline) as self._timeout:
            try:
                yield
            finally:
                self._timeout = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Inside `limit`: what happens here takes no time of the attempt. It needs a limit of its own."""
        started = self._now()
        self._reschedule(None)
        try:
            yield
        finally:
            self._deadline += self._now() - started
            self._reschedule(self._deadline)

    def spend(self, seconds: float) -> None:
        """Takes off what of a `stopped` stretch was the attempt's own. Raises TimeoutError where nothing is left."""
        self._deadline -= seconds
        if self._deadline <= self._now():
            raise TimeoutError
        self._reschedule(self._deadline)

    def _reschedule(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)
