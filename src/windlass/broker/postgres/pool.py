"""Connections: few of them, opened when needed, replaced when lost.

A pool of our own instead of the driver's: that one asks the server to forget the session's state after every
use, a round trip more, and nothing here leaves any.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from windlass.broker.postgres.driver import AGAIN, UNAVAILABLE, Connection, Refused, connect
from windlass.broker.postgres.trouble import in_words, lost_within
from windlass.broker.postgres.url import Place
from windlass.errors import StoreUnavailable, Unsupported
from windlass.forks import leave_to_parent, renew_after_fork

_T = TypeVar("_T")

TRIES: Final = 6
"""How often a step is begun anew that others made impossible: a deadlock, a serialization failure."""
_FIRST_PAUSE: Final = 0.005

_IDLE = "SET LOCAL idle_in_transaction_session_timeout = '2s'"


class Pool:
    """The connections of one broker, on one event loop."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._pid = os.getpid()
        self._room = asyncio.Semaphore(_for_calls(place))
        self._long = asyncio.Semaphore(_for_long(place))
        self._idle: list[Connection] = []
        self._apart: asyncio.Future[Any] | None = None
        self._closed = False
        renew_after_fork(self)

    async def call(self, query: str, *arguments: Any) -> Sequence[Any]:
        """Call a function of the store: one statement, one transaction."""
        pause = _FIRST_PAUSE
        for left in range(TRIES - 1, -1, -1):
            try:
                async with self.lent() as connection:
                    return await self._fetch(connection, query, arguments)
            except AGAIN as error:
                if not left:
                    raise StoreUnavailable(
                        f"PostgreSQL could not serialize the step: {error}; tried {TRIES} times"
                    ) from error
            except (Refused, *UNAVAILABLE) as error:
                raise in_words(error, self._place) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - jitter, not a secret
            pause *= 2
        raise AssertionError("the last try returns or raises")  # pragma: no cover

    async def _fetch(self, connection: Connection, query: str, arguments: Sequence[Any]) -> Sequence[Any]:
        if not self._place.pooled:
            return await connection.fetch(query, *arguments)
        # Between two messages a pooler may change the server: only a transaction keeps one.
        async with connection.transaction(isolation="read_committed"):
            # A process that is stopped in here must not keep the namespace from everybody else.
            await connection.execute(_IDLE)
            return await connection.fetch(query, *arguments)

    async def use(self, work: Callable[[Connection], Awaitable[_T]]) -> _T:
        """Let some work of the store's use a connection."""
        try:
            async with self.lent() as connection:
                return await work(connection)
        except (Refused, *UNAVAILABLE) as error:
            raise in_words(error, self._place) from error

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[Connection, None]:
        """Lend a connection."""
        if self._pid != os.getpid():
            self.renew()  # a fork that called no hook of Python's
        async with self._room:
            connection = await self._open()
            try:
                yield connection
            except (*UNAVAILABLE, asyncio.CancelledError):
                # Lost, or left in the middle of an answer: nobody knows what comes next on it.
                connection.terminate()
                raise
            except BaseException:
                self.take_back(connection)
                raise
            self.take_back(connection)

    @asynccontextmanager
    async def lent_for_long(self) -> AsyncGenerator[Connection, None]:
        """Lend a connection to somebody who may keep it, and use the store meanwhile: others are left."""
        if _for_calls(self._place) == 1:
            raise Unsupported(
                "a transaction of one's own needs a second connection: set connections=2 or more"
            )
        async with self._long, self.lent() as connection:
            try:
                yield connection
            except UNAVAILABLE as error:
                if not connection.is_closed():
                    raise  # of something else that is done meanwhile
                raise lost_within(self._place) from error

    def at_hand(self) -> Connection | None:
        """A connection that is open and idle, to be given back by `take_back`; None if there is none, or if
        it needs more than a statement.
        """
        if self._closed or self._place.pooled or self._pid != os.getpid() or not self._idle:
            return None
        connection = self._idle.pop()
        return None if connection.is_closed() else connection

    def set_apart(self) -> None:
        """Do with one connection less from now on: it is opened elsewhere."""
        self._apart = asyncio.gather(self._room.acquire(), self._long.acquire())

    def take_back(self, connection: Connection) -> None:
        """Keep a connection for the next one, if it is of any use."""
        if self._closed or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(connection)

    async def _open(self) -> Connection:
        if self._closed:
            raise StoreUnavailable("the broker is closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        try:
            return await connect(self._place.dsn, pooled=self._place.pooled)
        except (*UNAVAILABLE, Refused) as error:
            raise in_words(error, self._place) from error

    async def close(self) -> None:
        """Let go of every connection."""
        self._closed = True
        if self._apart is not None:
            self._apart.cancel()
        idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(*UNAVAILABLE):
                await connection.close(timeout=1)

    def renew(self) -> None:
        """In a child of a fork: open connections of its own."""
        leave_to_parent(*self._idle)
        self._pid = os.getpid()
        self._idle = []
        self._room = asyncio.Semaphore(_for_calls(self._place))
        self._long = asyncio.Semaphore(_for_long(self._place))


def _for_calls(place: Place) -> int:
    """How many connections there are but for the one that listens."""
    return place.connections - place.listens


def spares_one(place: Place) -> bool:
    """Whether one of those can be set apart: two are left, so that one may be lent for long."""
    return _for_calls(place) > 2


def _for_long(place: Place) -> int:
    """How many connections may be lent to those who keep them: one is left for everybody else."""
    return max(1, min(place.connections // 2, _for_calls(place) - 1))
