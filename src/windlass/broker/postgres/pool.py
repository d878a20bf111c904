"""Connections for coroutines: few of them, opened when needed, replaced when lost.

A pool of our own instead of psycopg's: that one keeps tasks of its own to watch connections, and nothing here
leaves any state behind.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import psycopg

from windlass.broker.postgres.driver import PATIENCE, TROUBLE, Link, Row, ends
from windlass.broker.postgres.trouble import Tries, in_words, lost_within
from windlass.broker.postgres.url import Location
from windlass.errors import StoreError, StoreUnavailable, Unsupported
from windlass.forks import leave_to_parent, renew_after_fork

_T = TypeVar("_T")
_ISOLATION: Final = "read committed"
_CLOSING: Final = 1.0
"""Seconds that the end of abandoned calls is waited for."""


class Pool:
    """The connections of one broker, on one event loop."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._apart: Sequence[asyncio.Task[bool]] = ()
        self._closed = False
        self._begin()
        renew_after_fork(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._room = asyncio.Semaphore(_for_calls(self.location))
        self._long = asyncio.Semaphore(_for_long(self.location))
        self._idle: list[Link] = []
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def fetch(self, statement: bytes, arguments: Sequence[Any] = (), *, named: bool) -> Sequence[Row]:
        """Call a function of the store: one statement, one transaction. `named`: rows are dictionaries."""
        tries = Tries(self.location)
        while True:
            self._renew_in_child()
            try:
                async with self._room:
                    return await self._answer(await self._take(), statement, arguments, named=named)
            except TROUBLE as error:
                pause = tries.after(error)
            await asyncio.sleep(pause)

    async def _answer(
        self, link: Link, statement: bytes, arguments: Sequence[Any], *, named: bool
    ) -> Sequence[Row]:
        """Wait for an answer, at most for so long. A caller that is cancelled does not wait for the server:
        psycopg would first ask it, by another connection, to end the statement, and wait until it has.
        """
        call = asyncio.ensure_future(link.fetch(statement, arguments, named=named))
        try:
            await asyncio.wait((call,), timeout=PATIENCE)
        finally:  # also if it is cancelled in the very moment in which the answer came
            if not call.done():
                self._abandon(link, call)
            elif call.cancelled():  # by a loop that ends, which cancels all that is under way on it
                link.drop()
            else:
                self._give_back(link, call.exception())
        if not call.done():
            raise TimeoutError
        return call.result()

    def _abandon(self, link: Link, call: "asyncio.Task[Any]") -> None:
        """Leave a call to end by itself; its connection ends with it."""
        self._abandoned.add(call)
        call.add_done_callback(partial(self._ended, link))
        call.cancel()

    def _ended(self, link: Link, call: "asyncio.Task[Any]") -> None:
        self._abandoned.discard(call)
        link.drop()
        if not call.cancelled():
            call.exception()  # nobody waits for it any more

    async def use(self, work: Callable[[psycopg.AsyncConnection[Any]], Awaitable[_T]]) -> _T:
        """Do some work of the store on a connection."""
        try:
            async with self._lent() as connection:
                return await work(connection)
        except TROUBLE as error:
            raise in_words(error, self.location) from error

    @asynccontextmanager
    async def _lent(self) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
        """Lend a connection; it comes back, or is replaced if it broke."""
        self._renew_in_child()
        async with self._room:
            link = await self._take()
            try:
                yield link.connection
            except BaseException as error:
                self._give_back(link, error)
                raise
            self._give_back(link)

    @asynccontextmanager
    async def lent_for_long(self) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
        """Lend a connection for long, to a caller that may use the store meanwhile: others are left."""
        if _for_calls(self.location) == 1:
            raise Unsupported(
                "a transaction of your own needs a second connection: set connections=2 or more in the URL"
            )
        async with self._long, self._lent() as connection:
            try:
                yield connection
            except TROUBLE as error:
                if not connection.closed:
                    raise  # of something else that is done meanwhile
                raise lost_within(self.location) from error

    def set_apart(self) -> None:
        """Use one connection less from now on: it is opened elsewhere."""
        loop = asyncio.get_running_loop()
        self._apart = tuple(loop.create_task(places.acquire()) for places in (self._room, self._long))

    async def _take(self) -> Link:
        if self._closed:
            raise StoreUnavailable("the broker is closed")
        while self._idle:
            link = self._idle.pop()
            if link.is_usable and link.is_quiet:
                return link
            link.drop()
        try:
            link = await Link.open(self.location)
        except TROUBLE as error:
            raise in_words(error, self.location) from error
        if not self.location.pooled:
            return link
        try:
            await self._check_isolation(link)
        except BaseException:
            link.drop()
            raise
        return link

    async def _check_isolation(self, link: Link) -> None:
        """Behind a pooler no setting of ours holds: a call is one statement in the server's isolation."""
        rows = await link.fetch(b"SHOW default_transaction_isolation", (), named=False)
        if rows[0][0] != _ISOLATION:
            raise StoreError(
                f"behind the pooler, transactions are {rows[0][0]} by default, and Windlass needs"
                f" {_ISOLATION}: ALTER ROLE … SET default_transaction_isolation = '{_ISOLATION}'"
            )

    def _give_back(self, link: Link, error: BaseException | None = None) -> None:
        """Keep a connection for the next call, if it is usable."""
        if self._closed or not link.is_usable or (error is not None and ends(error)):
            link.drop()
        else:
            self._idle.append(link)

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for task in self._apart:
            task.cancel()
        idle, self._idle = self._idle, []
        for link in idle:
            link.drop()
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=_CLOSING)

    def _renew_in_child(self) -> None:
        """Renew also where a fork called no hook of Python's."""
        if self._pid != os.getpid():
            self.renew()

    def renew(self) -> None:
        """In a child of a fork: open connections of its own."""
        leave_to_parent(self._idle, self._abandoned, self._apart)
        self._apart = ()
        self._begin()


def _for_calls(location: Location) -> int:
    """How many connections there are except for the one that listens."""
    return location.connections - location.listens


def spares_one(location: Location) -> bool:
    """Whether one of those can be set apart: two are left, so that one may be lent for long."""
    return _for_calls(location) > 2


def _for_long(location: Location) -> int:
    """How many connections may be lent for long: one is left for all others."""
    return max(1, min(location.connections // 2, _for_calls(location) - 1))
