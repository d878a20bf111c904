"""What PostgreSQL can do to a broker: end its backends, stop, come back, refuse a step that others cross."""

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.servers import Server, programs

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres import pool as pool_module
from windlass.broker.postgres.pool import Pool
from windlass.broker.postgres.trouble import TRIES
from windlass.broker.postgres.url import Location
from windlass.conformance.harness import APP, new_id
from windlass.core.job import NewJob, Status
from windlass.core.lease import Ask
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.state import State
from windlass.errors import StoreUnavailable

_ASK = Ask(queues=("q",), slots=10, limit=10, visibility=10**9)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # It does not sync, but what was acknowledged must survive its processes.
    server = Server(programs(), synchronous_commit="on")
    try:
        yield server
    finally:
        server.remove()


async def _open(server: Server, namespace: str) -> PostgresBroker:
    broker = await PostgresBroker.open(Location(server.dsn), options=Options(namespace=namespace))
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app=APP)
    await broker.declare([queue])
    return broker


def _job() -> NewJob:
    return NewJob(id=new_id(), task="t", queue="q")


async def _soon(call: Callable[[], Awaitable[Any]]) -> Any:
    """What a patient caller does: try again until the store is back."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def _waits_for_a_lock(connection: Any) -> None:
    async with asyncio.timeout(10):
        while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _terminate(connection: Any) -> None:
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'windlass'"
    )


def test_a_terminated_backend_is_replaced(server: Server) -> None:
    async def test() -> None:
        broker = await _open(server, "terminated")
        connection: Any = await asyncpg.connect(server.dsn)
        job = _job()
        await broker.enqueue([[job]])
        await _terminate(connection)
        (lease,) = (await _soon(lambda: broker.claim(_ASK))).leases
        assert lease.job == job.id
        await connection.close()
        await broker.close()

    asyncio.run(test())


def test_terminated_in_the_middle_of_a_claim_the_row_is_free_or_leased(server: Server) -> None:
    """The claim waits for a row's lock when its backend is ended: nothing of it has happened."""

    async def test() -> None:
        broker = await _open(server, "middle")
        connection: Any = await asyncpg.connect(server.dsn)
        jobs = [_job() for _ in range(3)]
        await broker.enqueue([jobs])
        blocker: Any = await asyncpg.connect(server.dsn)
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE middle.delta IN ACCESS EXCLUSIVE MODE")
            claim = asyncio.create_task(broker.claim(_ASK))
            await _waits_for_a_lock(connection)
            await _terminate(connection)
            with pytest.raises(StoreUnavailable):
                await claim
        states = [detail and detail.state for detail in await _soon(lambda: broker.get([j.id for j in jobs]))]
        assert states == [State.READY] * 3
        assert [lease.attempt for lease in (await broker.claim(_ASK)).leases] == [1, 1, 1]
        await blocker.close()
        await connection.close()
        await broker.close()

    asyncio.run(test())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_stopped_server_is_found_again(server: Server, how: signal.Signals) -> None:
    async def test() -> None:
        broker = await _open(server, f"stopped_{how.name.lower()}")
        job = _job()
        await broker.enqueue([[job]])
        await asyncio.to_thread(server.stop, how)
        with pytest.raises(StoreUnavailable):
            await broker.claim(_ASK)
        waiting = asyncio.create_task(_soon(lambda: broker.claim(_ASK)))
        await asyncio.to_thread(server.start)
        assert [lease.job for lease in (await waiting).leases] == [job.id]
        await broker.close()

    asyncio.run(test())


@pytest.mark.parametrize("code", ["deadlock_detected", "serialization_failure"])
def test_a_step_that_others_crossed_is_tried_again(server: Server, code: str) -> None:
    """A sequence keeps count: it is not rolled back."""

    async def test() -> None:
        connection: Any = await asyncpg.connect(server.dsn)
        await connection.execute(
            "CREATE SEQUENCE IF NOT EXISTS tries; ALTER SEQUENCE tries RESTART;"
            "CREATE OR REPLACE FUNCTION crossed(often bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN "
            f"IF nextval('tries') <= often THEN RAISE EXCEPTION 'crossed' USING ERRCODE = '{code}'; END IF; "
            "RETURN currval('tries'); END $$"
        )
        pool = Pool(Location(server.dsn))
        rows = await pool.fetch(b"SELECT crossed($1)", [str(TRIES - 1)], named=False)
        assert rows == [(TRIES,)]
        with pytest.raises(StoreUnavailable, match=f"in {TRIES} tries"):
            await pool.fetch(b"SELECT crossed($1)", ["1000"], named=False)
        await pool.close()
        await connection.close()

    asyncio.run(test())


def test_two_settles_in_opposite_order_do_not_wait_for_each_other(server: Server) -> None:
    async def test() -> None:
        one, other = await _open(server, "opposite"), await _open(server, "opposite")
        for _ in range(10):
            jobs = [_job() for _ in range(20)]
            groups = [jobs, list(reversed(jobs))]
            receipts = await asyncio.gather(one.enqueue([groups[0]]), other.enqueue([groups[1]]))
            created = [r for each in receipts for r in each[0] if r.status is Status.CREATED]
            assert len(created) == len(jobs)
        await one.close()
        await other.close()

    asyncio.run(test())


def test_a_cancelled_call_does_not_harm_the_next(server: Server) -> None:
    async def test() -> None:
        broker = await _open(server, "cancelled")
        for _ in range(5):
            call = asyncio.create_task(broker.enqueue([[_job()]]))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert (await broker.counts()) is not None
        await broker.close()

    asyncio.run(test())


@pytest.mark.parametrize("how", ["cancelled", "out of patience"])
def test_whoever_gives_up_waits_for_nobody(server: Server, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The server is in the middle of the call. It is told to end it, on a connection that nobody uses."""
    if how != "cancelled":
        monkeypatch.setattr(pool_module, "PATIENCE", 0.1)

    async def test() -> None:
        broker = await _open(server, "given_up")
        operator: Any = await asyncpg.connect(server.dsn)
        async with operator.transaction():
            await operator.execute("LOCK TABLE given_up.job IN ACCESS EXCLUSIVE MODE")
            call = asyncio.create_task(broker.enqueue([[_job()]]))
            if how == "cancelled":
                await _waits_for_a_lock(operator)
                call.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert call.cancelled()
            else:
                with pytest.raises(StoreUnavailable, match="did not answer in time"):
                    await call
            async with asyncio.timeout(10):
                while await operator.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert (await broker.counts()).rows == ()
        await operator.close()
        await broker.close()

    asyncio.run(test())


def test_a_loop_that_ends_in_the_middle_of_a_call_leaves_no_connection(server: Server) -> None:
    async def test() -> None:
        broker = await _open(server, "ended")
        operator: Any = await asyncpg.connect(server.dsn)
        async with operator.transaction():
            await operator.execute("LOCK TABLE ended.job IN ACCESS EXCLUSIVE MODE")
            call = asyncio.ensure_future(broker.enqueue([[_job()]]))
            await _waits_for_a_lock(operator)
            (driver,) = asyncio.all_tasks() - {asyncio.current_task(), call}
            driver.cancel()  # a loop cancels in no order: this one may end first
            await asyncio.wait((call,))
            assert call.cancelled()
        await broker.close()
        async with asyncio.timeout(10):
            while await operator.fetchval(  # noqa: ASYNC110
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'"
            ):
                await asyncio.sleep(0.01)
        await operator.close()

    asyncio.run(test())


def test_nor_a_complaint_of_the_place_that_it_has_set_apart(server: Server) -> None:
    complaints: list[dict[str, Any]] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, said: complaints.append(said))
        pool = Pool(Location(server.dsn))
        pool.set_apart()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        await pool.close()

    asyncio.run(test())
    gc.collect()
    assert complaints == []


def test_a_child_of_a_fork_opens_its_own_connections(server: Server) -> None:
    async def count(broker: PostgresBroker) -> int:
        return sum(row.count for row in (await broker.counts()).rows)

    with asyncio.Runner() as runner:
        broker = runner.run(_open(server, "forked"))
        runner.run(broker.enqueue([[_job()]]))
        child = os.fork()
        if not child:
            asyncio.events._set_running_loop(None)
            loop = asyncio.new_event_loop()
            status = 1
            try:
                loop.run_until_complete(broker.enqueue([[_job()]]))
                status = int(loop.run_until_complete(count(broker)) != 2)
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert runner.run(count(broker)) == 2
        runner.run(broker.close())
