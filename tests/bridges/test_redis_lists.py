"""Lists of Redis, as Celery writes them, are what sources and sinks must be, on a real server."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kombu import Connection, Queue
from redis.asyncio import Redis
from tests.bridges.doors import Doored
from tests.broker.redis.servers import redis_binary, running

from windlass.bridges.addresses import address_of, open_sink, open_source
from windlass.bridges.message import Outgoing
from windlass.bridges.redis_lists.envelope import opened as envelope_opened
from windlass.bridges.redis_lists.place import place_of
from windlass.bridges.sink import Sink
from windlass.bridges.source import QueueSource
from windlass.conformance.bridges.ground import QueueGround, Sent, SinkGround
from windlass.conformance.bridges.queues import *  # noqa: F403
from windlass.conformance.bridges.queues import numbers_of, receive_all
from windlass.conformance.bridges.sinks import *  # noqa: F403
from windlass.errors import BridgeRefused, InvalidOption
from windlass.verify.stores.own import free_port

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def redis_port() -> Iterator[int]:
    """A server that listens, without persistence."""
    port = free_port()
    with running(redis_binary(), "--port", str(port), "--bind", "127.0.0.1"):
        yield port


class Lists:
    """A server with a door, and lists that no other test uses."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.door = Doored(port)
        self.client: Any = Redis(host="127.0.0.1", port=port)
        self.name = f"list-{next(_numbers)}"

    async def url(self, name: str, options: str = "&hold=1") -> str:
        return f"redis://{await self.door.host()}/0?list={name}{options}"

    async def close(self) -> None:
        await self.door.close()
        await self.client.aclose()


class RedisQueues(QueueGround):
    has_priorities = True
    refuses_unknown = False

    def __init__(self, runner: asyncio.Runner, port: int) -> None:
        super().__init__(runner)
        self.lists = Lists(port)

    async def source(self) -> QueueSource:
        source: Any = await open_source(address_of(await self.lists.url(self.lists.name)))
        return source

    async def unknown(self) -> QueueSource:
        raise NotImplementedError

    async def send(self, messages: Sequence[Sent], priority: int | None = None) -> None:
        await asyncio.to_thread(self._send, messages, priority)

    def _send(self, messages: Sequence[Sent], priority: int | None) -> None:
        with Connection(f"redis://127.0.0.1:{self.lists.port}/0") as connection:
            producer = connection.Producer()
            for message in messages:
                producer.publish(
                    message.body or b"",
                    routing_key=self.lists.name,
                    declare=[Queue(self.lists.name, routing_key=self.lists.name)],
                    content_type="application/data",
                    content_encoding="binary",
                    headers=dict(message.headers),
                    priority=priority,
                    **({"message_id": message.id} if message.id else {}),
                )

    async def outage(self) -> None:
        self.lists.door.shut()

    async def recovery(self) -> None:
        self.lists.door.open()


class RedisSinks(SinkGround):
    has_keys = False
    refuses_unknown = False
    unfit = b"x" * (64 * 1024 * 1024 + 1)

    def __init__(self, runner: asyncio.Runner, port: int) -> None:
        super().__init__(runner)
        self.lists = Lists(port)
        self.other = f"{self.lists.name}-other"

    async def sink(self) -> Sink:
        return await open_sink(address_of(await self.lists.url(self.lists.name, "")))

    async def sink_nowhere(self) -> Sink:
        raise NotImplementedError

    async def found(self, count: int, place: str | None = None) -> Sequence[Sent]:
        async with asyncio.timeout(10):
            while (  # noqa: ASYNC110 - only the server knows
                await self.lists.client.llen(place or self.lists.name) < count
            ):
                await asyncio.sleep(0.01)
        raw = await self.lists.client.lrange(place or self.lists.name, -count, -1)
        messages = [envelope_opened(each, subject="", after="") for each in reversed(raw)]
        return [Sent(message.body, message.headers, id=message.id) for message in messages]

    def id_of(self, message: Sent) -> str | None:
        return message.id

    async def outage(self) -> None:
        self.lists.door.shut()

    async def recovery(self) -> None:
        self.lists.door.open()


@pytest.fixture
def queues(redis_port: int) -> Iterator[RedisQueues]:
    with asyncio.Runner() as runner:
        ground = RedisQueues(runner, redis_port)
        yield ground
        runner.run(ground.lists.close())


@pytest.fixture
def sinks(redis_port: int) -> Iterator[RedisSinks]:
    with asyncio.Runner() as runner:
        ground = RedisSinks(runner, redis_port)
        yield ground
        runner.run(ground.lists.close())


@asynccontextmanager
async def reader(queues: RedisQueues, options: str = "&hold=1") -> AsyncGenerator[QueueSource]:
    source: Any = await open_source(address_of(await queues.lists.url(queues.lists.name, options)))
    try:
        yield source
    finally:
        await source.close()


async def test_what_a_dead_reader_has_taken_comes_again(queues: RedisQueues) -> None:
    await queues.send([Sent(b"%d" % number) for number in range(5)])
    dead: Any = await queues.source()
    assert numbers_of(await receive_all(dead, 3, limit=3)) == [0, 1, 2]
    async with reader(queues) as source:
        # It says nothing more: after a second others have them, before what came later.
        found = await receive_all(source, 2)
        assert numbers_of(found) == [3, 4]
        async with asyncio.timeout(20):
            while len(found) < 5:
                await source.give_back(found)
                found = list(await source.receive(10, 0.1))
        assert numbers_of(found) == [0, 1, 2, 3, 4]
        await source.acknowledge(found)
        assert await source.lag() == 0
    await dead.close()


async def test_what_a_dead_reader_with_more_steps_has_taken_comes_again(queues: RedisQueues) -> None:
    for number, priority in enumerate((0, 9)):
        await queues.send([Sent(b"%d" % number)], priority)
    dead: Any = await queues.source()
    assert numbers_of(await receive_all(dead, 2)) == [0, 1]
    async with reader(queues, "&hold=1&steps=0") as source:
        async with asyncio.timeout(20):
            found = await receive_all(source, 2)
        assert sorted(numbers_of(found)) == [0, 1]
        await source.acknowledge(found)
    await dead.close()


async def test_priorities_are_read_in_their_order(queues: RedisQueues) -> None:
    for number, priority in enumerate((9, None, 3, 0, 5)):
        await queues.send([Sent(b"%d" % number)], priority)
    async with reader(queues) as source:
        found = await receive_all(source, 5)
    assert numbers_of(found) == [1, 3, 2, 4, 0]
    assert [message.priority for message in found] == [None, None, -3, -5, -9]


async def test_what_is_no_envelope_is_a_body(queues: RedisQueues) -> None:
    written = [b'{"order": 1}', b"\xff\x00", b'{"body": "%%%", "properties": {"body_encoding": "base64"}}']
    for raw in written:
        await queues.lists.client.lpush(queues.lists.name, raw)
    async with reader(queues) as source:
        assert [message.body for message in await receive_all(source, 3)] == written
        assert not source.names_messages


async def test_kombu_reads_what_was_written(sinks: RedisSinks) -> None:
    sink = await sinks.sink()
    message = Outgoing(
        id="one",
        body=b'{"a": 1}',
        headers={"tenant": "acme"},
        properties={"content_type": "application/json", "content_encoding": "utf-8"},
    )
    await sink.publish([message])
    await sink.close()

    def read() -> Any:
        with Connection(f"redis://127.0.0.1:{sinks.lists.port}/0") as connection:
            queue = connection.SimpleQueue(sinks.lists.name)
            got = queue.get(timeout=10)
            got.ack()
            queue.close()
            return got

    got = await asyncio.to_thread(read)
    assert (got.payload, got.headers["tenant"]) == ({"a": 1}, "acme")


async def test_another_kind_of_key_is_refused(queues: RedisQueues) -> None:
    await queues.lists.client.set(queues.lists.name, "text")
    async with reader(queues) as source:
        with pytest.raises(BridgeRefused, match="WRONGTYPE"):
            await source.receive(1, 0)


async def test_an_operator_is_told_of_what_redis_may_lose(queues: RedisQueues) -> None:
    async with reader(queues) as source:
        assert any("appendonly" in warning for warning in await source.warnings())


@pytest.mark.parametrize(
    "url",
    [
        "redis://host/0",
        "redis://host/0?list=a&misspelled=1",
        "redis://host/zero?list=a",
        "redis://h1,h2/0?list=a",
        "redis://host/0?list=a&steps=0,10",
        "redis://host/0?list=a&hold=0",
    ],
)
def test_urls_that_cannot_be_are_refused(url: str) -> None:
    with pytest.raises(InvalidOption):
        place_of(address_of(url))
