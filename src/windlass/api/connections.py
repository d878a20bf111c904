"""The connections of a server process: how many there may be, and which ones are closed.

A connection either has a request that the server works on, or the server waits for its client: for a request,
for a body, or for the client to read an answer. Each wait has a deadline. When the server has as many
connections as it may have, a new one takes the place of one that the server waits for. So a client that opens
connections and keeps silent takes places from itself, and never shuts out the others.
"""

import asyncio
import logging
import time
from typing import Protocol

_log = logging.getLogger("windlass.api")

LOOK = 0.5
"""Seconds between two looks at the deadlines."""
REMIND = 60.0
"""Seconds between two lines in the log about a server that is full."""


class Waiting(Protocol):
    """What the list needs to know of a connection."""

    address: str
    """Of the client."""
    is_known: bool
    """Whether a request with a valid key came over it."""

    def close(self) -> None:
        """Close it once a request that is under way is answered."""
        ...

    def cut(self) -> None:
        """Close it now."""
        ...


class Connections:
    """The open connections. Of those that the server waits for, it knows the order in which it began to
    wait.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: set[Waiting] = set()
        self._strangers: dict[str, dict[Waiting, float]] = {}
        """By address: the connections the server waits for, over which no valid key came, with their
        deadlines.
        """
        self._known: dict[Waiting, float] = {}
        self._said_at: float | None = None
        self._none_left = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Waiting) -> bool:
        """Give a new connection a place. False if there is none: the server works for all that it has."""
        if len(self._open) >= self.most:
            victim = self._victim()
            if victim is None:
                self._say_full(connection)
                return False
            self._say_full(victim)
            self.forget(victim)
            victim.cut()
        self._open.add(connection)
        return True

    def waits(self, connection: Waiting, within: float) -> None:
        """The server waits for the client of this connection from now on, so many seconds at the most."""
        self.works(connection)
        until = time.monotonic() + within
        if connection.is_known:
            self._known[connection] = until
        else:
            self._strangers.setdefault(connection.address, {})[connection] = until

    def works(self, connection: Waiting) -> None:
        """The server works on a request of this connection."""
        self._known.pop(connection, None)
        same = self._strangers.get(connection.address)
        if same is not None and same.pop(connection, None) is not None and not same:
            del self._strangers[connection.address]

    def forget(self, connection: Waiting) -> None:
        """The connection is closed."""
        self.works(connection)
        self._open.discard(connection)
        if not self._open:
            self._none_left.set()

    async def close(self, within: float) -> None:
        """Close all of them. Those with a request under way have so many seconds to be answered."""
        self._none_left.clear()
        if not self._open:
            return
        for connection in list(self._open):
            connection.close()
        try:
            async with asyncio.timeout(within):
                await self._none_left.wait()
        except TimeoutError:
            for connection in list(self._open):
                connection.cut()

    async def watch(self) -> None:
        """Close connections whose deadline is over, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            self.cut_overdue(time.monotonic())

    def cut_overdue(self, now: float) -> None:
        """Close every connection whose deadline is over."""
        for group in (*self._strangers.values(), self._known):
            for connection in [each for each, until in group.items() if until <= now]:
                # It stays in the list until it is closed: one whose client reads nothing is cut again.
                connection.cut()

    def _victim(self) -> Waiting | None:
        """The connection that gives up its place: of the address with the most of them, the one that has been
        waited for longest. Connections with a valid key come last.
        """
        if self._strangers:
            return next(iter(max(self._strangers.values(), key=len)))
        return next(iter(self._known), None)

    def _say_full(self, connection: Waiting) -> None:
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= REMIND:
            self._said_at = now
            _log.warning(
                "all %d connections of this server process are taken (--connections): those that keep it "
                "waiting are closed, beginning with %s",
                self.most,
                connection.address,
            )
