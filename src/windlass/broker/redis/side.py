"""What a process has open of a namespace on one event loop: a wire and an ear, closed when that loop ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from windlass.broker.redis.ear import Ear
from windlass.broker.redis.url import Place
from windlass.broker.redis.wire import Wire


class Side:
    """What belongs to the running loop. Whoever made it need not close it: `asyncio.run`, and whatever else
    ends loops in order, does.
    """

    def __init__(self, place: Place, namespace: str, key: bytes, *, gone: Callable[[], object]) -> None:
        """`gone` is called when the loop ends."""
        self.wire = Wire(place, key)
        self.ear = Ear(place, self.wire, namespace)
        self.wire.on_go = self.ear.go
        self._gone = gone
        self._closing: asyncio.Task[None] | None = None
        # A loop that ends closes the async generators that were begun on it, and waits for them; nothing else
        # of asyncio tells of that. To begin one is no more than to ask for its first value.
        self._end = _at_the_end(self._close)
        with contextlib.suppress(StopIteration):
            self._end.asend(None).send(None)

    async def _close(self) -> None:
        self._gone()
        # A loop that ends cancels whoever closes on it. Nobody else would close the rest.
        try:
            await self.ear.close()
        finally:
            await self.wire.close()

    async def close(self) -> None:
        """Let everybody go who waits, and the connections."""
        await self._end.aclose()

    def begin_to_close(self) -> None:
        """The same, for who cannot wait: another thread's loop."""
        self.ear.let_go()
        if self._closing is None:
            self._closing = asyncio.create_task(self.close())


async def _at_the_end(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()
