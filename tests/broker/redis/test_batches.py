"""Batches of kept ends: what is pruned of them, and the bytes that the namespace counts."""

import asyncio
import random
import struct
from collections.abc import Sequence

import pytest
import redis
from tests.broker.redis.fixtures import new_namespace, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.scenario import job_id
from tests.broker.redis.servers import Server

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.keys import keys
from windlass.clock import ManualClock
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import HOUR, SECOND

KEPT = 40
JOBS = 300


async def _enqueue(brokers: Sequence[Broker], chance: random.Random) -> None:
    queue = Declaration(
        subject=Subject(Kind.QUEUE, "q"),
        body=QueueSettings(retention=HOUR, result_ttl=HOUR, retention_count=KEPT),
        app="a",
    )
    jobs = [
        NewJob(id=job_id(n + 1), task="t", queue="q", payload=bytes(chance.randint(0, 99)))
        for n in range(JOBS)
    ]
    for broker in brokers:
        await broker.declare([queue])
        await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
        await broker.enqueue([jobs])


async def _settle(
    brokers: Sequence[Broker], chance: random.Random, leases: list[Lease], clock: ManualClock
) -> None:
    """In batches of any size, some in the order in which they came; a few jobs have a result."""
    if chance.random() < 0.5:
        chance.shuffle(leases)
    while leases:
        count = chance.choice((1, 10, 25, 60))
        batch, leases = leases[:count], leases[count:]
        results = {chance.choice(batch).job: b"12345"} if chance.random() < 0.2 else {}
        ended = [
            Settlement(
                job=lease.job,
                fence=lease.fence,
                outcome=Outcome.DONE,
                result=results.get(lease.job),
            )
            for lease in batch
        ]
        for broker in brokers:
            await broker.settle(ended)
        clock.advance(chance.choice((0, 1, 1, 1, 1, 1)))  # what ends at one time is kept job by job


async def _sweep(brokers: Sequence[Broker], limit: int) -> None:
    for broker in brokers:
        while True:
            swept = await broker.sweep(limit=limit)
            assert swept.pruned <= limit
            if not swept.more:
                break


@pytest.mark.parametrize("weighed", ["rightly", "not", "before"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_pruned_of_batches_and_their_bytes(
    redis_server: Server,  # noqa: F811
    seed: int,
    weighed: str,
) -> None:
    """Also without weights, as earlier versions kept batches, and with weights that count no longer."""

    async def main() -> None:
        chance, clock, options = random.Random(seed), ManualClock(), new_namespace(Options())
        meta, _, head, _, past, *_ = keys(options.namespace)
        admin = redis.Redis.from_url(redis_server.url)
        store = await RedisBroker.open(redis_server.url, clock=clock, options=options)
        brokers: list[Broker] = [MemoryBroker(clock=clock, options=options), store]
        ids = [job_id(n + 1) for n in range(JOBS)]
        await _enqueue(brokers, chance)

        def weights() -> list[bytes]:
            return [name for name in admin.hkeys(past) if len(name) == 8 and name[:1] == b"b"]

        def compare_bytes() -> None:
            counted = struct.unpack(">11qB", admin.hget(meta, "n"))[6]
            heads = [one for name, one in admin.hgetall(head).items() if len(name) == 16]
            assert counted == sum(struct.unpack_from(">I", one, 25)[0] for one in heads)

        seq = 0
        while True:
            seq += 1
            ask = Ask(session="s", seq=seq, queues=("q",), slots=120, limit=120)
            _, claimed = [await broker.claim(ask) for broker in brokers]
            if not claimed.leases:
                break
            await _settle(brokers, chance, list(claimed.leases), clock)
            if seq == 1:
                assert weights()
            for name in weights() if weighed != "rightly" else ():
                if weighed == "not":
                    admin.hdel(past, name)
                else:
                    admin.hset(past, name, struct.pack(">IIHB", JOBS, 1, 0, 0))
            await _sweep(brokers, chance.choice((7, 50, 1_000)))
            model, kept = [await broker.get(ids) for broker in brokers]
            assert kept == model
        compare_bytes()
        clock.advance(2 * HOUR + SECOND)
        await _sweep(brokers, 1_000)
        assert await store.get(ids) == (None,) * JOBS
        assert not weights()
        compare_bytes()
        admin.close()
        await store.close()

    asyncio.run(main())


def test_results_beside_a_batch_do_not_count_in_its_weight(redis_server: Server) -> None:  # noqa: F811
    """More such batches than a pass takes apart."""

    async def main() -> None:
        clock, options = ManualClock(), new_namespace(Options())
        meta, _, _, _, past, *_ = keys(options.namespace)
        admin = redis.Redis.from_url(redis_server.url)
        store = await RedisBroker.open(redis_server.url, clock=clock, options=options)
        await _enqueue([store], random.Random(1))
        ask = Ask(session="s", seq=1, queues=("q",), slots=JOBS, limit=JOBS)
        leases = (await store.claim(ask)).leases
        for at in range(0, JOBS, 20):
            clock.advance(1)
            first, *others = leases[at : at + 20]
            told = Settlement(job=first.job, fence=first.fence, outcome=Outcome.DONE, result=b"result")
            rest = [Settlement(job=one.job, fence=one.fence, outcome=Outcome.DONE) for one in others]
            await store.settle([told, *rest])
        clock.advance(2 * HOUR)
        await _sweep([store], 1_000)
        assert struct.unpack(">11qB", admin.hget(meta, "n"))[6] == 0
        assert admin.hlen(past) == 1  # every key has a field that keeps it
        admin.close()
        await store.close()

    asyncio.run(main())
