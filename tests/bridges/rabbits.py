"""RabbitMQ for tests: one server for a test run, a queue of its own for each test, and a door to it that can
be shut.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import aiormq
import kombu
import pytest
from pamqp.commands import Basic
from tests.bridges.doors import Doored
from tests.bridges.servers import without

from windlass.bridges.addresses import address_of, open_sink, open_source
from windlass.bridges.sink import Sink
from windlass.bridges.source import QueueSource
from windlass.conformance.bridges.ground import QueueGround, Sent, SinkGround
from windlass.verify.brokers.places import Missing
from windlass.verify.brokers.rabbitmq import Rabbit

QUORUM = {"x-queue-type": "quorum"}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def rabbit() -> Iterator[Rabbit]:
    """One node."""
    try:
        server = Rabbit()
    except Missing as missing:
        without(missing)
    try:
        server.start()
        yield server
    finally:
        server.close()


def new_name(kind: str) -> str:
    """A name that no other test uses."""
    return f"{kind}-{next(_numbers)}"


class Client:
    """A plain client, which is not the adapter."""

    def __init__(self, server: Rabbit, node: int = 0) -> None:
        self._url = server.url(node=node)
        self._channel: Any = None
        self._connection: Any = None

    async def channel(self) -> Any:
        """A channel with confirms, as long as its server runs."""
        if self._channel is None or self._channel.is_closed:
            self._connection = await aiormq.connect(self._url)
            self._channel = await self._connection.channel()
        return self._channel

    async def queue(self, name: str, arguments: dict[str, Any] | None = None) -> str:
        """Declare a durable queue."""
        await (await self.channel()).queue_declare(name, durable=True, arguments=arguments or {})
        return name

    async def send(
        self, queue: str, messages: Sequence[Sent], *, exchange: str = "", priority: int | None = None
    ) -> None:
        """Publish, confirmed."""
        channel = await self.channel()
        for message in messages:
            await channel.basic_publish(
                message.body or b"",
                exchange=exchange,
                routing_key=queue,
                properties=Basic.Properties(
                    delivery_mode=2,
                    message_id=message.id,
                    headers=dict(message.headers),
                    priority=priority,
                ),
            )

    async def send_without_id(self, queue: str, body: bytes) -> None:
        """Publish by yet another client: this one makes an id up where there is none."""

        def publish() -> None:
            with kombu.Connection(self._url) as connection:
                connection.Producer().publish(body, routing_key=queue, content_type="application/data")

        await asyncio.to_thread(publish)

    async def send_together(self, queue: str, messages: Sequence[Sent]) -> None:
        """Publish without waiting for one before the next; return when all are confirmed."""
        await self.channel()
        await asyncio.gather(*(self.send(queue, [message]) for message in messages))

    async def found(self, queue: str, count: int) -> list[Any]:
        """The messages of a queue, which are acknowledged; as many as are asked for."""
        channel, found = await self.channel(), []
        async with asyncio.timeout(30):
            while len(found) < count:
                message = await channel.basic_get(queue, no_ack=True)
                if message.delivery_tag is None:
                    await asyncio.sleep(0.05)
                else:
                    found.append(message)
        return found

    async def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(aiormq.AMQPError, OSError):
                await self._connection.close()


class RabbitQueues(QueueGround):
    """A queue, classic or quorum."""

    has_priorities = True

    def __init__(self, runner: asyncio.Runner, server: Rabbit, arguments: dict[str, Any]) -> None:
        super().__init__(runner)
        self.client = Client(server)
        self._door = Doored(server.ports[0])
        self.name = runner.run(self.client.queue(new_name("queue"), arguments))

    async def source(self) -> QueueSource:
        return await self._opened(self.name)

    async def unknown(self) -> QueueSource:
        return await self._opened("nowhere")

    async def _opened(self, name: str) -> QueueSource:
        source: Any = await open_source(address_of(f"amqp://guest:guest@{await self._door.host()}/{name}"))
        return source

    async def send(self, messages: Sequence[Sent], priority: int | None = None) -> None:
        await self.client.send(self.name, messages, priority=priority)

    async def outage(self) -> None:
        self._door.shut()

    async def recovery(self) -> None:
        self._door.open()

    async def close(self) -> None:
        await self._door.close()
        await self.client.close()


class RabbitSinks(SinkGround):
    """An exchange with a queue for each of two routing keys."""

    has_keys = False
    other = "there"
    unfit = b"x" * (16 * 1024 * 1024 + 1)

    def __init__(self, runner: asyncio.Runner, server: Rabbit) -> None:
        super().__init__(runner)
        self.client = Client(server)
        self._door = Doored(server.ports[0])
        self._kept: dict[str, list[Sent]] = {}
        self.exchange = new_name("exchange")
        self._queues = runner.run(self._made())

    async def _made(self) -> dict[str | None, str]:
        channel = await self.client.channel()
        await channel.exchange_declare(self.exchange, exchange_type="direct", durable=True)
        queues: dict[str | None, str] = {}
        for place, key in ((None, "here"), (self.other, self.other)):
            queues[place] = await self.client.queue(new_name("queue"))
            await channel.queue_bind(queues[place], self.exchange, key)
        return queues

    async def sink(self) -> Sink:
        return await open_sink(
            address_of(f"amqp://guest:guest@{await self._door.host()}/{self.exchange}?key=here")
        )

    async def sink_nowhere(self) -> Sink:
        return await open_sink(address_of(f"amqp://guest:guest@{await self._door.host()}/nowhere?key=here"))

    async def found(self, count: int, place: str | None = None) -> Sequence[Sent]:
        kept = self._kept.setdefault(place or "", [])
        for message in await self.client.found(self._queues[place], count - len(kept)):
            said = message.header.properties
            kept.append(Sent(message.body, dict(said.headers or {}), id=said.message_id))
        return kept[:count]

    def id_of(self, message: Sent) -> str | None:
        return message.id

    async def outage(self) -> None:
        self._door.shut()

    async def recovery(self) -> None:
        self._door.open()

    async def close(self) -> None:
        await self._door.close()
        await self.client.close()
