"""Looking until there is something: at every step of this process, when told, and now and then."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.listening import Listener
from windlass.broker.postgres.watching import FIRST_LOOK

_T = TypeVar("_T")


class Looking:
    """Those of this process who wait for what others do."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._closed = False

    def close(self) -> None:
        """Let everybody go."""
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
        """Read until it is enough, or for so long."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            since, looked_at = self._bell.rung, loop.time()
            found = await read()
            now = loop.time()
            left = start + timeout - now
            if enough(found) or left <= 0 or self._closed:
                return found
            # A tenth of the time already waited: whoever waits for long can wait a little longer.
            pause = max(FIRST_LOOK, (now - start) / 10)
            if listener is not None:
                pause = listener.pause(looked_at, pause, floor)
            await self._bell.heard(since, min(left, floor, pause))
            if self._closed:
                return found
