"""At maxmemory: workers that start then drain what is there. A fleet may be restarted because it is full."""

import asyncio

import redis
from tests.broker.redis.servers import Server, running
from tests.broker.redis.test_faults import BOTH, Binary

from windlass import Windlass

JOBS = 300


def program(url: str, over: asyncio.Event) -> tuple[Windlass, list[int]]:
    """An app as a process of its own would have it."""
    app, seen = Windlass(url, namespace="full", retention=0), list[int]()
    app.alert("deep", depth=10_000)

    @app.task
    async def work(number: int, filling: str) -> None:
        seen.append(number)
        if len(seen) == JOBS:
            over.set()

    return app, seen


@BOTH
def test_a_worker_starts_on_a_full_server_and_drains_it(binary: Binary) -> None:
    async def drained(server: Server) -> list[int]:
        over = asyncio.Event()
        producer, _ = program(server.url, over)
        work = producer.tasks["work"]
        await producer.aenqueue_many(work.call(number, "x" * 500) for number in range(JOBS))
        admin = redis.Redis.from_url(server.url)
        admin.config_set("maxmemory", "1mb")  # less than an empty server needs
        consumer, seen = program(server.url, over)
        consumer.schedule("hourly", consumer.tasks["work"].call(0, ""), every="1h")
        async with consumer.worker(concurrency=20):
            await asyncio.wait_for(over.wait(), 60)
        admin.close()
        await consumer.aclose()
        await producer.aclose()
        return seen

    with running(binary()) as server:
        assert sorted(asyncio.run(drained(server))) == list(range(JOBS))
