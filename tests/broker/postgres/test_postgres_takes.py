"""Takes beside each other: those of one source one after the other, those of several at once."""

import asyncio

from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.conformance.harness import new_id
from windlass.core.job import NewJob
from windlass.core.settings import QueueSettings
from windlass.core.take import Source, Take, Taken, TakeStatus

__all__ = ["namespaces"]


def _take(source: str, expect: str | None, then: str, *jobs: NewJob) -> Take:
    return Take(source=Source(source), expect=expect, then=then, groups=[[job] for job in jobs])


def _jobs(count: int) -> list[NewJob]:
    return [NewJob(id=new_id(), task="t", queue="q") for _ in range(count)]


def test_a_take_of_plain_jobs_waits_for_its_own_source_alone(namespaces: Namespaces) -> None:
    async def test() -> None:
        async with namespaces.several(2, q=QueueSettings()) as (broker, other):
            first, second = _jobs(2)
            await broker.take(_take("a", None, "1"))
            async with await namespaces.connect() as holder, holder.transaction():
                # As a take does that is still under way, beside others.
                schema = quoted(broker.namespace)
                lock = "SELECT pg_advisory_xact_lock_shared(1464422980, %s::regclass::oid::integer)"
                await holder.execute(lock, [f"{schema}.job"])
                row = f"SELECT FROM {schema}.source_offset WHERE source = 'a' FOR UPDATE"
                await holder.execute(row.encode())
                waits = asyncio.create_task(other.take(_take("a", "1", "2", first)))
                assert (await broker.take(_take("b", None, "1", second))).status is TakeStatus.TAKEN
                assert not waits.done()
            assert (await waits).status is TakeStatus.TAKEN

    asyncio.run(test())


def test_takes_of_two_sources_from_many_processes(namespaces: Namespaces) -> None:
    async def intake(broker: PostgresBroker, source: str, end: int) -> int:
        at, made = 0, 0
        while at < end:
            expect = str(at) if at else None
            taken: Taken = await broker.take(_take(source, expect, str(at + 5), *_jobs(5)))
            made += 5 * (taken.status is TakeStatus.TAKEN)
            assert taken.offset is not None
            at = int(taken.offset.at)
        return made

    async def test() -> None:
        async with namespaces.several(4, q=QueueSettings()) as brokers:
            made = await asyncio.gather(
                *(intake(broker, source, 200) for broker in brokers for source in ("a", "b"))
            )
            counts = await brokers[0].counts()
            assert sum(made) == sum(row.count for row in counts.rows) == 400
            assert [offset.at for offset in await brokers[0].offsets()] == ["200", "200"]

    asyncio.run(test())
