"""A Kafka for tests: one broker for each process of pytest, a door to it through a proxy, and topics."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from tests.bridges.servers import without

from windlass.bridges.addresses import address_of, open_sink, open_source
from windlass.bridges.kafka.sink import ID_HEADER
from windlass.bridges.sink import Sink
from windlass.bridges.source import LogSource
from windlass.conformance.bridges.ground import LogGround, Sent, SinkGround
from windlass.verify.brokers.kafka import Listener, OwnKafka
from windlass.verify.brokers.places import Missing
from windlass.verify.network import Network
from windlass.verify.processes import Starter
from windlass.verify.stores.own import free_port

DOOR = "door"
_numbers = itertools.count(1)


class Kafka:
    """A broker, and the proxy before it."""

    def __init__(self, starter: Starter, folder: Path, *listeners: Listener, **settings: Any) -> None:
        inside = free_port()
        self.network = Network(("127.0.0.1", inside), [DOOR])
        self.door = self.network.doors[DOOR]
        self.broker = OwnKafka(starter, folder, Listener("DOOR", inside, self.door), *listeners, **settings)
        self._producer: Any = None

    def topic(self, partitions: int = 1, **settings: str) -> str:
        """Make a topic; its name."""
        name = f"t{next(_numbers)}"
        self.broker.make_topic(name, partitions, **settings)
        return name

    def url(self, topic: str, *, through_the_door: bool = True) -> str:
        """Of a topic."""
        port = self.door if through_the_door else self.broker.port
        return f"kafka://127.0.0.1:{port}/{topic}"

    def send(self, topic: str, messages: Sequence[Sent], partition: int = 0) -> None:
        """Not through the door."""
        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        errors: list[Any] = []
        for message in messages:
            self._producer.produce(
                topic,
                message.body,
                key=message.key.encode() or None,
                partition=partition,
                headers=[(name, value.encode()) for name, value in message.headers.items()],
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
            self._producer.poll(0)
        assert self._producer.flush(30) == 0
        assert errors == []

    def read(self, topic: str, count: int, within: float = 30.0) -> list[Sent]:
        """The first messages of a topic, by partition."""
        consumer = self.consumer()
        try:
            known = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in known])
            found: list[Sent] = []
            end = time.monotonic() + within
            while len(found) < count and time.monotonic() < end:
                found += [_sent(record) for record in consumer.consume(count - len(found), 0.2)]
            assert len(found) == count
            return found
        finally:
            consumer.close()

    def consumer(self) -> Any:
        """A plain one."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "group.id": "tests", "log_level": 0}
        return Consumer({**settings, "enable.auto.commit": False})

    def recreate(self, topic: str, partitions: int) -> None:
        """Delete a topic and make it anew; the broker takes a moment to forget it."""
        self.broker.delete_topic(topic)
        for _ in range(200):
            with contextlib.suppress(KafkaException):
                self.broker.make_topic(topic, partitions)
                self._forget_producer()  # it would take a while to see that the topic is another one
                return
            time.sleep(0.05)
        raise AssertionError("the topic cannot be made anew")

    def _forget_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def reset(self) -> None:
        """Reset all connections through the door, once."""
        self.network.weather([DOOR], reset=True)
        self.network.weather([DOOR])

    def close(self) -> None:
        """End both."""
        self._forget_producer()
        self.broker.close()
        self.network.close()


def _running(starter: Starter, folder: Path) -> Iterator[Kafka]:
    try:
        running = Kafka(starter, folder)
    except Missing as missing:
        without(missing)
    try:
        running.broker.start()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def kafka(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker for a whole process of pytest: each test makes topics of its own."""
    yield from _running(starter, tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def own_kafka(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One that a test may harm."""
    yield from _running(starter, tmp_path_factory.mktemp("own-kafka"))


class KafkaLogGround(LogGround):
    """A topic of its own with one partition."""

    first = "0"
    has_tombstones = True

    def __init__(self, runner: asyncio.Runner, kafka: Kafka) -> None:
        super().__init__(runner)
        self._kafka = kafka
        self._partitions = 1
        self.topic = kafka.topic()

    async def outage(self) -> None:
        self._kafka.network.weather([DOOR], refuse=True)

    async def recovery(self) -> None:
        self._kafka.network.clear()

    async def source(self) -> LogSource:
        return await _source(self._kafka.url(self.topic))

    async def unknown(self) -> LogSource:
        return await _source(self._kafka.url("nowhere"))

    async def send(self, messages: Sequence[Sent], partition: str | None = None) -> None:
        await asyncio.to_thread(self._kafka.send, self.topic, messages, int(partition or self.first))

    async def drop(self, messages: int) -> None:
        self._kafka.broker.delete_records(self.topic, 0, messages)

    async def recreate(self) -> None:
        await asyncio.to_thread(self._kafka.recreate, self.topic, self._partitions)

    async def grow(self) -> str:
        self._partitions += 1
        self._kafka.broker.add_partitions(self.topic, self._partitions)
        return str(self._partitions - 1)


class KafkaSinkGround(SinkGround):
    """A topic of three partitions, and another one of one."""

    unfit = b"x" * 1_100_000

    def __init__(self, runner: asyncio.Runner, kafka: Kafka) -> None:
        super().__init__(runner)
        self._kafka = kafka
        self.topic, self.other = kafka.topic(3), kafka.topic()

    async def outage(self) -> None:
        self._kafka.network.weather([DOOR], refuse=True)

    async def recovery(self) -> None:
        self._kafka.network.clear()

    async def sink(self) -> Sink:
        return await open_sink(address_of(self._kafka.url(self.topic) + "?timeout=3"))

    async def sink_nowhere(self) -> Sink:
        return await open_sink(address_of(self._kafka.url("nowhere")))

    async def found(self, count: int, place: str | None = None) -> Sequence[Sent]:
        return await asyncio.to_thread(self._kafka.read, place or self.topic, count)

    def id_of(self, message: Sent) -> str | None:
        return message.headers[ID_HEADER]


async def _source(url: str) -> LogSource:
    source = await open_source(address_of(url))
    assert not hasattr(source, "receive")
    return source  # type: ignore[return-value]


def _sent(record: Any) -> Sent:
    assert record.error() is None, record.error()
    headers: Mapping[str, str] = {name: value.decode() for name, value in record.headers() or ()}
    return Sent(record.value(), headers, (record.key() or b"").decode())
