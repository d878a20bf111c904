"""An id that is sent again while its job is being settled is waited for, and makes no second job."""

import asyncio

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.arrays import NO_ASK, settlements_of
from windlass.broker.postgres.statements import statement
from windlass.conformance.harness import Harness
from windlass.core.job import Status
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
