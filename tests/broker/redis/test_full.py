"""At maxmemory: workers that start then drain what is there. A fleet may be restarted because it is full."""

import asyncio

import redis
from tests.broker.redis.scenario import job_id
from tests.broker.redis.servers import Server, running
from tests.broker.redis.test_faults import BOTH, Binary

from windlass import Windlass
from windlass.broker.redis import RedisBroker
from windlass.core.job import NewJob, Refusal
from windlass.core.outcome import Error
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.take import Source, Take, TakeStatus

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
def test_a_take_on_a_full_server_keeps_its_offset(binary: Binary) -> None:
    """Known ids are taken there, and operators move offsets."""
    source = Source("orders")

    async def main(server: Server) -> None:
        broker = await RedisBroker.open(server.url)
        queue = Declaration(subject=Subject(Kind.QUEUE, "default"), body=QueueSettings(), app="test")
        await broker.declare([queue])
        known, new = NewJob(id=job_id(1), task="t"), NewJob(id=job_id(2), task="t")
        await broker.enqueue([[known]])
        admin = redis.Redis.from_url(server.url)
        admin.config_set("maxmemory", "1mb")  # less than an empty server needs
        for more in ({}, {"dead": {new.id: Error(type="Unreadable")}}):
            refused = await broker.take(Take(source=source, expect=None, then="1", groups=[[new]], **more))
            assert refused.status is TakeStatus.REFUSED
            assert [receipt.refusal for group in refused.receipts for receipt in group] == [
                Refusal.STORE_FULL
            ]
        assert await broker.offsets() == ()
        for expect, groups in ((None, ()), ("1", [[known]])):
            take = Take(source=source, expect=expect, then=str(int(expect or 0) + 1), groups=groups)
            assert (await broker.take(take)).status is TakeStatus.TAKEN
        assert (await broker.take(Take(source=source, expect="2", then=None))).status is TakeStatus.TAKEN
        admin.config_set("maxmemory", 0)
        assert (await broker.get([new.id]))[0] is None
        admin.close()
        await broker.close()

    with running(binary()) as server:
        asyncio.run(main(server))


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
