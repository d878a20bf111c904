"""Waking the waiters of this process: whenever it has changed something, they look again."""

import asyncio


class Bell:
    """Rung after every step of this process that may concern a waiter; on one event loop."""

    def __init__(self) -> None:
        self.rung = 0
        """How often it was rung. A waiter that notes it before it looks misses nothing meanwhile."""
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def is_waited_for(self) -> bool:
        """Whether there is a waiter; any thread may ask."""
        return bool(self._waiting)

    def ring(self) -> None:
        """Wake all waiters."""
        self.rung += 1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    async def heard(self, since: int, timeout: float) -> None:
        """Wait until it was rung more often than `since`, at most `timeout` seconds."""
        if self.rung != since:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            async with asyncio.timeout(max(0.0, timeout)):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(waiter)
