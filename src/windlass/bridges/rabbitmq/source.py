"""A queue of RabbitMQ's as a source: classic or quorum.

Messages come without being asked for, up to `prefetch`, and wait here. Those that the store did not accept go
back to the head of what waits here and not to RabbitMQ: a quorum queue counts how often it has delivered a
message, and RabbitMQ 4 drops it after twenty times.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from aiormq import Channel
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from windlass.bridges.message import Message
from windlass.bridges.rabbitmq.delivered import message_of
from windlass.bridges.rabbitmq.examine import warnings_of_queue
from windlass.bridges.rabbitmq.link import Link, ending_of
from windlass.bridges.rabbitmq.place import Endpoint
from windlass.errors import BridgeError, BridgeUnavailable

IDLE = 30.0
"""Seconds without `receive` after which others have what waits here: reading was paused, or the store is
away. RabbitMQ closes a channel that has not acknowledged for half an hour.
"""
HELD = 600.0
"""Seconds after which what was given back goes to RabbitMQ after all, for the same reason."""


class RabbitQueue:
    """Receives from one queue."""

    def __init__(self, link: Link, place: Endpoint) -> None:
        self._link = link
        self._queue = place.name
        self._prefetch = place.prefetch
        self._channel: Channel | None = None
        self._asking: Channel | None = None
        self._epoch = 0
        """Which channel a message came by: delivery tags begin anew with each."""
        self._waiting: deque[Message] = deque()
        self._out: set[int] = set()
        """The tags of what was handed out and is not acknowledged."""
        self._news = asyncio.Event()
        self._cancelled = False
        self._unnamed = False
        self._held_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def names_messages(self) -> bool:
        """Whether all that have come had a message id: its producers decide."""
        return not self._unnamed

    async def receive(self, limit: int, timeout: float) -> Sequence[Message]:
        """See `QueueSource`."""
        self._stay()
        await self._release_what_is_held()
        await self._consume()
        if not self._waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._news.wait()
        self._stay()
        return self._handed_out(limit) or self._nothing()

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """See `QueueSource`: one `multiple` for all, where nothing else is below the last of them."""
        tags = self._taken_in(messages)
        channel = self._channel
        if not tags or channel is None or channel.is_closed:
            return
        self._held_since = None
        last = max(tags)
        waiting = min((_tag(message) for message in self._waiting), default=last)
        alone = last <= min(self._out, default=last) and last <= waiting
        with contextlib.suppress(BridgeError):  # they come again, and are known
            await self._link.ask(lambda: _acknowledged(channel, [last] if alone else tags, multiple=alone))

    async def give_back(self, messages: Sequence[Message]) -> None:
        """See `QueueSource`: this one has them again, next."""
        tags = set(self._taken_in(messages))
        back = [message for message in messages if _tag(message) in tags and self._is_ours(message)]
        self._waiting.extendleft(reversed(back))
        if back:
            self._news.set()
            if self._held_since is None:
                self._held_since = asyncio.get_running_loop().time()

    async def lag(self) -> int | None:
        """What RabbitMQ has and nobody was sent, and what waits here."""
        counted = await self._link.ask(self._counted)
        return counted + len(self._waiting)

    async def warnings(self) -> Sequence[str]:
        """See `LogSource`."""
        found = await warnings_of_queue(self._link, self._queue)
        if self._unnamed:
            found.append(
                f'messages without a message id come to "{self._queue}": a repeat of one is another job; let '
                "their producers set message_id"
            )
        return found

    async def close(self) -> None:
        """See `QueueSource`."""
        if self._timer is not None:
            self._timer.cancel()
        self._forget()
        await self._link.close()

    # --- consuming ------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        """Have messages sent here, if they are not already."""
        if self._channel is not None and not self._channel.is_closed:
            return
        self._forget()
        self._channel = await self._link.ask(self._opened)
        ending_of(self._channel).add_done_callback(self._ended)

    async def _opened(self) -> Channel:
        channel = await self._link.channel()
        epoch = self._epoch

        async def arrived(delivered: DeliveredMessage) -> None:
            tag = delivered.delivery_tag
            if epoch == self._epoch and tag is not None:
                message = message_of(delivered, f"{epoch}:{tag}")
                self._unnamed |= message.id is None
                self._waiting.append(message)
                self._news.set()

        async def cancelled(_: Basic.Cancel) -> None:
            # What was sent here is not ours any more once the consumer is gone, and only the end of its
            # channel gives it back.
            if epoch == self._epoch:
                self._cancelled = True
                self._later(channel.close())
                self._news.set()

        channel.on_consumer_cancel_callbacks.add(cancelled)
        await channel.basic_qos(prefetch_count=self._prefetch)
        await channel.basic_consume(self._queue, arrived)
        return channel

    def _ended(self, ending: "asyncio.Future[Any]") -> None:
        if not ending.cancelled():
            ending.exception()  # it is looked at where nothing comes
        self._news.set()

    def _handed_out(self, limit: int) -> Sequence[Message]:
        if self._cancelled or self._channel is None or self._channel.is_closed:
            return ()
        handed = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        self._out.update(map(_tag, handed))
        if not self._waiting:
            self._news.clear()
        return handed

    def _nothing(self) -> Sequence[Message]:
        """Nothing has come; raises if nothing could."""
        channel = self._channel
        if self._cancelled:
            self._forget()
            raise BridgeUnavailable(
                f"{self._link.shown}: RabbitMQ stopped sending: the queue was deleted, or its node is away"
            )
        if channel is not None and channel.is_closed:
            ending = ending_of(channel)
            ended = ending.exception() if ending.done() and not ending.cancelled() else None
            self._forget()
            if ended is not None:
                raise self._link.refusal(ended) or self._link.trouble(ended)
            raise BridgeUnavailable(f"{self._link.shown}: the connection was lost")
        return ()

    async def _counted(self) -> int:
        if self._asking is None or self._asking.is_closed:
            self._asking = await self._link.channel()
        declared = await self._asking.queue_declare(self._queue, passive=True)
        return declared.message_count or 0

    # --- letting go -----------------------------------------------------------------------------------------

    def _stay(self) -> None:
        """Begin to count the seconds without `receive` anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE, self._idle)

    def _idle(self) -> None:
        if self._out:
            self._stay()
        else:
            self._let_go()

    async def _release_what_is_held(self) -> None:
        since = self._held_since
        if since is not None and not self._out and asyncio.get_running_loop().time() - since > HELD:
            self._let_go()

    def _let_go(self) -> None:
        """Give RabbitMQ all that is not acknowledged: by the end of the channel, which keeps its order."""
        channel = self._channel
        self._forget()
        if channel is not None:
            self._later(channel.close())

    def _forget(self) -> None:
        self._epoch += 1
        self._channel, self._cancelled, self._held_since = None, False, None
        self._waiting.clear()
        self._out.clear()
        self._news.clear()

    def _later(self, closing: object) -> None:
        task = asyncio.get_running_loop().create_task(_quietly(closing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_ours(self, message: Message) -> bool:
        return message.after.startswith(f"{self._epoch}:")

    def _taken_in(self, messages: Sequence[Message]) -> list[int]:
        """The tags of messages that were handed out and are not acknowledged, which they now count as."""
        tags = [tag for message in messages if self._is_ours(message) and (tag := _tag(message)) in self._out]
        self._out.difference_update(tags)
        return tags


def _tag(message: Message) -> int:
    return int(message.after.partition(":")[2])


async def _acknowledged(channel: Channel, tags: Sequence[int], *, multiple: bool) -> None:
    for tag in tags[:-1]:
        await channel.basic_ack(tag, multiple=multiple, wait=False)
    await channel.basic_ack(tags[-1], multiple=multiple)


async def _quietly(closing: object) -> None:
    with contextlib.suppress(Exception):
        await closing  # pyright: ignore[reportGeneralTypeIssues]
