"""What a process has open of a namespace on one event loop: a wire and a listener, closed when that loop
ends.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from windlass.broker.redis.listener import Listener
from windlass.broker.redis.url import Location
from windlass.broker.redis.wire import Wire


class LoopConnections:
    """What belongs to the running loop. Nobody has to close it: `asyncio.run` does, and all else
    that ends loops in order.
    """

    def __init__(self, location: Location, namespace: str, key: bytes, *, gone: Callable[[], object]) -> None:
        """`gone` is called when the loop ends."""
        self.wire = Wire(location, key)
        self.listener = Listener(location, self.wire, namespace)
        self.wire.on_go = self.listener.go
        self._gone = gone
        self._closing: asyncio.Task[None] | None = None
        # A loop that ends closes the async generators that were begun on it, and waits for them; nothing else
        # of asyncio tells of that. To begin one is no more than to ask for its first value.
        self._end = _at_the_end(self._close)
        with contextlib.suppress(StopIteration):
            self._end.asend(None).send(None)

    async def _close(self) -> None:
        self._gone()
        # A loop that ends cancels the task that closes. Nobody else would close the rest.
        try:
            await self.listener.close()
        finally:
            await self.wire.close()

    async def close(self) -> None:
        """Wake all waiters, and close the connections."""
        await self._end.aclose()

    def begin_to_close(self) -> None:
        """The same, called from another thread's loop, which cannot wait for this one."""
        self.listener.let_go()
        if self._closing is None:
            self._closing = asyncio.create_task(self.close())


async def _at_the_end(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()
