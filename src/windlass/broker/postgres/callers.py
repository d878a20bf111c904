"""Connections of callers, whatever their driver: known by their class, which is never imported for that.

Blocking: psycopg's, SQLAlchemy's (also a session) and Django's. For coroutines: asyncpg's (also one that a
pool lent), psycopg's and SQLAlchemy's (also a session). Anything else, and a connection without an
open transaction, is refused before anything is executed: the job would come at once, and stay when the
caller's work is undone.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar, cast

from windlass.errors import InvalidOption

Style = Literal["dollar", "format"]
"""How the places of arguments are written: `$1` (asyncpg) or `%s` (psycopg, and what stands on it)."""
Execute: TypeAlias = Callable[[Style], tuple[str, tuple[Any, ...]]]
"""The statement and its arguments, once the style is known."""
Rows: TypeAlias = Sequence[Sequence[Any]]
_T = TypeVar("_T")

_OPEN_ONE: Final = "open a transaction first, or enqueue without connection="
_IDLE: Final = 0
"""What libpq calls a connection that is in no transaction."""


async def fetch(connection: object, call: Execute) -> Rows:
    """Execute a call on a connection for coroutines, in the transaction that is open on it."""
    return await _known(connection, _COROUTINES, _BLOCKING, _NOT_FOR_COROUTINES)(connection, call)


def fetch_blocking(connection: object, call: Execute) -> Rows:
    """The same on a connection that blocks."""
    return _known(connection, _BLOCKING, _COROUTINES, _NOT_FOR_BLOCKING)(connection, call)


# --- by driver ----------------------------------------------------------------------------------------------


async def _asyncpg(connection: Any, call: Execute) -> Rows:
    if not connection.is_in_transaction():
        _refuse(f"no transaction is open on this connection of asyncpg: {_OPEN_ONE}")
    statement, arguments = call("dollar")
    return await connection.fetch(statement, *arguments)


def _psycopg(connection: Any, call: Execute) -> Rows:
    import psycopg  # noqa: PLC0415 - the caller has it
    from psycopg.rows import tuple_row  # noqa: PLC0415

    _check_psycopg(connection)
    # Not the connection's own cursor: it may be of another kind, with rows and places of another form.
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(*cast("Any", call("format")))
        return cursor.fetchall()


async def _psycopg_async(connection: Any, call: Execute) -> Rows:
    import psycopg  # noqa: PLC0415 - likewise
    from psycopg.rows import tuple_row  # noqa: PLC0415

    _check_psycopg(connection)
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(*cast("Any", call("format")))
        return await cursor.fetchall()


def _check_psycopg(connection: Any) -> None:
    if connection.autocommit and connection.info.transaction_status == _IDLE:
        _refuse(f"this connection of psycopg commits every statement (autocommit): {_OPEN_ONE}")


def _alchemy(connection: Any, call: Execute) -> Rows:
    dialect = connection.dialect
    if dialect.name != "postgresql":
        _refuse(f"this connection leads to {dialect.name}; the jobs are in PostgreSQL")
    if dialect.driver not in ("asyncpg", "psycopg", "psycopg_async"):
        _refuse(
            f"the driver {dialect.driver} of this connection is not supported;"
            " use postgresql+psycopg:// or postgresql+asyncpg://"
        )
    if connection.connection.dbapi_connection.autocommit:
        _refuse(f"this connection of SQLAlchemy commits every statement (AUTOCOMMIT): {_OPEN_ONE}")
    statement, arguments = call("dollar" if dialect.driver == "asyncpg" else "format")
    # By SQLAlchemy, not by its driver: only so it knows that there is something to commit.
    return connection.exec_driver_sql(statement, arguments).fetchall()


def _alchemy_session(session: Any, call: Execute) -> Rows:
    return _alchemy(session.connection(), call)


async def _alchemy_async(connection: Any, call: Execute) -> Rows:
    return await connection.run_sync(_alchemy, call)


async def _alchemy_async_session(session: Any, call: Execute) -> Rows:
    return await _alchemy_async(await session.connection(), call)


def _django(connection: Any, call: Execute) -> Rows:
    if connection.vendor != "postgresql":
        _refuse(f'Django\'s connection "{connection.alias}" leads to {connection.vendor}, not to PostgreSQL')
    if connection.get_autocommit():
        _refuse("no transaction is open on Django's connection: enqueue inside of transaction.atomic()")
    with connection.cursor() as cursor:
        cursor.execute(*call("format"))
        return cursor.fetchall()


# --- which it is --------------------------------------------------------------------------------------------

_Table: TypeAlias = Sequence[tuple[str, tuple[str, ...], _T]]

_BLOCKING: Final[_Table[Callable[[Any, Execute], Rows]]] = (
    ("psycopg", ("Connection",), _psycopg),
    ("sqlalchemy.engine", ("Connection",), _alchemy),
    ("sqlalchemy.orm", ("Session", "scoped_session"), _alchemy_session),
    ("django.db.backends.base.base", ("BaseDatabaseWrapper",), _django),
    ("django.utils.connection", ("ConnectionProxy",), _django),
)
_COROUTINES: Final[_Table[Callable[[Any, Execute], Awaitable[Rows]]]] = (
    ("asyncpg", ("Connection",), _asyncpg),
    ("asyncpg.pool", ("PoolConnectionProxy",), _asyncpg),
    ("psycopg", ("AsyncConnection",), _psycopg_async),
    ("sqlalchemy.ext.asyncio", ("AsyncConnection",), _alchemy_async),
    ("sqlalchemy.ext.asyncio", ("AsyncSession", "async_scoped_session"), _alchemy_async_session),
)
_NOT_FOR_COROUTINES: Final = (
    "it blocks: call enqueue from blocking code, or give aenqueue a connection for coroutines"
)
_NOT_FOR_BLOCKING: Final = (
    "it is for coroutines: write await ….aenqueue(…), or give enqueue a connection that blocks"
)


def _known(connection: object, wanted: _Table[_T], others: _Table[Any], instead: str) -> _T:
    found = _found(connection, wanted)
    if found is not None:
        return found
    kind = type(connection)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if _found(connection, others) is not None:
        raise InvalidOption(f"connection is a {name}: {instead}")
    hint = "; take a connection from it" if kind.__qualname__.endswith(("Pool", "Engine")) else ""
    if kind.__module__.startswith("psycopg2"):
        hint = "; psycopg2 is not supported: use psycopg 3"
    raise InvalidOption(
        f"connection must be one of asyncpg, psycopg (3), SQLAlchemy or Django, not a {name}{hint}"
    )


def _found(connection: object, table: _Table[_T]) -> _T | None:
    for module, names, execute in table:
        loaded = sys.modules.get(module)  # a caller that has such a connection has loaded it
        if any(isinstance(connection, getattr(loaded, name, ())) for name in names):
            return execute
    return None


def _refuse(why: str) -> NoReturn:
    raise InvalidOption(why)
