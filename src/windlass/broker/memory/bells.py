"""Waking those who wait: one per new job for `wait`, everyone for `watch` and `events`."""

import asyncio
from collections.abc import Sequence


class Waiter:
    """A caller that waits, on any loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Wake the caller that waits; from any thread."""
        # The verb that rings may run on another thread and another loop than the one that waits.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def woken(self, timeout: float) -> bool:
        """Wait for it; whether it came in time."""
        try:
            async with asyncio.timeout(timeout):
                return await self._woken.wait()
        except TimeoutError:
            return False


class Bells:
    """The wake of each queue, and one bell for everything that finishes or is logged.

    Called under the broker's lock, except for the waiting itself.
    """

    def __init__(self) -> None:
        self._armed: set[str] = set()
        self._waiting: list[tuple[frozenset[str], Waiter]] = []
        self._watching: list[Waiter] = []

    def arm(self, queue: str) -> None:
        """A job became claimable: wake one waiter of the queue, or let the next one return at once."""
        for place, (queues, waiter) in enumerate(self._waiting):
            if queue in queues:
                del self._waiting[place]
                waiter.wake()
                return
        self._armed.add(queue)

    def wait_for(self, queues: Sequence[str]) -> Waiter | None:
        """Who is to be woken; None if a wake is armed already."""
        armed = self._armed & set(queues)
        if armed:
            self._armed -= armed
            return None
        waiter = Waiter()
        self._waiting.append((frozenset(queues), waiter))
        return waiter

    def watch(self) -> Waiter:
        """Who is to be woken when something finishes or is logged."""
        waiter = Waiter()
        self._watching.append(waiter)
        return waiter

    def ring(self) -> None:
        """Something finished or was logged."""
        watching, self._watching = self._watching, []
        for waiter in watching:
            waiter.wake()

    def leave(self, waiter: Waiter) -> None:
        """Somebody waits no longer."""
        self._waiting = [entry for entry in self._waiting if entry[1] is not waiter]
        self._watching = [entry for entry in self._watching if entry is not waiter]

    def ring_all(self) -> None:
        """Let everybody go: the broker closes."""
        for _, waiter in self._waiting:
            waiter.wake()
        self._waiting = []
        self.ring()
