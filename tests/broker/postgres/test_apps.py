"""Applications on PostgreSQL: jobs enqueued and completed together with writes of their own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass import RetryPolicy, Windlass, current
from windlass.core.outcome import Cause, CauseKind
from windlass.core.state import State
from windlass.errors import JobFailed, JobNotFound, LeaseLost, StoreUnavailable

__all__ = ["namespaces"]


class Shop:
    """An app, and a table of its own beside it."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.dsn = namespaces.server.dsn
        self.app = Windlass(self.dsn.replace("postgres://", "postgresql://"), namespace="shop")

    async def query(self, statement: str, *args: Any) -> Any:
        connection: Any = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()


def on_shop(namespaces: Namespaces, scenario: Callable[[Shop], Awaitable[None]]) -> None:
    async def main() -> None:
        shop = Shop(namespaces)
        await shop.query("DROP SCHEMA IF EXISTS shop CASCADE")
        await shop.query("DROP TABLE IF EXISTS orders, account")
        await shop.query("CREATE TABLE orders (id int PRIMARY KEY)")
        await shop.query("CREATE TABLE account (name text PRIMARY KEY, balance int NOT NULL)")
        try:
            await scenario(shop)
        finally:
            await shop.app.aclose()

    asyncio.run(main())


def test_a_job_comes_with_the_commit_of_its_order(namespaces: Namespaces) -> None:
    async def scenario(shop: Shop) -> None:
        @shop.app.task
        async def deliver(order: int) -> int:
            return order

        connection: Any = await asyncpg.connect(shop.dsn)
        async with shop.app.worker():
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("INSERT INTO orders VALUES (1)")
            lost = await deliver.using(connection=connection).aenqueue(1)
            await transaction.rollback()
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (2)")
                kept = await deliver.using(connection=connection).aenqueue(2)
                with pytest.raises(JobNotFound):
                    await kept.astate()
            assert await kept.aresult(timeout=20) == 2
            with pytest.raises(JobNotFound):
                await lost.astate()
        await connection.close()

    on_shop(namespaces, scenario)


_TAKE = "UPDATE account SET balance = balance - %s WHERE name = 'a'"
_GIVE = "UPDATE account SET balance = balance + %s WHERE name = 'b'"


def test_a_transfer_happens_once_with_the_end_of_its_job(namespaces: Namespaces) -> None:
    async def scenario(shop: Shop) -> None:
        @shop.app.task(retry=RetryPolicy(base=0, max_attempts=3))
        async def transfer(amount: int) -> None:
            async with current.transaction() as connection:
                await connection.execute(_TAKE, [amount])
                if current.attempt == 1:
                    raise ValueError("before the commit: nothing has happened")
                await connection.execute(_GIVE, [amount])
            if current.attempt == 2:
                raise ValueError("after the commit: the job is done all the same")

        await shop.query("INSERT INTO account VALUES ('a', 100), ('b', 0)")
        async with shop.app.worker():
            jobs = [await transfer.aenqueue(10) for _ in range(5)]
            for job in jobs:
                assert await job.aresult(timeout=20) is None
        assert [await job.astate() for job in jobs] == [State.DONE] * 5
        rows = await shop.query("SELECT name, balance FROM account ORDER BY name")
        assert [tuple(row) for row in rows] == [("a", 50), ("b", 50)]

    on_shop(namespaces, scenario)


def test_a_run_that_has_lost_its_lease_commits_nothing(namespaces: Namespaces) -> None:
    async def scenario(shop: Shop) -> None:
        raised: list[type[BaseException]] = []

        @shop.app.task
        async def transfer() -> None:
            if current.attempt > 1:
                return
            broker = await shop.app.broker()
            try:
                async with current.transaction() as connection:
                    await connection.execute("UPDATE account SET balance = 0")
                    (view,) = [each for each in await broker.sessions() if each.leases]
                    await broker.end_session(view.id, Cause(CauseKind.LOST, "for the test"))
            except LeaseLost as error:
                raised.append(type(error))
                raise

        await shop.query("INSERT INTO account VALUES ('a', 100)")
        async with shop.app.worker():
            job = await transfer.aenqueue()
            assert await job.aresult(timeout=30) is None
        assert raised == [LeaseLost]
        assert [tuple(row) for row in await shop.query("SELECT balance FROM account")] == [(100,)]

    on_shop(namespaces, scenario)


def test_a_connection_that_is_lost_within_a_transaction(namespaces: Namespaces) -> None:
    """The task is told so in the words of the project, nothing of it is committed, and the job runs again."""

    async def scenario(shop: Shop) -> None:
        raised: list[BaseException] = []

        @shop.app.task(retry=RetryPolicy(base=0, max_attempts=2))
        async def order() -> None:
            try:
                async with current.transaction() as connection:
                    await connection.execute("INSERT INTO orders VALUES (%s)", [current.attempt])
                    if current.attempt == 1:
                        await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            except Exception as error:
                raised.append(error)
                raise

        async with shop.app.worker():
            job = await order.aenqueue()
            assert await job.aresult(timeout=30) is None
        (error,) = raised
        assert type(error) is StoreUnavailable
        assert "was lost within a transaction: it was rolled back" in str(error)
        assert [tuple(row) for row in await shop.query("SELECT id FROM orders")] == [(2,)]

    on_shop(namespaces, scenario)


def test_what_a_task_raises_within_a_transaction_is_its_own(namespaces: Namespaces) -> None:
    """Also what looks like the trouble of a connection, while that of the transaction is well."""

    async def scenario(shop: Shop) -> None:
        @shop.app.task(retry=RetryPolicy(max_attempts=1))
        async def order() -> None:
            async with current.transaction():
                raise ConnectionRefusedError("somewhere else")

        async with shop.app.worker():
            job = await order.aenqueue()
            with pytest.raises(JobFailed, match="ConnectionRefusedError: somewhere else"):
                await job.aresult(timeout=30)

    on_shop(namespaces, scenario)


def test_a_blocking_task_is_told_what_to_write(namespaces: Namespaces) -> None:
    async def scenario(shop: Shop) -> None:
        @shop.app.task(retry=RetryPolicy(max_attempts=1))
        def transfer() -> None:
            with current.transaction():
                pass

        async with shop.app.worker():
            job = await transfer.aenqueue()
            with pytest.raises(JobFailed, match="make the task async def, and write async with"):
                await job.aresult(timeout=30)

    on_shop(namespaces, scenario)
