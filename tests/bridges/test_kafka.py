"""What is Kafka's own: transactions, truncation, headers, logins, names of topics."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from confluent_kafka import Producer, TopicPartition, murmur2
from tests.bridges.kafka_ground import Kafka

from windlass.bridges.addresses import address_of, open_sink, open_source
from windlass.bridges.kafka.inbox import FULL
from windlass.bridges.kafka.source import KafkaSource
from windlass.bridges.message import Message, Outgoing
from windlass.bridges.sink import Sink
from windlass.bridges.source import Log, LogSource
from windlass.conformance.bridges.logs import bodies, read_all, said
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption

_ids = itertools.count(1)


@asynccontextmanager
async def reading(url: str) -> AsyncGenerator[LogSource]:
    source: Any = await open_source(address_of(url))
    try:
        yield source
    finally:
        await source.close()


@asynccontextmanager
async def publishing(url: str) -> AsyncGenerator[Sink]:
    sink = await open_sink(address_of(url))
    try:
        yield sink
    finally:
        await sink.close()


def in_a_loop(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


class Transaction:
    """A producer of transactions."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._topic = topic
        self.producer: Any = Producer(
            {
                "bootstrap.servers": kafka.broker.bootstrap,
                "transactional.id": f"tests-{next(_ids)}",
                "log_level": 0,
            }
        )
        self.producer.init_transactions(30)

    def send(self, *texts: str) -> None:
        """Begin one, if none is open, and write."""
        self.producer.begin_transaction()
        for text in texts:
            self.producer.produce(self._topic, text.encode(), partition=0)
        self.producer.flush(30)

    def commit(self, *texts: str) -> None:
        self.send(*texts)
        self.producer.commit_transaction(30)

    def abort(self, *texts: str) -> None:
        self.send(*texts)
        self.producer.abort_transaction(30)


async def until_passed(log: Log, at: str, offset: str) -> None:
    """Read nothing, until the log knows that there is nothing up to an offset."""
    for _ in range(60):
        assert await log.read(at, 10, 0.2) == []
        if await log.passed(at) == offset:
            return
    raise AssertionError(f"not passed: {offset}")


def test_what_a_transaction_has_aborted_is_left_out_and_passed_over(kafka: Kafka) -> None:
    topic = kafka.topic()
    transaction = Transaction(kafka, topic)

    async def story() -> None:
        transaction.commit("1", "2")  # offsets 0, 1; the marker is 2
        transaction.abort("x", "y")  # 3, 4, 5
        async with reading(kafka.url(topic)) as source:
            log = await source.open("0")
            found = await read_all(log, "0", 2)
            assert said(found) == [b"1", b"2"]
            at = found[-1].after
            assert await log.lag(at) == 4
            await until_passed(log, at, "6")
            assert await log.lag("6") == 0
            transaction.commit("3")
            assert said(await read_all(log, "6", 1)) == [b"3"]
            assert said(await read_all(log, at, 1)) == [b"3"]
        # Retention may drop all of it now: who has passed it has lost nothing.
        kafka.broker.delete_records(topic, 0, 6)
        async with reading(kafka.url(topic)) as source:
            log = await source.open("0")
            assert said(await read_all(log, "6", 1)) == [b"3"]

    in_a_loop(story)


def test_an_open_transaction_is_neither_read_nor_passed_over(kafka: Kafka) -> None:
    topic = kafka.topic()
    transaction = Transaction(kafka, topic)
    kafka.send(topic, bodies("1"))

    async def story() -> None:
        async with reading(kafka.url(topic)) as source:
            log = await source.open("0")
            at = (await read_all(log, "0", 1))[0].after
            transaction.send("2", "3")
            kafka.send(topic, bodies("4"))  # it waits for those before it
            assert await log.read(at, 10, 1.0) == []
            assert await log.passed(at) == at
            assert await log.begin(at_end=True) == "1"
            assert await log.lag(at) == 0
            transaction.producer.commit_transaction(30)
            assert said(await read_all(log, at, 3)) == [b"2", b"3", b"4"]

    in_a_loop(story)


def test_headers_that_are_no_text_are_left_out_and_the_last_of_a_name_counts(kafka: Kafka) -> None:
    topic = kafka.topic()
    producer: Any = Producer({"bootstrap.servers": kafka.broker.bootstrap, "log_level": 0})
    headers = [("a", b"1"), ("a", b"2"), ("none", None), ("bytes", b"\xff\xfe"), ("é", "ü".encode())]
    sent = int(time.time()) * 1_000 - 3_599_877  # an hour ago: the server removes what is older than a week
    producer.produce(topic, b"{}", key=b"\xff\x00", headers=headers, timestamp=sent)
    producer.flush(30)

    async def story() -> None:
        async with reading(kafka.url(topic)) as source:
            (message,) = await read_all(await source.open("0"), "0", 1)
        assert dict(message.headers) == {"a": "2", "none": "", "é": "ü"}
        assert (message.key, message.place, message.subject) == ("\\xff\x00", "0/0", topic)
        assert message.at == sent * 1_000
        assert message.id is None

    in_a_loop(story)


def test_readers_go_back_and_forth_and_never_miss_a_message(kafka: Kafka) -> None:
    """The client fetches ahead: what it has fetched for another offset must not come."""
    topic, count = kafka.topic(3), 3_000
    for partition in range(3):
        kafka.send(topic, bodies(*(f"{partition}/{number}" for number in range(count))), partition)

    async def read(source: LogSource, partition: int, draw: random.Random) -> None:
        log = await source.open(str(partition))
        for _ in range(8):
            first, wanted = draw.randrange(count), draw.randrange(1, 1_200)
            wanted = min(wanted, count - first)
            found = await read_all(log, str(first), wanted, limit=draw.randrange(1, 1_000))
            assert said(found) == [
                f"{partition}/{number}".encode() for number in range(first, first + wanted)
            ]

    async def story() -> None:
        async with reading(kafka.url(topic)) as source:
            await asyncio.gather(*(read(source, number, random.Random(number)) for number in range(3)))

    in_a_loop(story)


def test_a_partition_that_nobody_reads_on_does_not_hold_up_another(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, bodies(*map(str, range(3 * FULL))), 0)

    async def story() -> None:
        async with reading(kafka.url(topic)) as source:
            full, other = await source.open("0"), await source.open("1")
            first = await read_all(full, "0", 1)
            for number in range(5):
                kafka.send(topic, bodies(f"other {number}"), 1)
                assert said(await read_all(other, str(number), 1)) == [f"other {number}".encode()]
            rest = await read_all(full, first[0].after, 3 * FULL - 1, limit=500)
            assert said(rest) == [str(number).encode() for number in range(1, 3 * FULL)]

    in_a_loop(story)


def test_a_client_that_has_got_stuck_begins_anew(kafka: Kafka) -> None:
    topic = kafka.topic()

    async def story() -> None:
        async with reading(kafka.url(topic)) as source:
            log = await source.open("0")
            assert await log.read("0", 10, 0.5) == []
            pump = cast("KafkaSource", source).pump()
            pump._do(lambda: pump._consumer.pause([TopicPartition(topic, 0)]))
            assert await log.read("0", 10, 0.5) == []
            kafka.send(topic, bodies("1"))
            assert await log.read("0", 10, 1.0) == []
            assert [await log.lag("0"), await log.lag("0")] == [1, 1]
            assert said(await read_all(log, "0", 1)) == [b"1"]

    in_a_loop(story)


def test_monitors_of_consumer_groups_see_how_far_it_was_taken(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.send(topic, bodies("1", "2", "3"))

    async def story() -> None:
        async with reading(kafka.url(topic) + "?group=billing") as source:
            log = await source.open("0")
            found = await read_all(log, "0", 3)
            await log.commit(found[0].after)
            await log.commit(found[2].after)  # within a second: it is told when the source is closed
        async with reading(kafka.url(topic) + "?group=billing") as source:
            for _ in range(100):
                if await cast("KafkaSource", source).admin.committed("billing", topic, [0]) == {0: 3}:
                    return
                await asyncio.sleep(0.1)
        raise AssertionError("nothing was committed")

    in_a_loop(story)


def test_settings_that_promise_too_little_are_told(kafka: Kafka) -> None:
    short = kafka.topic(retention_ms="3600000", cleanup_policy="compact,delete")
    kafka.broker.make_topic("unclean", unclean_leader_election_enable="true")

    async def story() -> None:
        async with reading(kafka.url(short)) as source:
            found = await source.warnings()
            assert [word for word in ("one replica", "compact", "retention.ms") if word in str(found)] == [
                "one replica",
                "compact",
                "retention.ms",
            ]
        async with publishing(kafka.url("unclean")) as sink:
            assert "unclean.leader.election" in str(await sink.warnings())

    in_a_loop(story)


def test_messages_that_retention_will_delete_before_they_are_taken_are_told(kafka: Kafka) -> None:
    topic = kafka.topic(retention_ms=str(10 * 86_400_000))
    producer: Any = Producer({"bootstrap.servers": kafka.broker.bootstrap, "log_level": 0})
    now = int(time.time() * 1_000)
    for days in (9, 9, 1):
        producer.produce(topic, b"{}", timestamp=now - days * 86_400_000)
    producer.flush(30)

    async def warned(after: int) -> bool:
        async with reading(kafka.url(topic) + f"?group=late-{after}") as source:
            log = await source.open("0")
            await log.commit(str(after))
        async with reading(kafka.url(topic) + f"?group=late-{after}") as source:
            for _ in range(100):
                if await cast("KafkaSource", source).admin.committed(f"late-{after}", topic, [0]):
                    return "deletes them soon" in str(await source.warnings())
                await asyncio.sleep(0.1)
        raise AssertionError("nothing was committed")

    async def story() -> None:
        assert await warned(1)
        assert not await warned(2)

    in_a_loop(story)


def test_a_message_that_fits_alone_is_published_although_a_batch_of_them_does_not_fit(kafka: Kafka) -> None:
    topic = kafka.topic(max_message_bytes="20000")

    async def story() -> None:
        async with publishing(kafka.url(topic)) as sink:
            await sink.publish([Outgoing(id=str(number), body=b"x" * 9_000) for number in range(12)])
            assert sink.largest < 20_000
            with pytest.raises(BridgeRefused, match=r"max\.message\.bytes 20,000") as refusal:
                await sink.publish([Outgoing(id="large", body=b"x" * 20_001)])
            assert refusal.value.numbers == (0,)

    in_a_loop(story)
    assert len(kafka.read(topic, 12)) == 12


def test_a_name_that_cannot_be_a_topic_is_the_fault_of_the_message(kafka: Kafka) -> None:
    topic = kafka.topic()

    async def story() -> None:
        async with publishing(kafka.url("")) as sink:
            with pytest.raises(BridgeRefused, match="no topic"):
                await sink.publish([Outgoing(id="1", body=b"")])
            with pytest.raises(BridgeRefused, match="cannot be the name") as refusal:
                await sink.publish(
                    [Outgoing(id="1", body=b"", to=topic), Outgoing(id="2", body=b"", to="of müller")]
                )
            assert refusal.value.numbers == (1,)
            with pytest.raises(BridgeRefused, match="no such topic") as refusal:
                await sink.publish([Outgoing(id="1", body=b"", to="missing")])
            assert refusal.value.numbers == ()
            await sink.publish([Outgoing(id="1", body=b"1", to=topic)])

    in_a_loop(story)
    assert [message.body for message in kafka.read(topic, 1)] == [b"1"]


def test_a_key_goes_into_the_partition_into_which_other_clients_put_it(kafka: Kafka) -> None:
    topic = kafka.topic(5)
    keys = [f"key {number}" for number in range(20)]

    async def story() -> None:
        async with publishing(kafka.url(topic)) as sink:
            await sink.publish([Outgoing(id=key, body=key.encode(), key=key) for key in keys])
        async with reading(kafka.url(topic)) as source:
            for partition in range(5):
                mine = [key for key in keys if murmur2(key.encode(), 5) == partition]
                found: list[Message] = (
                    await read_all(await source.open(str(partition)), "0", len(mine)) if mine else []
                )
                assert {message.key for message in found} == set(mine)

    in_a_loop(story)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("kafka://host/topic?sals=PLAIN", "sals"),
        ("kafka://host/a/b", "more than a topic"),
        ("kafka://host", "no topic"),
        ("kafka:///topic", "no broker"),
        ("kafka://user:secret@host/topic", "sasl=SCRAM-SHA-512"),
        ("kafka://user:secret@host/topic?sasl=SCRAM", "SCRAM-SHA-512"),
        ("kafka://host/topic?sasl=PLAIN", "without a user"),
        ("kafka://host/topic?ca=/etc/ca.crt", "kafkas://"),
    ],
)
def test_a_url_that_has_no_meaning_is_refused(url: str, why: str) -> None:
    async def story() -> None:
        with pytest.raises(InvalidOption, match=why) as refusal:
            await open_source(address_of(url))
        assert "secret" not in str(refusal.value)

    in_a_loop(story)


def test_a_certificate_that_is_not_there_is_named() -> None:
    async def story() -> None:
        with pytest.raises(BridgeRefused, match=r"ssl\.ca\.location"):
            await open_source(address_of("kafkas://127.0.0.1:1/topic?ca=/missing/ca.crt"))

    in_a_loop(story)


def test_connections_that_are_reset_again_and_again_lose_nothing(kafka: Kafka) -> None:
    topic, count = kafka.topic(2), 100

    async def story() -> None:
        async with reading(kafka.url(topic)) as source, publishing(kafka.url(topic)) as sink:
            logs = [await source.open("0"), await source.open("1")]
            found: list[list[bytes | None]] = [[], []]

            async def take(number: int) -> None:
                at = "0"
                while sum(map(len, found)) < count:
                    for message in await patiently(lambda at=at: logs[number].read(at, 50, 0.3)):
                        found[number].append(message.body)
                        at = message.after

            async def send() -> None:
                for start in range(0, count, 20):
                    batch = [
                        Outgoing(id=str(each), body=str(each).encode(), key=str(each))
                        for each in range(start, start + 20)
                    ]
                    await patiently(lambda batch=batch: sink.publish(batch))
                    kafka.reset()

            await asyncio.wait_for(asyncio.gather(send(), take(0), take(1)), 120)
            # What the producer itself sends again is kept once.
            assert sorted(int(body or b"") for body in itertools.chain(*found)) == list(range(count))

    in_a_loop(story)


async def patiently(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    while True:
        try:
            return await call()
        except BridgeUnavailable:
            await asyncio.sleep(0.05)
