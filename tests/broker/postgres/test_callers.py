"""Enqueue on an application's own connection, by every driver: the job and the order live or die together."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from tests.broker.postgres import drivers
from tests.broker.postgres.drivers import ASYNC, BLOCKING, Undo
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass import Windlass
from windlass.client.handle import Job
from windlass.core.state import State
from windlass.errors import InvalidOption, JobNotFound, StoreError

__all__ = ["namespaces"]


class Shop:
    """An app with a table of its own beside it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.app = Windlass(dsn.replace("postgres://", "postgresql://"), namespace="callers")

        @self.app.task
        def deliver(order: int) -> int:
            return order

        self.deliver = deliver

    def orders(self) -> list[int]:
        with psycopg.connect(self.dsn) as connection:
            return [order for (order,) in connection.execute("SELECT id FROM orders ORDER BY id").fetchall()]

    def exists(self, job: Job[int]) -> bool:
        try:
            return job.state() is State.READY
        except JobNotFound:
            return False

    async def aexists(self, job: Job[int]) -> bool:
        try:
            return await job.astate() is State.READY
        except JobNotFound:
            return False


@pytest.fixture
def shop(namespaces: Namespaces) -> Iterator[Shop]:
    with psycopg.connect(namespaces.server.dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    shop = Shop(namespaces.server.dsn)
    yield shop
    shop.app.close()


def _order(number: int) -> str:
    return f"INSERT INTO orders VALUES ({number})"  # noqa: S608 - a number


@pytest.mark.parametrize("driver", BLOCKING)
def test_from_blocking_code(shop: Shop, driver: str) -> None:
    with BLOCKING[driver](shop.dsn) as own:
        deliver = shop.deliver.using(connection=own.connection)
        with suppress(Undo), own.transaction():
            own.execute(_order(1))
            lost = deliver.enqueue(1)
            raise Undo
        with own.transaction():
            own.execute(_order(2))
            kept = deliver.enqueue(2)
            with suppress(Undo), own.savepoint():
                own.execute(_order(3))
                undone = deliver.enqueue(3)
                raise Undo
            assert not shop.exists(kept), "before the commit nobody sees it"
        assert [shop.exists(job) for job in (lost, kept, undone)] == [False, True, False]
        with own.transaction():
            many = shop.app.enqueue_many((shop.deliver.call(n) for n in (5, 6)), connection=own.connection)
            assert not shop.exists(many[0])
        assert all(map(shop.exists, many))
    assert shop.orders() == [2]


@pytest.mark.parametrize("driver", ASYNC)
def test_from_async_code(shop: Shop, driver: str) -> None:
    async def test() -> None:
        async with ASYNC[driver](shop.dsn) as own:
            deliver = shop.deliver.using(connection=own.connection)
            with suppress(Undo):
                async with own.transaction():
                    await own.execute(_order(1))
                    lost = await deliver.aenqueue(1)
                    raise Undo
            async with own.transaction():
                await own.execute(_order(2))
                kept = await deliver.aenqueue(2)
                with suppress(Undo):
                    async with own.savepoint():
                        await own.execute(_order(3))
                        undone = await deliver.aenqueue(3)
                        raise Undo
                assert not await shop.aexists(kept), "before the commit nobody sees it"
            assert [await shop.aexists(job) for job in (lost, kept, undone)] == [False, True, False]
            async with own.transaction():
                calls = (shop.deliver.call(n) for n in (5, 6))
                many = await shop.app.aenqueue_many(calls, connection=own.connection)
                assert not await shop.aexists(many[0])
            assert [await shop.aexists(job) for job in many] == [True, True]
        await shop.app.aclose()

    asyncio.run(test())
    assert shop.orders() == [2]


# --- wrong use ----------------------------------------------------------------------------------------------


def _refused(shop: Shop, connection: Any) -> str:
    with pytest.raises((InvalidOption, StoreError)) as caught:
        shop.deliver.using(connection=connection).enqueue(1)
    message = str(caught.value)
    assert "\n" not in message
    return message


def _arefused(shop: Shop, connection: Any) -> str:
    async def test() -> str:
        with pytest.raises((InvalidOption, StoreError)) as caught:
            await shop.deliver.using(connection=connection).aenqueue(1)
        await shop.app.aclose()
        return str(caught.value)

    return asyncio.run(test())


def test_a_connection_that_commits_by_itself_is_refused(shop: Shop) -> None:
    before = _count(shop)
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        assert "autocommit" in _refused(shop, connection)
    engine = sqlalchemy.create_engine(shop.dsn.replace("postgres:", "postgresql+psycopg:"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as own:
        assert "AUTOCOMMIT" in _refused(shop, own)
    engine.dispose()
    drivers.configure_django(shop.dsn)
    from django.db import connection as djangos  # noqa: PLC0415 - after its settings

    assert "transaction.atomic()" in _refused(shop, djangos)
    djangos.close()
    assert _count(shop) == before


def test_an_async_connection_that_commits_by_itself_is_refused(shop: Shop) -> None:
    before = _count(shop)

    async def test() -> None:
        deliver = shop.deliver
        connection: Any = await asyncpg.connect(shop.dsn)
        with pytest.raises(InvalidOption, match="no transaction is open"):
            await deliver.using(connection=connection).aenqueue(1)
        await connection.close()
        async with await psycopg.AsyncConnection.connect(shop.dsn, autocommit=True) as other:
            with pytest.raises(InvalidOption, match="autocommit"):
                await deliver.using(connection=other).aenqueue(1)
        url = shop.dsn.replace("postgres:", "postgresql+asyncpg:")
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        async with engine.connect() as third:
            with pytest.raises(InvalidOption, match="AUTOCOMMIT"):
                await deliver.using(connection=third).aenqueue(1)
        await engine.dispose()
        await shop.app.aclose()

    asyncio.run(test())
    assert _count(shop) == before


def _count(shop: Shop) -> int:
    async def counts() -> Any:
        return (await (await shop.app.broker()).counts()).rows

    return sum(row.count for row in shop.app.connection.run(counts()))


def test_what_is_no_connection_is_refused(shop: Shop) -> None:
    known = "must be one of asyncpg, psycopg (3), SQLAlchemy or Django"
    with closing(sqlite3.connect(":memory:")) as other:
        assert known in _refused(shop, other)
        assert "not a sqlite3.Connection" in _refused(shop, other)
    assert "not a builtins.str" in _arefused(shop, "postgres://u:secret@h/d")
    assert "secret" not in _refused(shop, "postgres://u:secret@h/d")
    older = type("connection", (), {"__module__": "psycopg2.extensions"})
    assert "psycopg2 is not supported: use psycopg 3" in _refused(shop, older())
    engine = sqlalchemy.create_engine("sqlite://")
    assert "take a connection from it" in _refused(shop, engine)
    with engine.connect() as connection:
        assert "leads to sqlite" in _refused(shop, connection)
    engine.dispose()
    drivers.configure_django(shop.dsn)
    from django.db import connections  # noqa: PLC0415 - after its settings

    assert 'Django\'s connection "lite" leads to sqlite' in _refused(shop, connections["lite"])


def test_a_connection_of_the_wrong_kind_is_refused(shop: Shop) -> None:
    with psycopg.connect(shop.dsn) as connection:
        assert "it blocks: call enqueue from blocking code" in _arefused(shop, connection)

    async def opened() -> Any:
        return await asyncpg.connect(shop.dsn)

    with asyncio.Runner() as runner:
        other = runner.run(opened())
        assert "it is for coroutines: write await ….aenqueue(…)" in _refused(shop, other)
        runner.run(other.close())


def test_a_connection_to_another_database_is_refused(shop: Shop) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS other")
        connection.execute("CREATE DATABASE other")
    elsewhere = shop.dsn.replace("/postgres?", "/other?")
    with psycopg.connect(elsewhere) as connection:
        assert 'has no namespace "callers"' in _refused(shop, connection)
    theirs = Shop(elsewhere)
    theirs.deliver.enqueue(1)
    theirs.app.close()
    with psycopg.connect(elsewhere) as connection:
        assert 'leads to the database "other", the jobs are in "postgres"' in _refused(shop, connection)
        connection.rollback()


def test_a_role_needs_no_more_than_the_use_of_the_schema(shop: Shop) -> None:
    _count(shop)
    with psycopg.connect(shop.dsn, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS clerk")
        owner.execute("CREATE ROLE clerk LOGIN")
        with psycopg.connect(shop.dsn.replace("windlass@", "clerk@")) as connection:
            assert 'GRANT USAGE ON SCHEMA "callers" TO that role' in _refused(shop, connection)
            connection.rollback()
            owner.execute("GRANT USAGE ON SCHEMA callers TO clerk")
            job = shop.deliver.using(connection=connection).enqueue(1)
            connection.commit()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT payload FROM callers.job")
            connection.rollback()
        assert shop.exists(job)
        owner.execute("DROP OWNED BY clerk")
        owner.execute("DROP ROLE clerk")
