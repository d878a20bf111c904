"""Jobs that are enqueued in a transaction of the caller's own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.transactional import Enqueuing
from windlass.conformance.harness import APP, new_id
from windlass.core.job import Edge, Mode, NewJob, Receipt, Refusal, Status
from windlass.core.lease import Ask
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE
from windlass.errors import StoreError

__all__ = ["namespaces"]
_ASK = Ask(queues=("q",), slots=10, limit=10, visibility=MINUTE)


class Both:
    """A broker, and a connection of somebody else to the same database."""

    def __init__(self, broker: PostgresBroker, connection: Any) -> None:
        self.broker = broker
        self.connection = connection

    async def enqueue(self, *jobs: NewJob) -> list[Receipt]:
        """Enqueue a group in the transaction that is open, or in one of its own."""
        if self.connection.is_in_transaction():
            return list((await self.broker.enqueue_on(self.connection, [jobs]))[0])
        async with self.connection.transaction():
            return list((await self.broker.enqueue_on(self.connection, [jobs]))[0])


@asynccontextmanager
async def _opened(namespaces: Namespaces) -> AsyncIterator[Both]:
    broker = await namespaces.open(None, Options())
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app=APP)
    await broker.declare([queue])
    connection: Any = await asyncpg.connect(namespaces.server.dsn)
    try:
        yield Both(broker, connection)
    finally:
        await connection.close()
        await broker.close()


@pytest.fixture
def run(namespaces: Namespaces) -> Callable[[Callable[[Both], Awaitable[None]]], None]:
    def ran(test: Callable[[Both], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with _opened(namespaces) as both:
                await test(both)

        asyncio.run(whole())

    return ran


Run = Callable[[Callable[[Both], Awaitable[None]]], None]


def _job(**options: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "t", "queue": "q", **options})


def test_rolled_back_means_never_enqueued(run: Run) -> None:
    async def test(both: Both) -> None:
        job = _job()
        transaction = both.connection.transaction()
        await transaction.start()
        assert await both.enqueue(job) == [Receipt(Status.CREATED, job.id)]
        await transaction.rollback()
        assert await both.broker.get([job.id]) == (None,)
        assert (await both.broker.claim(_ASK)).leases == ()

    run(test)


def test_invisible_before_commit_claimable_after(run: Run) -> None:
    async def test(both: Both) -> None:
        job = _job(payload=b"\0\xff", headers={"a": "b"}, tags=("x",))
        async with both.connection.transaction():
            await both.enqueue(job)
            assert await both.broker.get([job.id]) == (None,)
            assert (await both.broker.claim(_ASK)).leases == ()
        (lease,) = (await both.broker.claim(_ASK)).leases
        assert (lease.job, lease.payload, lease.headers, lease.tags) == (
            job.id,
            b"\0\xff",
            {"a": "b"},
            ("x",),
        )

    run(test)


def test_readable_right_after_commit(run: Run) -> None:
    async def test(both: Both) -> None:
        for read in (
            lambda job: both.broker.get([job]),
            both.broker.explain,
        ):
            job = _job()
            async with both.connection.transaction():
                await both.enqueue(job)
            await read(job.id)
            detail = (await both.broker.get([job.id]))[0]
            assert detail is not None
            assert detail.state is State.READY
        async with both.connection.transaction():
            await both.enqueue(_job())
        counts = await both.broker.counts()
        assert [row.count for row in counts.rows] == [3]

    run(test)


def test_counted_right_after_commit(run: Run) -> None:
    async def test(both: Both) -> None:
        await both.enqueue(_job())
        assert [row.count for row in (await both.broker.counts()).rows] == [1]

    run(test)


def test_a_waiter_is_woken_after_commit(run: Run) -> None:
    async def test(both: Both) -> None:
        waiter = asyncio.create_task(both.broker.wait(["q"], 30))
        async with both.connection.transaction():
            await both.enqueue(_job())
        await asyncio.wait_for(waiter, 5)

    run(test)


def test_an_open_transaction_delays_nobody(run: Run) -> None:
    """Not even those who use the same key or the same id, sweep, or change settings."""

    async def test(both: Both) -> None:
        job = _job(key="k", lane="acme")
        transaction = both.connection.transaction()
        await transaction.start()
        await both.enqueue(job)
        async with asyncio.timeout(5):
            other = _job(key="k", lane="acme")
            assert (await both.broker.enqueue([[other]]))[0][0].status is Status.CREATED
            await both.broker.sweep(limit=100)
            (lease,) = (await both.broker.claim(_ASK)).leases
            assert lease.job == other.id
            await both.broker.pause("q")
            await both.broker.resume("q")
        await transaction.commit()
        # It was taken meanwhile: the job that holds the key stands for the call.
        assert (await both.broker.enqueue([[job]]))[0] == (Receipt(Status.DUPLICATE, job.id, other.id),)

    run(test)


def test_the_same_id_by_both_ways_is_one_job(run: Run) -> None:
    async def test(both: Both) -> None:
        job = _job()
        async with both.connection.transaction():
            await both.enqueue(job)
            assert (await both.broker.enqueue([[job]]))[0][0].status is Status.CREATED
        assert len((await both.broker.claim(_ASK)).leases) == 1
        assert await both.enqueue(job) == [Receipt(Status.DUPLICATE, job.id, job.id)]

    run(test)


def test_keys_are_met(run: Run) -> None:
    async def test(both: Both) -> None:
        first, second = _job(key="k"), _job(key="k")
        await both.broker.enqueue([[first]])
        assert await both.enqueue(second) == [Receipt(Status.DUPLICATE, second.id, first.id)]
        newest = _job(key="k", mode=Mode.REPLACE, payload=b"newest")
        assert await both.enqueue(newest) == [Receipt(Status.CREATED, newest.id)]
        detail = (await both.broker.get([first.id]))[0]
        assert detail is not None
        assert detail.payload == b"newest"

    run(test)


def test_refused_as_by_enqueue(run: Run) -> None:
    async def test(both: Both) -> None:
        nowhere, neighbour = _job(queue="nowhere"), _job()
        receipts = await both.enqueue(nowhere, neighbour)
        assert [receipt.refusal for receipt in receipts] == [Refusal.UNKNOWN_QUEUE, Refusal.NEIGHBOUR]
        orphan = _job(after=(Edge(new_id()),))
        assert [receipt.refusal for receipt in await both.enqueue(orphan)] == [Refusal.UNKNOWN_PARENT]
        assert await both.broker.get([neighbour.id]) == (None,)

    run(test)


def test_temporary_tables_of_the_caller_are_not_meant(run: Run) -> None:
    async def test(both: Both) -> None:
        for name in ("job", "queue", "inbox", "meta", "edge"):
            await both.connection.execute(f"CREATE TEMPORARY TABLE {name} (theirs int)")
        job = _job()
        assert await both.enqueue(job) == [Receipt(Status.CREATED, job.id)]
        assert (await both.broker.get([job.id]))[0] is not None

    run(test)


def test_a_flow_in_one_transaction(run: Run) -> None:
    async def test(both: Both) -> None:
        parent = _job()
        child = _job(after=(Edge(parent.id),))
        async with both.connection.transaction():
            await both.enqueue(parent)
            assert [receipt.status for receipt in await both.enqueue(child)] == [Status.CREATED]
        details = await both.broker.get([parent.id, child.id])
        assert [detail and detail.state for detail in details] == [State.READY, State.BLOCKED]

    run(test)


def test_a_delay_counts_from_the_call(run: Run) -> None:
    async def test(both: Both) -> None:
        job = _job(delay=HOUR)
        await both.enqueue(job)
        detail = (await both.broker.get([job.id]))[0]
        assert detail is not None
        assert detail.state is State.SCHEDULED
        assert detail.accepted_at < detail.due_at <= detail.accepted_at + HOUR

    run(test)


def test_the_statement_suits_other_drivers() -> None:
    job = _job()
    enqueuing = Enqueuing('a"b%', [[job]], database="d")
    statement, arguments = enqueuing.call("format")
    assert statement.count("%s") == len(arguments)
    assert '"a""b%%".enqueue_here(%s::bigint' in statement
    created = ((Receipt(Status.CREATED, job.id),),)
    assert enqueuing.receipts([(1, "created", None, None, None, "d")]) == created
    with pytest.raises(StoreError, match='leads to the database "e", the jobs are in "d"'):
        enqueuing.receipts([(1, "created", None, None, None, "e")])
