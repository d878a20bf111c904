"""History in a PostgreSQL database: that of the store, or another one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from windlass.core.units import MINUTE, Cursor, JobId, Micros
from windlass.errors import StoreUnavailable
from windlass.forks import CONNECTING
from windlass.observe.history import sql
from windlass.observe.history.attempt import Attempt, Batch, Worker
from windlass.observe.history.rollup import by_minute, decode, encode
from windlass.observe.history.sink import By, Failed, Group, Minute, Trail, Used, Window

_MAKING = 0x57484953
"""The advisory lock under which tables are made: two that make one at a time would refuse one of them."""
_WRITING = 0x5748
PATIENCE = 30.0
"""Seconds for a connection, and for whatever is done with it."""
_Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class PostgresSink:
    """A database, by one connection that is opened when it is needed and again when it broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: _Connection | None = None
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, url: str) -> "PostgresSink":
        """Make the tables where they are not there."""
        sink = cls(url)
        async with sink._using() as connection, connection.transaction():
            await _rows(connection, "SELECT pg_advisory_xact_lock($1)", _MAKING)
            for statement in sql.SCHEMA:
                await connection.execute(statement.replace("BYTES", "bytea").encode())
            await _add_columns(connection)
        return sink

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- writing --------------------------------------------------------------------------------------------

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """See `Sink`."""
        rows = await self._rows(sql.TURN, source, reader, now, until)
        return Cursor(rows[0][0]) if rows else None

    async def write(self, source: str, reader: str, batch: Batch, cursor: Cursor) -> None:
        """See `Sink`."""
        async with self._using() as connection, connection.transaction():
            # Minutes are read and written: nobody else may, meanwhile. (The lock ends with the transaction.)
            await _rows(connection, "SELECT pg_advisory_xact_lock($1, hashtext($2))", _WRITING, source)
            new = await _added(connection, source, batch.attempts)
            for key, figures in by_minute(new).items():
                for (kept,) in await _rows(connection, sql.GET_MINUTE, source, *key):
                    figures.merge(decode(kept))
                await _rows(connection, sql.PUT_MINUTE, source, *key, encode(figures))
            if batch.enqueued:
                rows = zip(*(sql.enqueue_row(source, each)[1:] for each in batch.enqueued), strict=True)
                await _rows(connection, _ADD_ENQUEUES, source, *map(list, rows))
            for each in batch.slots:
                await _rows(connection, sql.ADD_SLOTS, *sql.slots_row(source, each))
            # In the order of their ids, as every reader does: two that write at a time do not wait in a ring.
            for each in sorted(batch.workers, key=_worker_id):
                await _rows(connection, sql.PUT_WORKER, *sql.worker_row(source, each))
            await _rows(connection, sql.GO_ON, source, reader, cursor)

    async def forget(self, source: str, before: Micros) -> None:
        """See `Sink`."""
        for statement in sql.FORGET:
            await self._rows(statement, source, before)

    async def blank(self, source: str, tag: str) -> int:
        """See `Sink`."""
        return await sql.blanked(self._rows, source, tag)

    # --- reading --------------------------------------------------------------------------------------------

    async def minutes(
        self,
        source: str,
        window: Window,
        step: Micros = MINUTE,  # noqa: ARG002 - they are added up by minute when they are written
    ) -> Sequence[Minute]:
        """See `Sink`."""
        return [sql.minute(row) for row in await self._rows(sql.MINUTES, *sql.window_row(source, window))]

    async def used(self, source: str, window: Window) -> Sequence[Used]:
        """See `Sink`."""
        return [sql.used(row) for row in await self._rows(sql.USED, source, window.since, window.until)]

    async def rows(self, statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
        """Execute a statement."""
        return await self._rows(statement, *parameters)

    async def groups(self, source: str, window: Window, by: By) -> Sequence[Group]:
        """See `Sink`."""
        chosen = sql.window_row(source, window)
        return sql.groups(await self._rows(sql.ends(by), *chosen), await self._rows(sql.waits(by), *chosen))

    async def failed(self, source: str, window: Window) -> Sequence[Failed]:
        """See `Sink`."""
        return [sql.failed(row) for row in await self._rows(sql.FAILED, *sql.window_row(source, window))]

    async def workers(self, source: str, window: Window) -> Sequence[Worker]:
        """See `Sink`."""
        rows = await self._rows(sql.WORKERS, source, window.since, window.until)
        return [sql.worker(row) for row in rows]

    async def trail(self, source: str, job: JobId) -> Trail:
        """See `Sink`."""
        return sql.trail(await self._rows(sql.ORIGIN, source, job), await self._rows(sql.TRAIL, source, job))

    async def _rows(self, statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
        async with self._using() as connection:
            return await _rows(connection, statement, *parameters)

    @asynccontextmanager
    async def _using(self) -> AsyncGenerator[_Connection]:
        """The connection, for one caller at a time."""
        async with self._lock:
            try:
                async with asyncio.timeout(PATIENCE):
                    connection = await self._opened()
                    yield connection
            except (psycopg.Error, OSError) as error:
                # Not its text alone: that of a connection names host and user, and no password.
                raise StoreUnavailable(
                    f"the history database does not take it: {type(error).__name__}: {error}"
                ) from error
            finally:
                self._drop_unless_idle()

    def _drop_unless_idle(self) -> None:
        """Let go of a connection that was left in the middle of something."""
        connection = self._connection
        if connection is not None and connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.pgconn.finish()
            self._connection = None

    async def _opened(self) -> _Connection:
        if self._connection is None or self._connection.closed:
            async with CONNECTING.entered():
                # Statements are not prepared, so that it works behind pgbouncer, too.
                self._connection = await psycopg.AsyncConnection.connect(
                    self._url,
                    autocommit=True,
                    prepare_threshold=None,
                    connect_timeout=int(PATIENCE),
                    client_encoding="utf8",
                )
        return self._connection


async def _rows(connection: _Connection, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Execute a statement that numbers its parameters; the rows that it returns, if it is of that kind."""
    async with psycopg.AsyncRawCursor(connection) as cursor:
        await cursor.execute(statement.encode(), parameters, binary=True)
        return await cursor.fetchall() if cursor.description else []


async def _added(connection: _Connection, source: str, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Add attempts; those that were not there."""
    if not attempts:
        return []
    columns = zip(*(sql.attempt_row(source, attempt)[1:] for attempt in attempts), strict=True)
    new = set(await _rows(connection, _ADD_MANY, source, *map(list, columns)))
    return [attempt for attempt in attempts if (attempt.job, attempt.fence) in new]


async def _add_columns(connection: _Connection) -> None:
    there = {
        name
        for (name,) in await _rows(
            connection,
            "SELECT attname::text FROM pg_attribute "
            "WHERE attrelid = to_regclass('windlass_history_attempt') AND attnum > 0 AND NOT attisdropped",
        )
    }
    for name, kind in sql.ADDED.items():
        if name not in there:
            await connection.execute(f"ALTER TABLE windlass_history_attempt ADD {name} {kind}".encode())


_worker_id = attrgetter("worker_id")
_ADD_MANY = f"""INSERT INTO windlass_history_attempt ({sql.ATTEMPT_COLUMNS})
    SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::integer[], $11::bigint[], $12::bigint[], $13::text[], $14::text[],
        $15::bigint[], $16::text[], $17::text[], $18::text[], $19::text[], $20::integer[], $21::integer[])
    ON CONFLICT DO NOTHING RETURNING job, fence"""  # noqa: S608 - columns, no values
_ADD_ENQUEUES = f"""INSERT INTO windlass_history_enqueue (source, {sql.ENQUEUE_COLUMNS})
    SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::text[], $11::text[])
    ON CONFLICT DO NOTHING"""  # noqa: S608 - likewise
