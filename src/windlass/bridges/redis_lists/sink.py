"""Puts messages into a list of Redis, for workers of Celery or for an intake."""

from collections.abc import Sequence

from windlass.bridges.message import Outgoing
from windlass.bridges.redis_lists.envelope import enclosed
from windlass.bridges.redis_lists.examine import warnings_of
from windlass.bridges.redis_lists.link import Link
from windlass.bridges.redis_lists.place import RedisList
from windlass.errors import BridgeRefused

LARGEST = 64 * 1024 * 1024
"""Bytes of a body. Redis takes more (512 MiB), and stands still for everybody while it does."""


class RedisSink:
    """Publishes to one list, and to those beside it for other priorities."""

    def __init__(self, link: Link, place: RedisList) -> None:
        self._link = link
        self._place = place

    @property
    def largest(self) -> int:
        """See `Sink`."""
        return LARGEST

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """See `Sink`: all of them or none. A message may name another list in `to`."""
        if unfit := [number for number, each in enumerate(messages) if len(each.body or b"") > LARGEST]:
            raise BridgeRefused(
                f"{self._link.shown}: a message is larger than {LARGEST:,} bytes", tuple(unfit)
            )
        if messages:
            await self._link.ask(lambda: self._pushed(messages))

    async def warnings(self) -> Sequence[str]:
        """See `Sink`."""
        return await warnings_of(self._link, self._place)

    async def close(self) -> None:
        """See `Sink`."""
        await self._link.close()

    async def _pushed(self, messages: Sequence[Outgoing]) -> None:
        async with self._link.client.pipeline(transaction=True) as pipe:
            for message in messages:
                place = self._place.named(message.to)
                pipe.lpush(place.of_priority(message.priority), enclosed(message, to=place.list))
            await pipe.execute()
