"""Claims pass over the deleted rows that a transaction keeps, which was left open."""

import asyncio
from typing import Any

import asyncpg
import msgspec
from tests.broker.postgres.measuring import Measured, Told
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres.url import Location
from windlass.clock import ManualClock
from windlass.conformance.harness import APP, Harness, new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import MINUTE, SECOND

__all__ = ["namespaces"]
_ROUNDS, _JOBS, _BATCH = 8, 400, 50


class _Flow:
    """Jobs that are enqueued, claimed and done by one session."""

    def __init__(self, broker: Told, clock: ManualClock) -> None:
        self._broker = broker
        self._clock = clock
        self._seq = 0

    async def enqueue(self, priority: int) -> None:
        """Jobs that are not alike, so that each stands alone."""
        jobs = [
            NewJob(id=new_id(), task=f"t{number % 2}", queue="q", priority=priority)
            for number in range(_JOBS)
        ]
        await self._broker.enqueue([jobs])

    async def settle(self, leases: tuple[Lease, ...]) -> tuple[Lease, ...]:
        """End these, and take others."""
        self._seq += 1
        ask = Ask(queues=("q",), slots=_BATCH, limit=_BATCH, session="s", seq=self._seq)
        items = [
            Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1) for lease in leases
        ]
        claimed = (await self._broker.settle(items, ask)).claimed
        assert claimed is not None
        return claimed.leases

    async def round(self, leases: tuple[Lease, ...], priority: int) -> tuple[Lease, ...]:
        """As many jobs come as go, and a second passes."""
        await self.enqueue(priority)
        for _ in range(_JOBS // _BATCH):
            leases = await self.settle(leases)
            assert leases
        self._clock.advance(SECOND)
        await self._broker.beat([Beat(session="s")])
        await self._broker.sweep(limit=1_000)
        return leases


def test_a_claim_passes_over_what_an_open_transaction_keeps(namespaces: Namespaces) -> None:
    """Of two bands in turn: each has a floor of its own."""

    async def test() -> None:
        prepared = await namespaces.open(None, Options())
        clock = ManualClock()
        options = Options(namespace=prepared.namespace)
        broker = await Told.open(Location(namespaces.server.dsn, connections=1), clock=clock, options=options)
        assert isinstance(broker, Told)
        connection: Any = await asyncpg.connect(namespaces.server.dsn)
        holder: Any = await asyncpg.connect(namespaces.server.dsn)
        subject = Subject(Kind.QUEUE, "q")
        await broker.declare([Declaration(subject=subject, body=QueueSettings(), app=APP)])
        await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
        try:
            async with holder.transaction(isolation="repeatable_read"):
                await holder.fetchval("SELECT count(*) FROM pg_class")
                flow = _Flow(broker, clock)
                await flow.enqueue(0)
                await flow.enqueue(5)
                leases = await flow.settle(())
                for number in range(_ROUNDS):
                    leases = await flow.round(leases, priority=number % 2 * 5)
                measured = Measured(broker, connection)
                for what in (lambda: flow.settle(leases), lambda: broker.sweep(limit=1_000)):
                    clock.advance(SECOND)
                    read = await measured.read_by(what)
                    # Of the 3,000 that are gone every index has an entry.
                    assert read.total() < 4 * _JOBS, read
        finally:
            await holder.close()
            await connection.close()
            await broker.close()
            await prepared.close()

    asyncio.run(test())


def test_a_job_that_goes_back_below_the_floor_is_next(namespaces: Namespaces) -> None:
    async def test() -> None:
        harness = await Harness.open(namespaces.open, Options())
        try:
            jobs = [await harness.add() for _ in range(4)]
            worker, other = await harness.worker(), await harness.worker()
            released = await worker.one()
            lost = await other.one()
            await harness.sweep()  # raises the floor to the third
            await harness.release(released)
            assert (await worker.one()).job == jobs[0]
            await harness.sweep()
            await harness.broker.end_session(other.id, Cause(CauseKind.STOP))
            assert [lease.job for lease in await worker.take(3)] == [lost.job, *jobs[2:]]
        finally:
            await harness.close()

    asyncio.run(test())


def test_the_doctor_warns_of_a_transaction_of_ten_minutes(namespaces: Namespaces) -> None:
    async def test() -> None:
        broker = await namespaces.open(None, Options())
        health = msgspec.structs.replace(
            await broker.health(), oldest_transaction=10 * MINUTE, oldest_by="pid 7 (nightly report)"
        )
        assert any(
            "pid 7 (nightly report) has been open for 600 s and hinders vacuum" in warning
            for warning in health.warnings()
        )
        await broker.close()

    asyncio.run(test())
