"""Intakes from Kafka and its broker are killed, producers are others: every message is one job."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from tests.bridges.kafka_ground import Kafka
from tests.bridges.killing import Killing, store_of
from tests.bridges.taking import Taking, taking

from windlass.conformance.bridges.ground import Sent

STORES = ["sqlite", "redis", "postgres"]
# Nobody runs the jobs: all messages of a test are fewer than the ready jobs at which an intake waits.


def killing(kafka: Kafka, folder: Path, store: str, *, seed: int) -> Killing:
    """Of a topic of its own. The producer has time enough to send again by itself, which makes no repeats."""
    url = kafka.url(kafka.topic(3))
    return Killing(folder, store, url, f"{url}?timeout=300", seed=seed)


@pytest.mark.parametrize("store", STORES)
def test_a_killed_intake_loses_nothing_and_repeats_nothing(kafka: Kafka, tmp_path: Path, store: str) -> None:
    with store_of(store, tmp_path) as url:
        killing(kafka, tmp_path, url, seed=1).play(2)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_intakes_that_are_killed_two_hundred_times(kafka: Kafka, tmp_path: Path, store: str) -> None:
    with store_of(store, tmp_path) as url:
        killing(kafka, tmp_path, url, seed=2).play(200, burst=45)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_broker_that_is_killed_fifty_times(own_kafka: Kafka, tmp_path: Path, store: str) -> None:
    async def blow() -> None:
        own_kafka.broker.kill()
        await asyncio.to_thread(own_kafka.broker.start)

    with store_of(store, tmp_path) as url:
        killing(own_kafka, tmp_path, url, seed=3).play(50, blow)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_connections_that_are_reset_a_hundred_times(kafka: Kafka, tmp_path: Path, store: str) -> None:
    async def blow() -> None:
        kafka.reset()

    with store_of(store, tmp_path) as url:
        killing(kafka, tmp_path, url, seed=4).play(100, blow, burst=60)


def test_messages_of_kafkas_own_producer_become_jobs(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    lines = "".join(f'key {number % 7}\t{{"n": {number}}}\n' for number in range(500))
    command = kafka.broker.tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kafka.broker.bootstrap, "--topic", topic),
        *("--reader-property", "parse.key=true", "--compression-codec", "zstd"),
    )
    with store_of("sqlite", tmp_path) as store, taking(tmp_path, store, kafka.url(topic)) as intake:
        subprocess.run(command, input=lines.encode(), check=True, capture_output=True)
        asyncio.run(intake.until_taken(*range(500)))


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in STORES[1:])]
)
def test_a_topic_that_is_made_anew_stops_the_intake_until_an_operator_says_where_to_go_on(
    kafka: Kafka, tmp_path: Path, store: str
) -> None:
    topic = kafka.topic()

    async def story(intake: Taking) -> None:
        kafka.send(topic, numbered(1, 2, 3))
        await intake.until_taken(1, 2, 3)
        (before,) = await intake.offsets()
        kafka.recreate(topic, 1)
        kafka.send(topic, numbered(4, 5, 6, 7))
        status = await intake.until_told(lambda told: "0" in told.partitions and told.partitions["0"].stopped)
        assert "made anew" in status.partitions["0"].error
        assert list(await intake.offsets()) == [before]
        await intake.until_taken(1, 2, 3)
        await intake.forget("0")
        await intake.until_taken(1, 2, 3, 4, 5, 6, 7)
        (after,) = await intake.offsets()
        assert after.source.identity != before.source.identity

    with store_of(store, tmp_path) as url, taking(tmp_path, url, kafka.url(topic)) as intake:
        asyncio.run(story(intake))


def numbered(*numbers: int) -> list[Sent]:
    return [Sent(b'{"n": %d}' % number) for number in numbers]
