"""Publishes to an exchange of RabbitMQ's, or to a queue. RabbitMQ confirms what its queues have taken."""

import asyncio
from collections.abc import Sequence

from aiormq import Channel
from aiormq import exceptions as amqp

from windlass.bridges.message import Outgoing
from windlass.bridges.rabbitmq.delivered import properties_of
from windlass.bridges.rabbitmq.examine import warnings_of_exchange, warnings_of_queue
from windlass.bridges.rabbitmq.link import ANSWERS_WITHIN, Link
from windlass.bridges.rabbitmq.place import Endpoint
from windlass.errors import BridgeError, BridgeRefused, BridgeUnavailable

LARGEST = 16 * 1024 * 1024
"""Bytes of a message, as RabbitMQ 4 has it unless told otherwise (max_message_size)."""
_LONGEST_KEY = 255


class RabbitSink:
    """Publishes to one exchange."""

    def __init__(self, link: Link, place: Endpoint) -> None:
        self._link = link
        self._name = place.name
        self._key = place.key
        self._to_queue = False
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()

    @property
    def largest(self) -> int:
        """See `Sink`."""
        return LARGEST

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """See `Sink`: persistent, mandatory and confirmed."""
        if unfit := [number for number, each in enumerate(messages) if not self._can_be_sent(each)]:
            raise BridgeRefused(
                f"{self._link.shown}: a message is larger than {LARGEST:,} bytes, or its routing key than "
                f"{_LONGEST_KEY}",
                tuple(unfit),
            )
        if await self._link.blocked():
            raise self._blocked()
        channel = await self._open()
        if not messages:
            return
        try:
            await self._confirmed(channel, messages)
        except BridgeError:
            raise
        except TimeoutError:
            # A connection that is blocked is kept: RabbitMQ would not notice that it was left, and each try
            # would leave another.
            if await self._link.blocked():
                raise self._blocked() from None
            self._link.drop()
            raise BridgeUnavailable(
                f"{self._link.shown} did not confirm within {ANSWERS_WITHIN:g} s"
            ) from None

    async def warnings(self) -> Sequence[str]:
        """See `Sink`."""
        await self._open()
        if self._to_queue:
            return await warnings_of_queue(self._link, self._name)
        return await warnings_of_exchange(self._link, self._name)

    async def close(self) -> None:
        """See `Sink`."""
        await self._link.close()

    def _can_be_sent(self, message: Outgoing) -> bool:
        return (
            len(message.body or b"") <= LARGEST and len(self._routing_key(message).encode()) <= _LONGEST_KEY
        )

    def _routing_key(self, message: Outgoing) -> str:
        return message.to or self._key or (self._name if self._to_queue else "")

    async def _open(self) -> Channel:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._link.ask(self._opened)
            return self._channel

    async def _opened(self) -> Channel:
        self._to_queue = await self._is_queue()
        return await self._link.channel(confirms=True)

    async def _is_queue(self) -> bool:
        """Whether the name is that of a queue: there is no exchange of that name."""
        if not self._name:
            return False
        channel = await self._link.channel()
        try:
            await channel.exchange_declare(self._name, passive=True)
        except amqp.ChannelNotFoundEntity:
            channel = await self._link.channel()
            try:
                await channel.queue_declare(self._name, passive=True)
            except amqp.ChannelNotFoundEntity as error:
                if (refused := self._link.refusal(error)) is None:
                    raise
                raise BridgeRefused(
                    f"{self._link.shown}: there is no such exchange, and no queue"
                ) from refused
            await channel.close()
            return True
        await channel.close()
        return False

    async def _confirmed(self, channel: Channel, messages: Sequence[Outgoing]) -> None:
        """Send all of them, in order, and wait for all confirmations."""
        exchange = "" if self._to_queue else self._name

        async def sent(message: Outgoing) -> None:
            await channel.basic_publish(
                message.body or b"",
                exchange=exchange,
                routing_key=self._routing_key(message),
                properties=properties_of(message),
                mandatory=True,
                wait=False,
            )

        tasks = [asyncio.ensure_future(sent(message)) for message in messages]
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
        self._judge([error for task in tasks if (error := _error(task)) is not None])

    def _judge(self, errors: Sequence[BaseException]) -> None:
        """Raise what tells most of what went wrong, if something did."""
        if not errors:
            return
        for error in errors:
            if isinstance(error, amqp.PublishError):
                text, key = error.args[0], error.args[1]
                raise BridgeRefused(
                    f'{self._link.shown}: no queue takes what is sent with the routing key "{key}" ({text}); '
                    "bind one"
                )
        for error in errors:
            if isinstance(error, amqp.DeliveryError):
                # By another channel it may be taken at once: after the leader of a quorum queue was killed,
                # RabbitMQ (3.10) refused all that came by channels of before, for as long as they were open.
                self._link.drop()
                raise BridgeUnavailable(
                    f"{self._link.shown}: a queue takes no messages for now: it is full, or lost its nodes"
                )
        for error in errors:
            if (refused := self._link.refusal(error)) is not None:
                raise refused
        self._link.drop()
        raise self._link.trouble(errors[0])

    def _blocked(self) -> BridgeUnavailable:
        return BridgeUnavailable(
            f"{self._link.shown}: RabbitMQ is low on memory or on disk and takes no messages for now: "
            "rabbitmq-diagnostics alarms"
        )


def _error(task: "asyncio.Future[None]") -> BaseException | None:
    if task.cancelled():
        return BridgeUnavailable("the connection was lost")
    return task.exception()
