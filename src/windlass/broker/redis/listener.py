"""One connection on which a process hears of wakes and of jobs that end."""

import asyncio
import itertools
import secrets
from typing import Any

from redis import exceptions

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.connections import LoopConnection, close_on_loop, open_on_loop
from windlass.broker.redis.keys import ends_channel, waiter_channel
from windlass.broker.redis.url import Address, Location
from windlass.broker.redis.wire import Wire


class Waiter:
    """A caller that waits to be told. It has one timer and one future: an event would take twice as long."""

    __slots__ = ("_over", "told")

    def __init__(self) -> None:
        self._over = asyncio.get_running_loop().create_future()
        self.told = False

    def tell(self) -> None:
        """End the wait: it was told, or nobody will tell it any more."""
        self.told = True
        self._end()

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def wait(self, timeout: float) -> None:
        """Wait until it is told, or until the timeout."""
        timer = asyncio.get_running_loop().call_later(timeout, self._end)
        try:
            await self._over
        finally:
            timer.cancel()


class Listener:
    """Listens on one event loop."""

    def __init__(self, location: Location, wire: Wire, namespace: str) -> None:
        self._location = location
        self._wire = wire
        self.channel = waiter_channel(namespace, secrets.token_hex(8))
        self._ends = ends_channel(namespace)
        self._numbers = itertools.count(1)
        self._opened: LoopConnection | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._address: Address | None = None
        """Where it leads."""
        self._opening = asyncio.Lock()
        self._hears_ends = False
        self._refused: exceptions.RedisError | None = None
        """What the server said instead of letting this connection listen."""
        self._confirmed: dict[bytes, asyncio.Event] = {}
        self._waiting: dict[str, Waiter] = {}
        self._watching: dict[asyncio.Event, frozenset[bytes] | None] = {}
        self.closed = False

    # wakes

    async def wait_here(self) -> tuple[str, Waiter]:
        """A waiter, and the number under which the server tells it."""
        await self._open(ends=False)
        number = str(next(self._numbers))
        self._waiting[number] = waiter = Waiter()
        return number, waiter

    def waits_no_longer(self, number: str) -> None:
        """Remove a waiter that was told, or gave up."""
        self._waiting.pop(number, None)

    # ends

    async def listen(self, jobs: frozenset[bytes] | None) -> asyncio.Event:
        """An event that is set when one of the jobs ends; None: when anything happens."""
        await self._open(ends=True)
        heard = asyncio.Event()
        self._watching[heard] = jobs
        return heard

    async def stay(self) -> None:
        """Listen again, should the connection be lost."""
        await self._open(ends=True)

    def listens_no_longer(self, heard: asyncio.Event) -> None:
        """Remove a listener."""
        self._watching.pop(heard, None)

    # the connection

    async def _open(self, *, ends: bool) -> None:
        async with self._opening:
            if self.closed:
                return
            try:
                async with asyncio.timeout(self._location.timeout):
                    if self._opened is not None and await self._wire.address() != self._address:
                        await self._hang_up()  # a server counts its own listeners before it tells of ends
                    if self._opened is None:
                        await self._subscribe_first()
                    if ends and not self._hears_ends:
                        await self._subscribe(self._ends)
                        self._hears_ends = True
            except (*UNREACHABLE, exceptions.RedisError) as error:
                await self._hang_up()
                raise complaint(error, self._location, await self._wire.address()) from error

    async def _subscribe_first(self) -> None:
        self._address = await self._wire.address()
        opened = await open_on_loop(self._location, self._address)
        self._opened, self._hears_ends, self._refused = opened, False, None
        self._confirmed.clear()
        self._hearing = asyncio.create_task(self._hear_all(opened))
        await self._subscribe(self.channel)

    async def _subscribe(self, channel: bytes) -> None:
        opened = self._opened
        self._confirmed[channel] = confirmed = asyncio.Event()
        if opened is not None:
            await opened.send_command(b"SUBSCRIBE", channel)
            await confirmed.wait()
        if opened is None or self._opened is not opened:  # everybody was let go because it broke
            raise self._refused or exceptions.ConnectionError("the connection was lost")

    def go(self) -> None:
        """Another server is in charge: wake all waiters, which look for themselves and wait again."""
        self._tell_all()

    async def _hear_all(self, opened: LoopConnection) -> None:
        """Read what the server says, until the connection breaks, the server refuses, or it is closed."""
        try:
            while True:
                self._hear(await opened.read_response(disable_decoding=True, disconnect_on_error=False))
        except exceptions.ResponseError as why:  # a server that refuses does not close the connection
            self._refused = why
        except (*UNREACHABLE, exceptions.RedisError):
            pass
        finally:
            # Nobody is told any more: the waiters look for themselves, and wait again.
            if self._opened is opened:
                self._opened = None
                self._wake_all()
                await close_on_loop(opened)

    def _hear(self, message: Any) -> None:
        kind, channel, what = message
        if kind == b"subscribe":
            self._confirmed[channel].set()
        elif channel == self.channel:
            waiter = self._waiting.get(what.decode())
            if waiter is not None:
                waiter.tell()
        else:
            ended = {what[at : at + 16] for at in range(0, len(what), 16)}
            for heard, jobs in self._watching.items():
                if jobs is None or not jobs.isdisjoint(ended):
                    heard.set()

    def _tell_all(self) -> None:
        for waiter in self._waiting.values():
            waiter.tell()
        for heard in self._watching:
            heard.set()

    def _wake_all(self) -> None:
        self._tell_all()
        for confirmed in self._confirmed.values():
            confirmed.set()

    async def _hang_up(self) -> None:
        opened, self._opened, hearing, self._hearing = self._opened, None, self._hearing, None
        if hearing is not None:
            hearing.cancel()
        if opened is not None:
            await close_on_loop(opened)

    def let_go(self) -> None:
        """Wake all waiters."""
        self.closed = True
        self._tell_all()

    async def close(self) -> None:
        """Wake all waiters, and close the connection."""
        self.let_go()
        try:
            async with self._opening:
                await self._hang_up()
        finally:  # a caller that is cancelled while it waits for its turn: nobody comes after it
            if self._opened is not None:
                await self._hang_up()
