"""The store is away for a minute while messages come: each is one job, whatever carries them."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.bridges.killed_intakes import Intakes, SomeStore, any_store
from tests.bridges.nats_server import in_loop, make_stream
from tests.bridges.rabbits import QUORUM, Client, new_name
from tests.bridges.sqs_server import make_queue

from windlass.bridges.addresses import address_of, open_sink
from windlass.bridges.message import Outgoing

__all__ = ["any_store"]

pytestmark = pytest.mark.slow
AWAY = 60.0
"""Seconds."""


@pytest.fixture(params=["kafka", "nats-stream", "nats-queue", "rabbitmq", "sqs"])
def urls(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Where messages are read from, and where they are sent to."""
    match request.param:
        case "kafka":
            kafka: Any = request.getfixturevalue("kafka")
            url = kafka.url(kafka.topic(3))
            return url, f"{url}?timeout=300"
        case "rabbitmq":
            rabbit: Any = request.getfixturevalue("rabbit")
            url = rabbit.url(asyncio.run(_queue(rabbit)))
            return url, url
        case "sqs":
            sqs: Any = request.getfixturevalue("sqs")
            queue = asyncio.run(make_queue(sqs, fifo=False))
            url = f"sqs://user:password@elasticmq/{queue}?endpoint={sqs.endpoint}"
            return url, url
        case _:
            nats: Any = request.getfixturevalue("nats_server")
            retention = "limits" if request.param == "nats-stream" else "workqueue"
            stream = in_loop(make_stream(nats, retention=retention))
            return f"{nats.url()}/{stream}", f"{nats.url()}/{stream}?subject={stream}.a"


async def _queue(rabbit: Any) -> str:
    client = Client(rabbit)
    name = await client.queue(new_name("away"), QUORUM)
    await client.close()
    return name


def publish(url: str, numbers: Iterable[int]) -> None:
    async def published() -> None:
        sink = await open_sink(address_of(url))
        await sink.publish(
            [Outgoing(id=f"m{number}", body=b'{"n": %d}' % number, key=str(number)) for number in numbers]
        )
        await sink.close()

    asyncio.run(published())


def test_messages_wait_for_a_store_that_is_away(
    any_store: SomeStore, urls: tuple[str, str], tmp_path: Path
) -> None:
    source, sink = urls
    running = Intakes(tmp_path, any_store.url, source)
    try:
        for _ in range(2):
            running.start()
        publish(sink, range(500))
        running.wait_for(1)
        with any_store.away():
            publish(sink, range(500, 1_500))
            time.sleep(AWAY)
        publish(sink, range(1_500, 2_000))
        running.wait_for(2_000)
        assert running.numbers() == Counter(range(2_000))
    finally:
        running.stop()
