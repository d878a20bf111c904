"""Jobs that are enqueued in a transaction of the caller's own."""

import asyncio

import pytest
from tests.broker.postgres.both import ASK, Both, Run, a_job, run
from tests.broker.postgres.namespaces import namespaces

from windlass.broker.postgres.transactional import Enqueuing
from windlass.conformance.harness import new_id
from windlass.core.job import Edge, Mode, Receipt, Refusal, Status
from windlass.core.state import State
from windlass.core.units import HOUR
from windlass.errors import StoreError

__all__ = ["namespaces", "run"]


def test_rolled_back_means_never_enqueued(run: Run) -> None:
    async def test(both: Both) -> None:
        job = a_job()
        transaction = both.connection.transaction()
        await transaction.start()
        assert await both.enqueue(job) == [Receipt(Status.CREATED, job.id)]
        await transaction.rollback()
        assert await both.broker.get([job.id]) == (None,)
        assert (await both.broker.claim(ASK)).leases == ()

    run(test)


def test_invisible_before_commit_claimable_after(run: Run) -> None:
    async def test(both: Both) -> None:
        job = a_job(payload=b"\0\xff", headers={"a": "b"}, tags=("x",))
        async with both.connection.transaction():
            await both.enqueue(job)
            assert await both.broker.get([job.id]) == (None,)
            assert (await both.broker.claim(ASK)).leases == ()
        (lease,) = (await both.broker.claim(ASK)).leases
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
            job = a_job()
            async with both.connection.transaction():
                await both.enqueue(job)
            await read(job.id)
            detail = (await both.broker.get([job.id]))[0]
            assert detail is not None
            assert detail.state is State.READY
        async with both.connection.transaction():
            await both.enqueue(a_job())
        counts = await both.broker.counts()
        assert [row.count for row in counts.rows] == [3]

    run(test)


def test_counted_right_after_commit(run: Run) -> None:
    async def test(both: Both) -> None:
        await both.enqueue(a_job())
        assert [row.count for row in (await both.broker.counts()).rows] == [1]

    run(test)


def test_a_waiter_is_woken_after_commit(run: Run) -> None:
    async def test(both: Both) -> None:
        waiter = asyncio.create_task(both.broker.wait(["q"], 30))
        async with both.connection.transaction():
            await both.enqueue(a_job())
        await asyncio.wait_for(waiter, 5)

    run(test)


def test_an_open_transaction_delays_nobody(run: Run) -> None:
    """Not even those who use the same key or the same id, sweep, or change settings."""

    async def test(both: Both) -> None:
        job = a_job(key="k", lane="acme")
        transaction = both.connection.transaction()
        await transaction.start()
        await both.enqueue(job)
        async with asyncio.timeout(5):
            other = a_job(key="k", lane="acme")
            assert (await both.broker.enqueue([[other]]))[0][0].status is Status.CREATED
            await both.broker.sweep(limit=100)
            (lease,) = (await both.broker.claim(ASK)).leases
            assert lease.job == other.id
            await both.broker.pause("q")
            await both.broker.resume("q")
        await transaction.commit()
        # It was taken meanwhile: the job that holds the key stands for the call.
        assert (await both.broker.enqueue([[job]]))[0] == (Receipt(Status.DUPLICATE, job.id, other.id),)

    run(test)


def test_the_same_id_by_both_ways_is_onea_job(run: Run) -> None:
    async def test(both: Both) -> None:
        job = a_job()
        async with both.connection.transaction():
            await both.enqueue(job)
            assert (await both.broker.enqueue([[job]]))[0][0].status is Status.CREATED
        assert len((await both.broker.claim(ASK)).leases) == 1
        assert await both.enqueue(job) == [Receipt(Status.DUPLICATE, job.id, job.id)]

    run(test)


def test_keys_are_met(run: Run) -> None:
    async def test(both: Both) -> None:
        first, second = a_job(key="k"), a_job(key="k")
        await both.broker.enqueue([[first]])
        assert await both.enqueue(second) == [Receipt(Status.DUPLICATE, second.id, first.id)]
        newest = a_job(key="k", mode=Mode.REPLACE, payload=b"newest")
        assert await both.enqueue(newest) == [Receipt(Status.REPLACED, newest.id, first.id)]
        detail = (await both.broker.get([first.id]))[0]
        assert detail is not None
        assert detail.payload == b"newest"

    run(test)


def test_refused_as_by_enqueue(run: Run) -> None:
    async def test(both: Both) -> None:
        nowhere, neighbour = a_job(queue="nowhere"), a_job()
        receipts = await both.enqueue(nowhere, neighbour)
        assert [receipt.refusal for receipt in receipts] == [Refusal.UNKNOWN_QUEUE, Refusal.NEIGHBOUR]
        orphan = a_job(after=(Edge(new_id()),))
        assert [receipt.refusal for receipt in await both.enqueue(orphan)] == [Refusal.UNKNOWN_PARENT]
        assert await both.broker.get([neighbour.id]) == (None,)

    run(test)


def test_temporary_tables_of_the_caller_are_not_meant(run: Run) -> None:
    async def test(both: Both) -> None:
        for name in ("job", "queue", "inbox", "meta", "edge"):
            await both.connection.execute(f"CREATE TEMPORARY TABLE {name} (theirs int)")
        job = a_job()
        assert await both.enqueue(job) == [Receipt(Status.CREATED, job.id)]
        assert (await both.broker.get([job.id]))[0] is not None

    run(test)


def test_a_flow_in_one_transaction(run: Run) -> None:
    async def test(both: Both) -> None:
        parent = a_job()
        child = a_job(after=(Edge(parent.id),))
        async with both.connection.transaction():
            await both.enqueue(parent)
            assert [receipt.status for receipt in await both.enqueue(child)] == [Status.CREATED]
        details = await both.broker.get([parent.id, child.id])
        assert [detail and detail.state for detail in details] == [State.READY, State.BLOCKED]

    run(test)


def test_a_delay_counts_from_the_call(run: Run) -> None:
    async def test(both: Both) -> None:
        job = a_job(delay=HOUR)
        await both.enqueue(job)
        detail = (await both.broker.get([job.id]))[0]
        assert detail is not None
        assert detail.state is State.SCHEDULED
        assert detail.accepted_at < detail.due_at <= detail.accepted_at + HOUR

    run(test)


def test_the_statement_suits_other_drivers() -> None:
    job = a_job()
    enqueuing = Enqueuing('a"b%', [[job]], database="d")
    statement, arguments = enqueuing.call("format")
    assert statement.count("%s") == len(arguments)
    assert '"a""b%%".enqueue_here(%s::bigint' in statement
    created = ((Receipt(Status.CREATED, job.id),),)
    assert enqueuing.receipts([(1, "created", None, None, None, "d")]) == created
    with pytest.raises(StoreError, match='leads to the database "e", the jobs are in "d"'):
        enqueuing.receipts([(1, "created", None, None, None, "e")])
