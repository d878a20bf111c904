"""The wire for coroutines: one connection, one call at a time, opened when first needed."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from redis import exceptions

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.connections import find, named, open_on_loop
from windlass.broker.redis.conversation import Go, Pause, Say, Step, Talk
from windlass.broker.redis.links import LoopLink
from windlass.broker.redis.url import Address, Place

_T = TypeVar("_T")


class Wire:
    """A connection of one event loop."""

    def __init__(self, place: Place, key: bytes) -> None:
        self._place = place
        self._key = key
        self._lock = asyncio.Lock()
        self._callers = 0
        """Who has its turn, and who waits for one."""
        self._link: LoopLink | None = None
        self._address: Address | None = None
        self._found = place.kind == "direct"
        self._asked = False
        """A question was sent whose answer was not read yet."""
        self._used = False
        """The connection has answered before."""
        self._said: exceptions.RedisError | None = None
        """Why it puts the caller off, if it does."""
        self.on_go: Callable[[], None] = lambda: None
        """Called when another server is in charge."""

    async def hold(self, talk: Talk[_T]) -> _T:
        """Hold a conversation to its end. Its turn counts: a server that hangs is not waited for in line.

        What nearly every call is has no timer of its own: on a link that is open, with nobody in line, one
        question, of which the link keeps the time.
        """
        self._callers += 1
        try:
            if self._callers == 1:
                async with self._lock:
                    if self._link is not None and not self._link.is_lost:
                        return await self._alone(talk, timed=False)
            async with asyncio.timeout(self._place.timeout), self._lock:
                return await self._alone(talk, timed=True)
        except TimeoutError as error:
            raise complaint(error, self._place, self._address, used=self._used, said=self._said) from error
        finally:
            self._callers -= 1

    async def _alone(self, talk: Talk[_T], *, timed: bool) -> _T:
        self._said = None
        try:
            step = next(talk)
            if self._link is not None and not timed and isinstance(step, Say) and step.to is None:
                answer = await self._say(self._link, step)
                self._said = answer if isinstance(answer, exceptions.RedisError) else None
            else:
                answer = await self._take(step)
            try:
                step = talk.send(answer)
            except StopIteration as end:
                return end.value
            if timed:
                return await self._go_on(talk, step)
            async with asyncio.timeout(self._place.timeout):
                return await self._go_on(talk, step)
        except (*UNREACHABLE, exceptions.RedisError) as error:
            told = complaint(error, self._place, self._address, used=self._used, said=self._said)
            await self._drop()
            raise told from error
        except BaseException:
            # Cancelled, perhaps between a question and its answer: the next must not read that.
            if self._asked:
                await self._drop()
            raise

    async def _go_on(self, talk: Talk[_T], step: Step) -> _T:
        while True:
            answer = await self._take(step)
            try:
                step = talk.send(answer)
            except StopIteration as end:
                return end.value

    async def _take(self, step: Step) -> Any:
        match step:
            case Say():
                answer = await self._answer(step)
                self._said = answer if isinstance(answer, exceptions.RedisError) else None
                return answer
            case Pause():
                await asyncio.sleep(step.seconds)
            case Go():
                await self._drop(go=step)
                self.on_go()
        return None

    async def _answer(self, step: Say) -> Any:
        if step.to is None:
            return await self._say(await self.link(), step)
        other = named(self._place, self._address, step.to)  # for once
        link = await open_on_loop(self._place, other)
        try:
            return await self._say(link, step)
        finally:
            await link.hang_up(in_order=True)

    async def _say(self, link: LoopLink, step: Say) -> Any:
        said = step.packed
        if said is None:
            said = b"".join([link.pack(*command) for command in step.commands])
        self._asked = True
        reply = await link.ask(said, len(step.commands))
        self._asked, self._used = False, True
        return reply

    async def address(self) -> Address | None:
        """The server in charge."""
        if not self._found:
            self._address = await asyncio.to_thread(find, self._place, self._key)
            self._found = True
        return self._address

    async def link(self) -> LoopLink:
        """The open connection. One that the server has closed meanwhile is made anew."""
        if self._link is not None and self._link.is_lost:
            await self._drop()
        if self._link is None:
            self._link = await open_on_loop(self._place, await self.address())
        return self._link

    async def _drop(self, *, go: Go | None = None, in_order: bool = False) -> None:
        """Let go of the connection; the next one leads where `go` says, else to whom is in charge then."""
        link, self._link, self._asked, self._used = self._link, None, False, False
        if go is not None and go.to is not None:
            self._address, self._found = named(self._place, self._address, go.to), True
        elif self._place.kind == "direct":
            self._address = None
        else:
            self._found = False
        if link is not None:
            await link.hang_up(in_order=in_order)

    async def close(self) -> None:
        """Let go of the connection."""
        try:
            async with self._lock:
                await self._drop(in_order=True)
        finally:  # who is cancelled while it waits for its turn: nobody comes after it
            if self._link is not None:
                await self._drop()
