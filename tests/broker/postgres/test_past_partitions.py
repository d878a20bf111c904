"""Partitions of finished jobs are used in turn and emptied whole, never too soon."""

import asyncio
from typing import Any

import asyncpg
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.postgres.past_store import Store, with_store

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.url import Location
from windlass.core.settings import Kind, QueueSettings, Subject
from windlass.core.state import State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND

__all__ = ["namespaces"]


def test_segments_are_used_in_turn_and_emptied_whole(namespaces: Namespaces) -> None:
    async def body(store: Store) -> None:
        await store.harness.queue("q", retention=30 * MINUTE, result_ttl=0)
        used: set[int] = set()
        most = 0
        for _ in range(40):
            await store.done(2)
            store.harness.advance(5 * MINUTE)
            await store.harness.sweep()
            used |= set(await store.rows("SELECT DISTINCT segment::integer FROM {s}.past"))
            most = max(most, await store.past())
        assert used >= {0, 1, 2, 3}
        # Half an hour's jobs are kept, and at the most what is in the segments that one of them keeps.
        assert 12 <= most <= 2 * 14
        assert len(await store.harness.listed(queue="q")) == 10
        store.harness.advance(HOUR)
        await store.harness.sweep()
        store.harness.advance(HOUR)
        await store.harness.sweep()
        assert await store.past() == 0
        assert set(await store.rows("SELECT unnest(segments)::integer FROM {s}.meta")) == set(
            await store.segments()
        )

    with_store(namespaces, body)


def test_a_segment_stays_while_anything_in_it_is_kept(namespaces: Namespaces) -> None:
    """Two queues of a class, of which one leaves it: what is kept longest keeps its segment."""

    async def body(store: Store) -> None:
        await store.harness.queue("q", retention=MINUTE, result_ttl=0)
        await store.harness.queue("hour", retention=HOUR, result_ttl=0)
        await store.done()
        kept = (await store.done(queue="hour"))[0]
        await store.harness.queue("hour", retention=3 * DAY, result_ttl=0)
        for _ in range(10):
            store.harness.advance(6 * HOUR)
            await store.harness.sweep()
            assert await store.harness.state(kept) is State.DONE
        store.harness.advance(12 * HOUR - 1)
        await store.harness.sweep()
        assert await store.harness.state(kept) is State.DONE
        store.harness.advance(1)
        assert (await store.harness.sweep())[0].pruned == 1
        store.harness.advance(MINUTE)
        await store.harness.sweep()
        assert await store.harness.missing(kept)
        assert await store.past() == 0

    with_store(namespaces, body)


def test_a_clock_that_has_leapt_stops_no_segment(namespaces: Namespaces) -> None:
    async def body(store: Store) -> None:
        await store.harness.queue("q", retention=30 * MINUTE, result_ttl=0)
        await store.done()
        store.harness.advance(3_650 * DAY)
        await store.harness.sweep()
        store.harness.advance(-3_650 * DAY)
        for _ in range(30):
            await store.done()
            store.harness.advance(10 * MINUTE)
            await store.harness.sweep()
        assert await store.past() < 15

    with_store(namespaces, body)


def test_a_reader_puts_off_the_emptying_and_waits_for_nobody(namespaces: Namespaces) -> None:
    async def body(store: Store) -> None:
        await store.harness.queue("q", retention=MINUTE, result_ttl=0)
        await store.done()
        store.harness.advance(2 * MINUTE)
        await store.harness.sweep()
        store.harness.advance(2 * MINUTE)
        counted = f"SELECT count(*) FROM {store.schema}.past"  # noqa: S608 - a name of the test's own
        reader: Any = await asyncpg.connect(namespaces.server.dsn)
        try:
            async with reader.transaction():
                assert await reader.fetchval(counted) == 1
                # Without an end to its patience it would wait for the reader for ever.
                async with asyncio.timeout(10):
                    await store.harness.sweep()
                    await store.harness.add()
                assert await reader.fetchval(counted) == 1
        finally:
            await reader.close()
        assert await store.rows("SHOW lock_timeout") == ["0"]
        await store.harness.sweep()
        assert await store.past() == 0

    with_store(namespaces, body)


def test_sweepers_at_once_forget_each_job_once(namespaces: Namespaces) -> None:
    async def body(store: Store) -> None:
        await store.harness.queue("q", retention=MINUTE, result_ttl=0)
        await store.done(40)
        store.harness.advance(2 * MINUTE)
        others = [
            await PostgresBroker.open(
                Location(namespaces.server.dsn),
                clock=store.harness.clock,
                options=Options(namespace=store.broker.namespace),
            )
            for _ in range(2)
        ]
        try:
            passes = await asyncio.gather(
                *(broker.sweep(limit=3) for broker in (store.broker, *others) for _ in range(8))
            )
        finally:
            for broker in others:
                await broker.close()
        assert sum(swept.pruned for swept in passes) == 40
        assert max(swept.pruned for swept in passes) == 3
        assert await store.rows(
            "SELECT (SELECT sum(bytes) FROM {s}.total) + coalesce((SELECT sum(bytes) FROM {s}.delta), 0)"
        ) == [0]

    with_store(namespaces, body)


def test_an_override_takes_effect_on_the_past(namespaces: Namespaces) -> None:
    async def body(store: Store) -> None:
        await store.done(2, result=b"r")
        subject = Subject(Kind.QUEUE, "q")
        version = (await store.broker.documents(Kind.QUEUE))[0].version
        await store.broker.override(subject, QueueSettings(retention=SECOND, result_ttl=SECOND), version)
        store.harness.advance(SECOND)
        assert (await store.harness.sweep())[0].pruned == 2

    with_store(namespaces, body)
