"""A namespace on a cluster: found, followed while its slot moves, and never half done."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.redis.cluster import Cluster, cluster
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.scenario import job_id, live
from tests.broker.redis.servers import redis_binary, valkey_binary
from tests.broker.redis.test_faults import ask, done, jobs

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.keys import prefix
from windlass.clock import ManualClock
from windlass.core.event import FROM_NOW, Emit
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject

pytestmark = pytest.mark.slow
BOTH = pytest.mark.parametrize("binary", [redis_binary, valkey_binary], ids=["redis", "valkey"])


@BOTH
def test_a_slot_that_moves_under_load_loses_nothing(binary: Callable[[], Path]) -> None:
    with cluster(binary()) as nodes:
        asyncio.run(_several_namespaces(nodes))
        asyncio.run(_moved_under_load(nodes))


async def _several_namespaces(nodes: Cluster) -> None:
    owners: set[int] = set()
    for turn in range(40):
        if turn >= 6 and len(owners) > 1:
            break
        options, clock = new_namespace(Options()), ManualClock()
        broker = await RedisBroker.open(nodes.url, options=options, clock=clock)
        await live(broker, clock)
        owners.add(nodes.owner(prefix(options.namespace)))
        await broker.close()
    assert len(owners) > 1, "namespaces spread over the nodes"


async def _moved_under_load(nodes: Cluster) -> None:
    options = new_namespace(Options())
    key = prefix(options.namespace)
    broker = await RedisBroker.open(nodes.url, options=options)
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(retention=0), app="a")
    await broker.declare([queue])
    await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
    home = nodes.owner(key)
    sent, runs, moving, producing = 0, Counter[str](), True, True

    async def produce() -> None:
        nonlocal sent, producing
        while moving:
            await broker.enqueue([jobs(1 + sent, 5)])
            sent += 5
            await asyncio.to_thread(broker.blocking.enqueue, [jobs(1 + sent, 1)])
            sent += 1
        producing = False

    async def work() -> None:
        seq, settlements = 1, []
        while producing or sum(runs.values()) < sent:
            claimed = (await broker.settle(settlements, ask(seq, 10))).claimed
            assert claimed is not None
            runs.update(lease.job for lease in claimed.leases)
            settlements, seq = done(claimed.leases), seq + 1
        await broker.settle(settlements)

    async def move() -> None:
        nonlocal moving
        for step in range(1, 4):
            to = (nodes.owner(key) + step) % 3 if step < 3 else 0
            if to != nodes.owner(key):
                await asyncio.to_thread(nodes.move, key, to, lambda: None)
        moving = False

    async with asyncio.timeout(120):
        await asyncio.gather(produce(), work(), move())
    assert sent > 0
    assert runs == Counter({job_id(number): 1 for number in range(1, sent + 1)})
    if nodes.owner(key) != (away := (home + 1) % 3):
        await asyncio.to_thread(nodes.move, key, away, lambda: None)
    await _stays_where_it_is(broker, nodes, sent)
    await broker.close()


async def _stays_where_it_is(broker: RedisBroker, nodes: Cluster, sent: int) -> None:
    """Who was sent on goes there from then on."""
    before = nodes.sent_on()
    for number in range(sent + 1, sent + 31):
        await broker.enqueue([jobs(2 * number, 1)])
        await asyncio.to_thread(broker.blocking.enqueue, [jobs(2 * number + 1, 1)])
    assert nodes.sent_on() - before < 10, "once a connection at most"


@BOTH
def test_who_waits_for_an_end_hears_of_it_wherever_the_slot_is(binary: Callable[[], Path]) -> None:
    with cluster(binary()) as nodes:
        asyncio.run(_heard_after_moves(nodes))


async def _heard_after_moves(nodes: Cluster) -> None:
    options = new_namespace(Options())
    key = prefix(options.namespace)
    watcher, worker = [await RedisBroker.open(nodes.url, options=options) for _ in range(2)]
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(emit=Emit.ALL), app="a")
    await worker.declare([queue])
    await worker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])

    async def move() -> None:
        await asyncio.to_thread(nodes.move, key, (nodes.owner(key) + 1) % 3, lambda: None)

    async def end_of(number: int, *, moved_meanwhile: bool) -> float:
        """How long after the end the watcher had it."""
        await worker.enqueue([jobs(number, 1)])
        watching = asyncio.create_task(watcher.watch([job_id(number)], 30.0))
        events = asyncio.create_task(watcher.events(FROM_NOW, 10, 30.0))
        while len(watcher._store.on_this_loop().listener._watching) < 2:
            await watcher.counts()
        await watcher.counts()  # behind their first looks: calls have their turns
        if moved_meanwhile:
            await move()
        await worker.settle(done((await worker.claim(ask(number, 1))).leases))
        ended = time.monotonic()
        assert [each.job for each in await watching] == [job_id(number)]
        took = time.monotonic() - ended
        assert (await events).items
        return took

    await end_of(1, moved_meanwhile=False)
    assert await end_of(2, moved_meanwhile=True) < 15, "by a look of its own"
    await end_of(3, moved_meanwhile=False)
    assert nodes.listeners(nodes.owner(key)) == 2, "from then on it listens where the slot is"
    await move()
    await end_of(4, moved_meanwhile=False)
    assert nodes.listeners(nodes.owner(key)) == 2, "also if it learns of the move after it began to listen"
    await watcher.close()
    await worker.close()
