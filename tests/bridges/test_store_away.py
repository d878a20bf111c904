"""The store is away for a minute while messages come: each is one job, whatever carries them. Producers that
send through a front door notice nothing.
"""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.bridges.killed_intakes import Intakes, SomeStore, any_store, number_of
from tests.bridges.nats_server import in_loop, make_stream
from tests.bridges.rabbits import QUORUM, Client, new_name
from tests.bridges.sqs_server import make_queue

from windlass import Windlass
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


class Producer:
    """A thread of an app that enqueues, in one of the ways there are, until it is told to end."""

    def __init__(self, app: Windlass, way: "Callable[[Producer], dict[str, int]]", first: int) -> None:
        self.task: Any = app.tasks["proj.count"]
        self.app = app
        self.loop = asyncio.Runner()
        self.numbers: Iterator[int] = itertools.count(first)
        self.accepted: dict[str, int] = {}
        """The ids of its jobs, and their numbers."""
        self.calls = 0
        self._way = way

    def enqueue_until(self, end: threading.Event) -> None:
        # At the most ten times a second: all of it together is less than the ready jobs an intake waits at.
        with self.loop:
            while not end.wait(0.1):
                self.accepted |= self._way(self)
                self.calls += 1


def one_job(producer: Producer) -> dict[str, int]:
    number = next(producer.numbers)
    return {producer.task.enqueue(n=number).id: number}


def one_job_on_a_loop(producer: Producer) -> dict[str, int]:
    number = next(producer.numbers)
    return {producer.loop.run(producer.task.aenqueue(n=number)).id: number}


def several_jobs(producer: Producer) -> dict[str, int]:
    numbers = list(itertools.islice(producer.numbers, 3))
    jobs = producer.app.enqueue_many([producer.task.call(n=number) for number in numbers])
    return {job.id: number for job, number in zip(jobs, numbers, strict=True)}


@pytest.mark.parametrize("urls", ["kafka", "nats-queue", "rabbitmq", "sqs"], indirect=True)
def test_producers_at_a_front_door_do_not_notice_that_the_store_is_away(
    any_store: SomeStore, urls: tuple[str, str], tmp_path: Path
) -> None:
    running = Intakes(tmp_path, any_store.url, urls[1], "front")
    ways = (one_job, one_job_on_a_loop, several_jobs)
    producers = [Producer(running.app, way, number * 1_000_000) for number, way in enumerate(ways)]
    end = threading.Event()

    def accepted() -> dict[str, int]:
        return {job: number for each in producers for job, number in each.accepted.copy().items()}

    with ThreadPoolExecutor() as threads:
        try:
            for _ in range(2):
                running.start()
            producing = [threads.submit(each.enqueue_until, end) for each in producers]
            running.wait_for(30)
            with any_store.away():
                before = [each.calls for each in producers]
                time.sleep(AWAY)
                meanwhile = [each.calls - calls for each, calls in zip(producers, before, strict=True)]
            running.wait_for(len(accepted()))
            end.set()
            for each in producing:
                each.result()
            # A call that waits for the store, if only until it gives up, takes more than a second.
            assert min(meanwhile) > AWAY, meanwhile
            running.wait_for(len(accepted()))
            jobs = Counter((job.id, number_of(job)) for job in running.jobs())
            assert jobs == Counter(accepted().items())
        finally:
            end.set()
            running.stop()
