"""Behind pgbouncer in transaction mode: nothing outlasts a transaction, a stopped client holds up nobody."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.postgres.poolers import Pooler

from windlass import Windlass, current
from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker, read_url
from windlass.conformance.harness import APP, new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome, Verdict
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import MINUTE

__all__ = ["namespaces"]
_ASK = Ask(queues=("q",), slots=5, limit=5, visibility=MINUTE)


@pytest.fixture(scope="module")
def pooler(namespaces: Namespaces) -> Iterator[Pooler]:
    pooler = Pooler(namespaces.server)
    try:
        yield pooler
    finally:
        pooler.stop()


async def _open(pooler: Pooler, namespace: str) -> PostgresBroker:
    broker = await PostgresBroker.open(read_url(pooler.dsn), options=Options(namespace=namespace))
    await broker.declare([Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app=APP)])
    return broker


def test_many_clients_share_few_servers(pooler: Pooler) -> None:
    """Statements of one client meet servers that prepared nothing for it."""

    async def test() -> None:
        brokers = [await _open(pooler, "shared_servers") for _ in range(3)]
        jobs = [NewJob(id=new_id(), task="t", queue="q") for _ in range(60)]

        async def produce(broker: PostgresBroker, mine: list[NewJob]) -> None:
            for job in mine:
                await broker.enqueue([[job]])

        async def consume(broker: PostgresBroker) -> list[str]:
            done: list[str] = []
            while sum(map(len, finished)) < len(jobs):
                leases = (await broker.claim(_ASK)).leases
                items = [
                    Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1)
                    for lease in leases
                ]
                if not items:
                    await broker.wait(["q"], 0.5)
                    continue
                assert {a.verdict for a in (await broker.settle(items)).answers} == {Verdict.APPLIED}
                done += [item.job for item in items]
                finished.append([item.job for item in items])
            return done

        finished: list[list[str]] = []
        async with asyncio.timeout(60):
            lists = await asyncio.gather(
                *(produce(broker, jobs[at::3]) for at, broker in enumerate(brokers)),
                *(consume(broker) for broker in brokers),
            )
        assert sorted(job for each in lists if each for job in each) == sorted(job.id for job in jobs)
        for broker in brokers:
            await broker.close()

    asyncio.run(test())


def test_nothing_of_a_session_is_left_behind(pooler: Pooler, namespaces: Namespaces) -> None:
    """Asked of the servers' own sessions, which others use after us: no prepared statement, no lock, no
    setting, no channel.
    """

    async def test() -> None:
        broker = await _open(pooler, "left_behind")
        await broker.enqueue([[NewJob(id=new_id(), task="t", queue="q")]])
        await broker.claim(_ASK)
        await broker.wait(["q"], 0.05)
        async with broker.transaction(MINUTE):
            pass
        for _ in range(6):
            connection: Any = await asyncpg.connect(pooler.plain, statement_cache_size=0)
            async with connection.transaction():
                left = await connection.fetchrow(
                    "SELECT (SELECT count(*) FROM pg_prepared_statements WHERE statement ~ 'left_behind'),"
                    " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),"
                    " (SELECT count(*) FROM pg_listening_channels()),"
                    " current_setting('idle_in_transaction_session_timeout'),"
                    " coalesce(current_setting('windlass.at', true), '')"
                )
            assert tuple(left) == (0, 0, 0, "0", "")
            await connection.close()
        await broker.close()

    asyncio.run(test())


def test_an_app_enqueues_and_completes_in_transactions(pooler: Pooler) -> None:
    async def test() -> None:
        app = Windlass(pooler.dsn, namespace="pooled_shop")

        @app.task
        async def deliver(order: int) -> None:
            async with current.transaction() as own:
                await own.execute("INSERT INTO delivered VALUES (%s)", [order])

        connection: Any = await asyncpg.connect(pooler.plain, statement_cache_size=0)
        await connection.execute("DROP TABLE IF EXISTS delivered; CREATE TABLE delivered (id int)")
        async with app.worker(concurrency=4):
            jobs: list[Any] = []
            for order in range(10):
                async with connection.transaction():
                    jobs.append(await deliver.using(connection=connection).aenqueue(order))
            for job in jobs:
                await job.aresult(timeout=30)
        rows = await connection.fetch("SELECT id FROM delivered ORDER BY id")
        assert [row["id"] for row in rows] == list(range(10))
        await connection.close()
        await app.aclose()

    asyncio.run(test())


_STOPPED = """
import asyncio, os, signal, sys
from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker, read_url

async def main():
    broker = await PostgresBroker.open(read_url(sys.argv[1]), options=Options(namespace=sys.argv[2]))
    async with broker.transaction(2_000_000) as connection:
        await connection.execute(f"SELECT * FROM {sys.argv[2]}.take_in(NULL, NULL)")
        print("holds", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)

asyncio.run(main())
"""


def test_a_client_that_is_stopped_in_a_transaction_holds_up_nobody_for_long(pooler: Pooler) -> None:
    """It has the namespace's lock, and a server of the pooler's: both come back after the idle timeout."""

    async def test() -> None:
        broker = await _open(pooler, "stopped_client")
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-c", _STOPPED, pooler.dsn, "stopped_client"],
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"holds\n"
            async with asyncio.timeout(20):
                await broker.sweep(limit=10)
        finally:
            process.kill()
            await asyncio.to_thread(process.communicate)
        await broker.close()

    asyncio.run(test())
