"""A broker that is frozen, and one that has lost what it had acknowledged."""

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.bridges.kafka_ground import Kafka
from tests.bridges.test_kafka import in_a_loop, patiently, reading

from windlass.bridges.source import Log
from windlass.conformance.bridges.logs import bodies, read_all, refused, said
from windlass.errors import BridgeUnavailable

pytestmark = pytest.mark.slow


def test_a_truncated_log_is_not_read_on(own_kafka: Kafka, tmp_path: Path) -> None:
    """Not while it is too short, and not when other messages stand where those were that it has lost."""
    topic, broker = own_kafka.topic(), own_kafka.broker
    own_kafka.send(topic, bodies(*"12345"))
    broker.stop()
    partition = broker.data / f"{topic}-0"
    shutil.copytree(partition, tmp_path / "copy")
    broker.start()
    own_kafka.send(topic, bodies(*"67890"))

    async def story() -> None:
        async with reading(own_kafka.url(topic)) as source:
            log = await source.open("0")
            found = await read_all(log, "0", 10)
            assert said(found) == [digit.encode() for digit in "1234567890"]
            at = found[-1].after
            broker.kill()
            shutil.rmtree(partition)
            shutil.copytree(tmp_path / "copy", partition)
            await asyncio.to_thread(broker.start)
            await refused(log, at)
        own_kafka.send(topic, bodies(*"abcdefghij"))
        async with reading(own_kafka.url(topic)) as source:
            log = await source.open("0")
            await refused(log, at)
            await refused(log, at)
            new = [letter.encode() for letter in "abcdefghij"]
            assert said(await read_all(log, found[4].after, 10)) == new

    in_a_loop(story)


def test_a_frozen_broker_is_unavailable_and_read_on_when_it_thaws(own_kafka: Kafka) -> None:
    topic, broker = own_kafka.topic(), own_kafka.broker
    own_kafka.send(topic, bodies("1"))

    async def story() -> None:
        async with reading(own_kafka.url(topic)) as source:
            log = await source.open("0")
            at = (await read_all(log, "0", 1))[0].after
            broker.freeze()
            try:
                with pytest.raises(BridgeUnavailable):
                    await _reads_nothing(log, at)
            finally:
                broker.thaw()
            own_kafka.send(topic, bodies("2"))
            assert said(await patiently(lambda: read_all(log, at, 1))) == [b"2"]

    in_a_loop(story)


async def _reads_nothing(log: Log, at: str) -> None:
    for _ in range(60):
        assert await log.read(at, 10, 1.0) == []
