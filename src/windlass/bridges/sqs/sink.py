"""Sends to queues of SQS. In a FIFO queue a group keeps its order, and SQS drops repeats for five minutes."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from windlass.bridges.message import Outgoing
from windlass.bridges.sqs.advice import of_a_sink
from windlass.bridges.sqs.link import PARALLEL, Link, MissingQueue, all_of
from windlass.bridges.sqs.messages import entry_of, size_of
from windlass.errors import BridgeRefused, BridgeUnavailable

_BATCH: Final = 10
_BYTES: Final = 262_144
"""Of a batch, and of a message unless its queue says otherwise: until 2025 SQS took no more."""
_ATTRIBUTES: Final = 4_096
"""Bytes of the largest message that are left for attributes."""


class _Queue(NamedTuple):
    """A queue."""

    url: str
    largest: int
    is_fifo: bool


class QueueSink:
    """See `windlass.bridges.sink`."""

    def __init__(self, link: Link, queue: str) -> None:
        """`queue`: where messages go that name none."""
        self._link = link
        self._queue = queue
        self._places: dict[str, _Queue] = {}
        self._largest = _BYTES
        self._calls = asyncio.Semaphore(PARALLEL)

    async def begin(self) -> None:
        """Look at the queue."""
        if self._queue:
            self._largest = (await self._place(self._queue)).largest

    @property
    def largest(self) -> int:
        """See `windlass.bridges.sink`. A binary body is a third longer as text."""
        return max((self._largest - _ATTRIBUTES) * 3 // 4, 1)

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """See `windlass.bridges.sink`."""
        queues: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            queues.setdefault(message.to or self._queue, []).append(number)
        refused: list[int] = []
        why = ""
        for queue, numbers in queues.items():
            found = await self._publish(queue, {number: messages[number] for number in numbers})
            for number, problem in found:
                refused.append(number)
                why = problem
        if refused:
            raise BridgeRefused(f"{self._link.shown}: {why}", tuple(sorted(refused)))

    async def warnings(self) -> Sequence[str]:
        """See `windlass.bridges.sink`."""
        if not self._queue:
            return ()
        place = await self._place(self._queue)
        return of_a_sink(await self._link.attributes(place.url), fifo=place.is_fifo)

    async def close(self) -> None:
        """See `windlass.bridges.sink`."""
        await self._link.close()

    async def _publish(self, queue: str, messages: Mapping[int, Outgoing]) -> list[tuple[int, str]]:
        """Send to one queue; the numbers of those that it will never take, and why."""
        if not queue:
            raise BridgeRefused(f"{self._link.shown} names no queue, and the message names none")
        place = await self._place(queue)
        entries: dict[int, Mapping[str, Any]] = {}
        refused: list[tuple[int, str]] = []
        for number, message in messages.items():
            entry = entry_of(message, number, fifo=place.is_fifo)
            if (size := size_of(entry)) > place.largest:
                refused.append((number, f"a message of {size:,} bytes is larger than its queue takes"))
            else:
                entries[number] = entry
        batches = list(_batches(list(entries.values())))
        try:
            if place.is_fifo:  # one after the other: a group keeps its order
                for batch in batches:
                    refused += await self._send(place, batch)
            else:
                for some in await all_of([self._send(place, batch) for batch in batches]):
                    refused += some
        except MissingQueue:
            self._places.pop(queue, None)
            raise
        return refused

    async def _send(self, place: _Queue, batch: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
        async with self._calls:
            told = await self._link.call("send_message_batch", QueueUrl=place.url, Entries=batch)
        failed: Sequence[Mapping[str, Any]] = told.get("Failed", ())
        for each in failed:
            if not each.get("SenderFault"):
                raise BridgeUnavailable(f"{self._link.shown}: {each['Code']}: {each.get('Message', '')}")
        return [(int(each["Id"]), f"{each['Code']}: {each.get('Message', '')}") for each in failed]

    async def _place(self, queue: str) -> _Queue:
        known = self._places.get(queue)
        if known is None:
            url = await self._link.url_of(queue)
            largest = int((await self._link.attributes(url)).get("MaximumMessageSize", _BYTES))
            known = self._places[queue] = _Queue(url, largest, queue.endswith(".fifo"))
        return known


def _batches(entries: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """As many entries as one call takes."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for entry in entries:
        more = size_of(entry)
        if batch and (len(batch) == _BATCH or size + more > _BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += more
    if batch:
        yield batch
