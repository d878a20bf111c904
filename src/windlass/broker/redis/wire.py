"""The wire for coroutines: one connection, one call at a time, opened when first needed."""

import asyncio
from typing import Any, TypeVar

from redis import exceptions

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.connections import LoopLink, find, hang_up, open_on_loop
from windlass.broker.redis.conversation import Go, Pause, Say, Talk
from windlass.broker.redis.url import Address, Place

_T = TypeVar("_T")


class Wire:
    """A connection of one event loop."""

    def __init__(self, place: Place, key: bytes) -> None:
        self._place = place
        self._key = key
        self._lock = asyncio.Lock()
        self._link: LoopLink | None = None
        self._address: Address | None = None
        self._found = place.kind == "direct"
        self._asked = False
        """A question was sent whose answer was not read yet."""
        self._used = False
        """The connection has answered before."""
        self._said: exceptions.RedisError | None = None
        """Why it puts the caller off, if it does."""

    async def hold(self, talk: Talk[_T]) -> _T:
        """Hold a conversation to its end. Its turn counts: a server that hangs is not waited for in line."""
        try:
            async with asyncio.timeout(self._place.timeout), self._lock:
                return await self._alone(talk)
        except TimeoutError as error:
            raise complaint(error, self._place, self._address, used=self._used, said=self._said) from error

    async def _alone(self, talk: Talk[_T]) -> _T:
        try:
            return await self._hold(talk)
        except (*UNREACHABLE, exceptions.RedisError) as error:
            told = complaint(error, self._place, self._address, used=self._used)
            await self._drop()
            raise told from error
        except BaseException:
            # Cancelled, perhaps between a question and its answer: the next must not read that.
            if self._asked:
                await self._drop()
            raise

    async def _hold(self, talk: Talk[_T]) -> _T:
        answer: Any = None
        self._said = None
        while True:
            try:
                step = talk.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            match step:
                case Say():
                    answer = await self._answer(step)
                    self._said = answer if isinstance(answer, exceptions.RedisError) else None
                case Pause():
                    await asyncio.sleep(step.seconds)
                case Go():
                    await self._drop()
                    self._address = step.to
                    self._found = step.to is not None or self._place.kind == "direct"

    async def _answer(self, step: Say) -> Any:
        if step.to is None:
            return await self._say(await self.link(), step)
        link = await open_on_loop(self._place, step.to)  # another server, for once
        try:
            return await self._say(link, step)
        finally:
            await link.disconnect()

    async def _say(self, link: LoopLink, step: Say) -> Any:
        self._asked = True
        said = [step.packed] if step.packed is not None else None
        if said is None:
            said = [part for command in step.commands for part in link.pack_command(*command)]
        await link.send_packed_command(said)
        reply: Any = None
        for _ in step.commands:
            try:
                reply = await link.read_response()
            except exceptions.BusyLoadingError as error:  # a redis-py ConnectionError, although it is a reply
                reply = error
            except (exceptions.ConnectionError, exceptions.TimeoutError):
                raise
            except exceptions.RedisError as error:
                reply = error
        self._asked, self._used = False, True
        return reply

    async def address(self) -> Address | None:
        """The server in charge."""
        if not self._found:
            self._address = await asyncio.to_thread(find, self._place, self._key)
            self._found = True
        return self._address

    async def link(self) -> LoopLink:
        """The open connection."""
        if self._link is None:
            self._link = await open_on_loop(self._place, await self.address())
        return self._link

    async def _drop(self, *, in_order: bool = False) -> None:
        link, self._link, self._asked, self._used = self._link, None, False, False
        if self._place.kind != "direct":
            self._found = False
        if link is not None:
            await hang_up(link, in_order=in_order)

    async def close(self) -> None:
        """Let go of the connection."""
        try:
            async with self._lock:
                await self._drop(in_order=True)
        finally:  # who is cancelled while it waits for its turn: nobody comes after it
            if self._link is not None:
                await self._drop()
