"""Connections of an application's own, by every driver that an enqueue can travel with.

Each opens one connection, and gives transactions and savepoints on it: left by an error they are rolled back.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session


class Undo(Exception):
    """Raised to roll back."""


class Blocking:
    """A connection that blocks: what is passed on, and what makes transactions and executes."""

    def __init__(self, connection: Any, begin: Any, nest: Any, execute: Any) -> None:
        self.connection = connection
        self._begin, self._nest = begin, nest
        self.execute = execute

    def transaction(self) -> AbstractContextManager[Any]:
        return self._begin()

    def savepoint(self) -> AbstractContextManager[Any]:
        return self._nest()


class Async:
    """The same for coroutines."""

    def __init__(self, connection: Any, begin: Any, nest: Any, execute: Any) -> None:
        self.connection = connection
        self._begin, self._nest = begin, nest
        self.execute = execute

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._begin()

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        return self._nest()


def _alchemy_url(dsn: str, driver: str) -> str:
    return dsn.replace("postgres://", f"postgresql+{driver}://")


@contextmanager
def _psycopg(dsn: str, **options: Any) -> Iterator[Blocking]:
    with psycopg.connect(dsn, **options) as connection:
        yield Blocking(connection, connection.transaction, connection.transaction, connection.execute)


@contextmanager
def _psycopg_implicit(dsn: str) -> Iterator[Blocking]:
    """The transaction begins with the first statement."""
    with psycopg.connect(dsn) as connection:

        @contextmanager
        def begun() -> Iterator[None]:
            try:
                yield
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

        yield Blocking(connection, begun, connection.transaction, connection.execute)


@contextmanager
def _psycopg_odd(dsn: str) -> Iterator[Blocking]:
    """With rows and places of another form, and autocommit but for transactions that are begun."""
    with _psycopg(dsn, row_factory=dict_row, cursor_factory=psycopg.RawCursor, autocommit=True) as found:
        yield found


@contextmanager
def _alchemy_connection(dsn: str) -> Iterator[Blocking]:
    engine = sqlalchemy.create_engine(_alchemy_url(dsn, "psycopg"))
    with engine.connect() as connection:
        yield Blocking(connection, connection.begin, connection.begin_nested, connection.exec_driver_sql)
    engine.dispose()


@contextmanager
def _alchemy_session(dsn: str) -> Iterator[Blocking]:
    engine = sqlalchemy.create_engine(_alchemy_url(dsn, "psycopg"))
    with Session(engine) as session:

        def execute(statement: str) -> None:
            session.execute(sqlalchemy.text(statement))

        yield Blocking(session, session.begin, session.begin_nested, execute)
    engine.dispose()


def configure_django(dsn: str) -> None:
    """Once per process: Django has one set of settings."""
    import django  # noqa: PLC0415 - nothing else of the tests needs it
    import django.conf  # noqa: PLC0415

    if django.conf.settings.configured:
        return
    place = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "windlass",
        "HOST": dsn.partition("?host=")[2],
    }
    django.conf.settings.configure(
        DATABASES={
            "default": place,
            "bound": {**place, "OPTIONS": {"server_side_binding": True}},
            "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        USE_TZ=True,
    )
    django.setup()


@contextmanager
def _django(dsn: str) -> Iterator[Blocking]:
    configure_django(dsn)
    from django.db import connection, transaction  # noqa: PLC0415 - after its settings

    def execute(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    try:
        yield Blocking(connection, transaction.atomic, transaction.atomic, execute)
    finally:
        connection.close()


@contextmanager
def _django_bound(dsn: str) -> Iterator[Blocking]:
    configure_django(dsn)
    from django.db import connections, transaction  # noqa: PLC0415 - likewise

    connection = connections["bound"]

    def atomic() -> Any:
        return transaction.atomic(using="bound")

    def execute(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    try:
        yield Blocking(connection, atomic, atomic, execute)
    finally:
        connection.close()


BLOCKING = {
    "psycopg": _psycopg,
    "psycopg, implicit": _psycopg_implicit,
    "psycopg, odd": _psycopg_odd,
    "sqlalchemy connection": _alchemy_connection,
    "sqlalchemy session": _alchemy_session,
    "django": _django,
    "django, bound by the server": _django_bound,
}


@asynccontextmanager
async def _asyncpg(dsn: str) -> AsyncIterator[Async]:
    connection: Any = await asyncpg.connect(dsn)
    yield Async(connection, connection.transaction, connection.transaction, connection.execute)
    await connection.close()


@asynccontextmanager
async def _asyncpg_pool(dsn: str) -> AsyncIterator[Async]:
    pool: Any
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield Async(connection, connection.transaction, connection.transaction, connection.execute)


@asynccontextmanager
async def _psycopg_async(dsn: str) -> AsyncIterator[Async]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield Async(connection, connection.transaction, connection.transaction, connection.execute)


def _alchemy_async(driver: str) -> Any:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Async]:
        engine = create_async_engine(_alchemy_url(dsn, driver))
        async with engine.connect() as connection:
            yield Async(connection, connection.begin, connection.begin_nested, connection.exec_driver_sql)
        await engine.dispose()

    return opened


def _alchemy_async_session(driver: str) -> Any:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Async]:
        engine = create_async_engine(_alchemy_url(dsn, driver))
        async with AsyncSession(engine) as session:

            async def execute(statement: str) -> None:
                await session.execute(sqlalchemy.text(statement))

            yield Async(session, session.begin, session.begin_nested, execute)
        await engine.dispose()

    return opened


ASYNC = {
    "asyncpg": _asyncpg,
    "asyncpg, lent by a pool": _asyncpg_pool,
    "psycopg": _psycopg_async,
    "sqlalchemy connection, asyncpg": _alchemy_async("asyncpg"),
    "sqlalchemy connection, psycopg": _alchemy_async("psycopg"),
    "sqlalchemy session, asyncpg": _alchemy_async_session("asyncpg"),
    "sqlalchemy session, psycopg": _alchemy_async_session("psycopg"),
}
