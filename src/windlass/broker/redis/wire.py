"""The wire for coroutines: one connection, one call at a time, opened when first needed."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from redis import exceptions

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.connections import (
    LoopConnection,
    ask_on_loop,
    close_on_loop,
    find,
    named,
    open_on_loop,
)
from windlass.broker.redis.conversation import ConnectTo, Pause, Send, Step, Talk
from windlass.broker.redis.url import Address, Location

_T = TypeVar("_T")


class Wire:
    """A connection of one event loop."""

    def __init__(self, location: Location, key: bytes) -> None:
        self._location = location
        self._key = key
        self._lock = asyncio.Lock()
        self._opened: LoopConnection | None = None
        self._address: Address | None = None
        self._found = location.kind == "direct"
        self._asked = False
        """A question was sent whose answer was not read yet."""
        self._used = False
        """The connection has answered before."""
        self._said: exceptions.RedisError | None = None
        """Why it puts the caller off, if it does."""
        self.on_go: Callable[[], None] = lambda: None
        """Called when another server is in charge."""

    async def hold(self, talk: Talk[_T]) -> _T:
        """Hold a conversation to its end. Waiting in line counts towards its timeout."""
        try:
            async with asyncio.timeout(self._location.timeout), self._lock:
                return await self._hold(talk)
        except TimeoutError as error:
            raise complaint(error, self._location, self._address, used=self._used, said=self._said) from error

    async def _hold(self, talk: Talk[_T]) -> _T:
        answer: Any = None
        self._said = None
        try:
            while True:
                try:
                    step = talk.send(answer)
                except StopIteration as end:
                    return end.value
                answer = await self._take(step)
        except (*UNREACHABLE, exceptions.RedisError) as error:
            told = complaint(error, self._location, self._address, used=self._used, said=self._said)
            await self._drop()
            raise told from error
        except BaseException:
            # Cancelled, perhaps between a question and its answer: the next caller must not read that.
            if self._asked:
                await self._drop()
            raise

    async def _take(self, step: Step) -> Any:
        match step:
            case Send():
                answer = await self._answer(step)
                self._said = answer if isinstance(answer, exceptions.RedisError) else None
                return answer
            case Pause():
                await asyncio.sleep(step.seconds)
            case ConnectTo():
                await self._drop(go=step)
                self.on_go()
        return None

    async def _answer(self, step: Send) -> Any:
        if step.to is None:
            opened = await self.connected()
            self._asked = True
            reply = await ask_on_loop(opened, step.commands)
            self._asked, self._used = False, True
            return reply
        other = named(self._location, self._address, step.to)  # for once
        opened = await open_on_loop(self._location, other)
        try:
            return await ask_on_loop(opened, step.commands)
        finally:
            await close_on_loop(opened)

    async def address(self) -> Address | None:
        """The server in charge."""
        if not self._found:
            self._address = await asyncio.to_thread(find, self._location, self._key)
            self._found = True
        return self._address

    async def connected(self) -> LoopConnection:
        """The open connection. One that the server has closed meanwhile is made anew."""
        if self._opened is not None and await self._is_lost(self._opened):
            await self._drop()
        if self._opened is None:
            self._opened = await open_on_loop(self._location, await self.address())
        return self._opened

    async def _is_lost(self, opened: LoopConnection) -> bool:
        """Nothing was asked, so there is nothing to be read but the end."""
        try:
            return await opened.can_read()
        except UNREACHABLE:
            return True

    async def _drop(self, *, go: ConnectTo | None = None) -> None:
        """Let go of the connection; the next one leads where `go` says, else to the server in charge then."""
        opened, self._opened, self._asked, self._used = self._opened, None, False, False
        if go is not None and go.to is not None:
            self._address, self._found = named(self._location, self._address, go.to), True
        elif self._location.kind == "direct":
            self._address = None
        else:
            self._found = False
        if opened is not None:
            await close_on_loop(opened)

    async def close(self) -> None:
        """Let go of the connection."""
        try:
            async with self._lock:
                await self._drop()
        finally:  # a caller that is cancelled while it waits for its turn: nobody comes after it
            if self._opened is not None:
                await self._drop()
