"""When the next request may go out: so many a minute, and none while an endpoint has asked for quiet."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


class Pace:
    """Requests are spaced evenly: bursts are what makes endpoints answer 429. Who waits has its time reserved, in order
    of asking, so a wait ends after at most the number of those who wait times the space between two."""

    def __init__(self, requests_per_minute: float | None) -> None:
        self._space_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next = 0.0  # of the loop's clock
        self._quiet_until = 0.0

    async def wait(self) -> None:
        """Returns when the caller may send one request."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._space_s
        while at > now or self._quiet_until > now:
            await asyncio.sleep(max(at, self._quiet_until) - now)
            now = asyncio.get_running_loop().time()

    def hold(self, seconds: float) -> None:
        """Nobody sends anything for so long."""
        self._quiet_until = max(self._quiet_until, asyncio.get_running_loop().time() + seconds)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that the Retry-After header asks for, in either of its forms; 0 where it asks for nothing."""
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
