"""Waking by the server: a connection of its own that listens, so that an idle worker starts a job at once.

The server tells of a queue at most once per cooldown (`02_step.sql`), so a waiter looks often for twice as
long afterwards, also if it was at work when it was told. It is a hint: a connection that is lost, or a pooler
that passes nothing on, costs up to a second.
"""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.driver import TROUBLE, Link
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.statements import statement
from windlass.broker.postgres.url import Location
from windlass.forks import leave_to_parent, renew_after_fork

COOLDOWN: Final = 0.02
"""Seconds within which the server tells of a queue but once; as `02_step.sql` has it."""
ROOM: Final = 1_464_422_981
"""The first half of the key of the lock that a listener holds."""
_HOLD: Final = "SELECT pg_advisory_lock_shared(%s, %s)"
_AGAIN_AFTER: Final = 1.0
_LOOKS_FOR: Final = 2 * COOLDOWN
"""One for what is not told, another for the time that it may take until it is committed."""


class Listener:
    """The one connection of a broker that listens: opened at the first wait."""

    def __init__(self, location: Location, schema: str, bell: Bell) -> None:
        self._location = location
        self._schema = schema
        self._bell = bell
        self._queues: Counter[str] = Counter()
        """How many wait for each; a queue that was once waited for stays."""
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._hearing: asyncio.Task[None] | None = None
        """Opens the connection, and passes on what comes by it until it is lost."""
        self._not_before = 0.0
        self._told_at = 0.0
        """When the server last told of one of those queues, or may have told others; waited for or not."""
        self.told = 0
        """How often the server told of a queue that somebody waits for."""
        self._closed = False
        self._pid = os.getpid()
        renew_after_fork(self)

    @contextlib.contextmanager
    def listening(self, queues: Sequence[str]) -> Any:
        """Ring the bell for these queues meanwhile, if the server can be listened to."""
        if not self._queues.keys() >= set(queues):
            self._told_at = asyncio.get_running_loop().time()  # what was told of a new one was passed over
        self._queues.update(queues)
        try:
            self._open_if_needed()
            yield
        finally:
            self._queues.subtract(queues)

    def pause(self, looked_at: float, polling: float, floor: float) -> float:
        """How long to wait for the bell before looking again; `polling` where nobody rings it.

        looked_at: when the last look began. One whose answer took long has not seen what came meanwhile.
        """
        if self._is_lost():
            self._open_if_needed()
            return polling
        return COOLDOWN / 4 if looked_at < self._told_at + _LOOKS_FOR else floor

    def _open_if_needed(self) -> None:
        if not self._location.listens or self._closed:
            return
        hears = self._hearing is not None and not self._hearing.done()
        if self._is_lost() and not hears and asyncio.get_running_loop().time() >= self._not_before:
            self._hearing = asyncio.create_task(self._hear())

    def _is_lost(self) -> bool:
        if self._pid != os.getpid():
            self.renew()  # a fork that called no hook of Python's
        return self._connection is None

    def renew(self) -> None:
        """In a child of a fork: open a connection of its own."""
        leave_to_parent(self._connection, self._hearing)
        self._pid, self._connection, self._hearing = os.getpid(), None, None

    async def _hear(self) -> None:
        """Listen until the connection is lost. The next call of the store says what is wrong."""
        loop = asyncio.get_running_loop()
        self._not_before = loop.time() + _AGAIN_AFTER
        with contextlib.suppress(*TROUBLE):
            link = await Link.open(self._location)
            try:
                (row,) = await link.fetch(statement(self._schema, "bell", 0), (), named=True)
                connection = link.connection
                await connection.execute(f"LISTEN {quoted(row['channel'])}".encode())
                await connection.execute(_HOLD, (ROOM, row["room"]))
                self._connection = connection
                # Jobs committed before were not told to this: look now. Those that come soon after a ring
                # that only others heard are not told either: look often.
                self._told_at = loop.time()
                self._bell.ring()
                async for notice in connection.notifies():
                    self._told(notice.payload)
            finally:
                self._connection = None
                link.drop()

    def _told(self, queue: str) -> None:
        if queue not in self._queues:
            return
        self._told_at = asyncio.get_running_loop().time()
        if self._queues[queue] > 0:
            self.told += 1
            self._bell.ring()

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._hearing is not None:
            self._hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._hearing
