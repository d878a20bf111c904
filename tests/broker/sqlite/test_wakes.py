"""Wakes cross processes: stood in for here by two brokers of one file, which share nothing but the file."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.sqlite import SqliteBroker
from windlass.core.event import FROM_START
from windlass.core.operate import Target
from windlass.core.state import State


@asynccontextmanager
async def _two(where: Path) -> AsyncIterator[tuple[SqliteBroker, SqliteBroker]]:
    path = new_file(where)
    one, other = await SqliteBroker.open(path), await SqliteBroker.open(path)
    await one.declare([QUEUE])
    try:
        yield one, other
    finally:
        await one.close()
        await other.close()


def test_an_enqueue_elsewhere_wakes_a_waiter(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with _two(tmp_path) as (one, other):
            waiter = asyncio.create_task(other.wait(["q"], 30))
            await asyncio.wait({waiter}, timeout=0.05)
            assert not waiter.done()
            await one.enqueue([[new_job()]])
            await asyncio.wait_for(waiter, 5)

    asyncio.run(scenario())


def test_one_wake_wakes_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with _two(tmp_path) as (one, other):
            waiters = [asyncio.create_task(broker.wait(["q"], 30)) for broker in (one, other, other)]
            await asyncio.wait(waiters, timeout=0.05)
            await one.enqueue([[new_job() for _ in range(10)]])
            await asyncio.wait(waiters, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(waiters, timeout=0.05)
            assert sum(waiter.done() for waiter in waiters) == 1
            for waiter in waiters:
                waiter.cancel()

    asyncio.run(scenario())


def test_a_waiter_that_leaves_hands_its_wake_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with _two(tmp_path) as (one, other):
            waiter = asyncio.create_task(other.wait(["q"], 30))
            await asyncio.wait({waiter}, timeout=0.05)
            waiter.cancel()
            await asyncio.wait({waiter})
            await one.enqueue([[new_job()]])
            await asyncio.wait_for(other.wait(["q"], 30), 5)

    asyncio.run(scenario())


def test_an_end_elsewhere_reaches_a_watcher(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with _two(tmp_path) as (one, other):
            job = new_job()
            await one.enqueue([[job]])
            watcher = asyncio.create_task(other.watch([job.id], 30))
            await asyncio.wait({watcher}, timeout=0.05)
            await one.cancel([Target(job.id)])
            finished = await asyncio.wait_for(watcher, 5)
            assert [end.state for end in finished] == [State.CANCELLED]

    asyncio.run(scenario())


def test_closing_lets_waiters_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await SqliteBroker.open(new_file(tmp_path))
        calls = (broker.wait(["q"], 30), broker.watch([new_job().id], 30), broker.events(FROM_START, 1, 30))
        waiting = [asyncio.create_task(call) for call in calls]
        await asyncio.wait(waiting, timeout=0.05)
        await broker.close()
        done, _ = await asyncio.wait(waiting, timeout=5)
        assert len(done) == 3

    asyncio.run(scenario())
