"""Polling: read until there is something. When: after each step of this process, when told, now and then."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.finish_waits import FIRST_LOOK
from windlass.broker.postgres.listening import Listener

_T = TypeVar("_T")


class Polling:
    """The waits of this process for what other processes do."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._closed = False

    def close(self) -> None:
        """End all waits."""
        self._closed = True
        self._bell.ring()

    async def until(
        self,
        read: Callable[[], Awaitable[_T]],
        enough: Callable[[_T], bool],
        timeout: float,
        floor: float,
        listener: Listener | None = None,
    ) -> _T:
        """Read until it is enough, or until the timeout."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            since, looked_at = self._bell.rung, loop.time()
            found = await read()
            now = loop.time()
            left = start + timeout - now
            if enough(found) or left <= 0 or self._closed:
                return found
            # A tenth of the time already waited: a long wait may be a little longer.
            pause = max(FIRST_LOOK, (now - start) / 10)
            if listener is not None:
                pause = listener.pause(looked_at, pause, floor)
            await self._bell.heard(since, min(left, floor, pause))
            if self._closed:
                return found
