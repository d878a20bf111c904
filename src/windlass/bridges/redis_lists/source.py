"""Lists of Redis as a source: what is taken out is held beside them until it is acknowledged."""

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from typing import Any

from windlass.bridges.message import Message
from windlass.bridges.redis_lists.envelope import opened
from windlass.bridges.redis_lists.examine import warnings_of
from windlass.bridges.redis_lists.link import Link
from windlass.bridges.redis_lists.place import RedisList
from windlass.errors import BridgeError

POLL, LONGEST_POLL = 0.01, 0.1
"""Seconds between two looks while nothing comes; each time twice as long."""


class RedisQueue:
    """Receives from a list, and from those beside it for other priorities."""

    def __init__(self, link: Link, place: RedisList) -> None:
        self._link = link
        self._place = place
        self._take: Any = link.script("take")
        self._forget: Any = link.script("forget")
        self._back: Any = link.script("give_back")
        self._held = [place.held, place.until]
        self._out: dict[str, None] = {}
        """Receipts of what was handed out, in order."""
        self._doubtful: list[str] = []
        """Receipts to give back: of what was perhaps taken, by a call whose answer was lost."""
        self._unnamed = False

    @property
    def names_messages(self) -> bool:
        """Whether all that have come were in an envelope, which has an id."""
        return not self._unnamed

    async def receive(self, limit: int, timeout: float) -> Sequence[Message]:
        """See `QueueSource`."""
        loop, pause = asyncio.get_running_loop(), POLL
        until = loop.time() + timeout
        while True:
            messages = await self._taken(limit)
            if messages or (left := until - loop.time()) <= 0:
                return messages
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_POLL)

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """See `QueueSource`."""
        if receipts := self._taken_in(messages):
            await self._link.ask(lambda: self._forget(self._held, receipts))

    async def give_back(self, messages: Sequence[Message]) -> None:
        """See `QueueSource`."""
        await self._give_back(self._taken_in(messages))

    async def lag(self) -> int | None:
        """What is in the lists."""

        async def counted() -> int:
            return sum([await self._link.client.llen(name) for name in self._place.lists])

        return await self._link.ask(counted)

    async def warnings(self) -> Sequence[str]:
        """See `LogSource`."""
        return await warnings_of(self._link, self._place)

    async def close(self) -> None:
        """See `QueueSource`."""
        with contextlib.suppress(BridgeError):
            await self._give_back(list(self._out))
        self._out.clear()
        await self._link.close()

    async def _taken(self, limit: int) -> list[Message]:
        """What is there now."""
        await self._give_back(())
        prefix = f"{uuid.uuid4().hex}:"
        keys, hold = [*self._held, *self._place.lists], self._place.hold * 1_000

        async def take() -> list[Any]:
            return await self._take(keys, [limit, hold, prefix])

        try:
            found = await self._link.ask(take)
        except BaseException:
            # It may be done all the same. What it took would come again when it is no longer held.
            self._doubtful += [f"{prefix}{number:06d}" for number in range(limit)]
            raise
        messages = [
            opened(raw, subject=self._place.list, after=receipt.decode())
            for receipt, raw in zip(found[::2], found[1::2], strict=True)
        ]
        self._out.update((message.after, None) for message in messages)
        self._unnamed |= any(message.id is None for message in messages)
        return messages

    async def _give_back(self, receipts: Sequence[str]) -> None:
        self._doubtful += receipts
        if self._doubtful:
            keys = [*self._held, *self._place.lists]
            await self._link.ask(lambda: self._back(keys, self._doubtful))
            self._doubtful = []

    def _taken_in(self, messages: Sequence[Message]) -> list[str]:
        """The receipts of messages that were handed out, which they now count as no longer."""
        receipts = [message.after for message in messages if message.after in self._out]
        for receipt in receipts:
            del self._out[receipt]
        return receipts
