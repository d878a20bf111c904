"""Ids that are sent again while others create or settle their jobs are waited for, and make no second job."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.arrays import NO_ASK, jobs_of, settlements_of
from windlass.broker.postgres.statements import statement
from windlass.conformance.harness import Harness
from windlass.core.job import NewJob, Status
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.state import State

__all__ = ["namespaces"]


@pytest.mark.parametrize(
    ("many", "mixed"),
    [(1, False), (3, False), (3, True)],
    ids=["one", "many alike", "many"],
)
def test_an_id_sent_again_while_its_job_is_settled_makes_no_second(
    namespaces: Namespaces, many: int, mixed: bool
) -> None:
    async def story() -> None:
        store = await Harness.open(namespaces.open, Options())
        broker = store.broker
        assert isinstance(broker, PostgresBroker)
        await store.queue("q")
        jobs = [store.job(priority=number if mixed else 0) for number in range(many)]
        await broker.enqueue([jobs])
        worker = await store.worker()
        leases = (await worker.claim(slots=10)).leases
        other = await asyncpg.connect(namespaces.server.dsn)
        settling = other.transaction()
        await settling.start()
        ends = [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE) for lease in leases]
        arguments = (store.clock.now(), *settlements_of(ends), *NO_ASK)
        call = statement(broker._namespace.schema, "settle", len(arguments))
        await other.fetch(call.decode(), *arguments)
        again = asyncio.ensure_future(broker.enqueue([jobs]))
        looking = await asyncpg.connect(namespaces.server.dsn)
        while not await looking.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not again.done()
        await settling.commit()
        assert [receipt.status for receipt in (await again)[0]] == [Status.DUPLICATE] * many
        assert await store.count(State.DONE) == many
        assert not (await worker.claim(slots=10)).leases
        for connection in (other, looking):
            await connection.close()
        await store.close()

    asyncio.run(story())


def test_the_same_ids_sent_in_opposite_orders_are_no_deadlock(namespaces: Namespaces) -> None:
    """Two send three ids while a third holds the middle one: each has its own first one by then.

    On plain connections, as a broker would try again.
    """

    async def story() -> None:
        store = await Harness.open(namespaces.open, Options())
        assert isinstance(store.broker, PostgresBroker)
        await store.queue("q")
        schema = store.broker.namespace
        jobs = sorted((store.job() for _ in range(3)), key=lambda job: job.id)
        holder, one, other, looking = [await asyncpg.connect(namespaces.server.dsn) for _ in range(4)]

        def enqueue(connection: Any, given: Sequence[NewJob]) -> Any:
            arguments = (store.clock.now(), [len(given)], *jobs_of(given))
            return connection.fetch(statement(schema, "enqueue", len(arguments)).decode(), *arguments)

        holding = holder.transaction()
        await holding.start()
        await enqueue(holder, jobs[1:2])
        sending = asyncio.gather(enqueue(one, jobs), enqueue(other, jobs[::-1]))
        while await looking.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < 2:
            assert not sending.done()
            await asyncio.sleep(0.01)
        await holding.rollback()
        created, again = sorted(await sending, key=len)
        assert created == []  # no row: every job was created
        assert [row["status"] for row in again] == ["duplicate"] * 3
        assert await store.count(State.READY) == 3
        for connection in (holder, one, other, looking):
            await connection.close()
        await store.close()

    asyncio.run(story())
