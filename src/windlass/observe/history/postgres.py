"""History in a PostgreSQL database: that of the store, or another one."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from windlass.core.units import Cursor, Micros
from windlass.errors import StoreUnavailable
from windlass.observe.history import sql
from windlass.observe.history.attempt import Attempt, Slots
from windlass.observe.history.sink import Figures, Used, Window

_T = TypeVar("_T")
_asyncpg: Any = asyncpg
_MAKING = 0x57484953
"""The advisory lock under which tables are made: two that make one at a time would refuse one of them."""
PATIENCE = 30.0
"""Seconds for a statement."""


class PostgresSink:
    """A database, by one connection that is opened when it is needed and again when it broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, url: str) -> "PostgresSink":
        """Make the tables where they are not there."""
        sink = cls(url)
        async with sink._using() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _MAKING)
            for statement in sql.SCHEMA:
                await connection.execute(statement)
        return sink

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close(timeout=1.0)

    # --- writing --------------------------------------------------------------------------------------------

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """See `Sink`."""
        rows = await self._rows(sql.TURN, source, reader, now, until)
        return Cursor(rows[0][0]) if rows else None

    async def write(
        self, source: str, reader: str, attempts: Sequence[Attempt], slots: Sequence[Slots], cursor: Cursor
    ) -> None:
        """See `Sink`."""
        async with self._using() as connection, connection.transaction():
            if attempts:
                rows = [sql.attempt_row(source, attempt) for attempt in attempts]
                await connection.executemany(sql.ADD_ATTEMPT, rows)
            if slots:
                await connection.executemany(sql.ADD_SLOTS, [sql.slots_row(source, each) for each in slots])
            await connection.execute(sql.GO_ON, source, reader, cursor)

    async def forget(self, source: str, before: Micros) -> None:
        """See `Sink`."""
        for statement in sql.FORGET:
            await self._rows(statement, source, before)

    # --- reading --------------------------------------------------------------------------------------------

    async def total(self, source: str, window: Window) -> Figures:
        """See `Sink`."""
        rows = await self._rows(sql.TOTAL, *sql.window_row(source, window))
        return sql.figures(rows[0]) if rows else Figures()

    async def by_task(self, source: str, window: Window, limit: int) -> list[Figures]:
        """See `Sink`."""
        return _all(sql.figures, await self._rows(sql.BY_TASK, *sql.window_row(source, window), limit))

    async def by_time(self, source: str, window: Window, step: Micros) -> list[Figures]:
        """See `Sink`."""
        return _all(sql.figures, await self._rows(sql.BY_TIME, *sql.window_row(source, window), step))

    async def used_by_host(self, source: str, window: Window) -> list[Used]:
        """See `Sink`."""
        return _all(sql.used, await self._rows(sql.USED_BY_HOST, source, window.since, window.until))

    async def used_by_time(self, source: str, window: Window, step: Micros) -> list[Used]:
        """See `Sink`."""
        return _all(sql.used, await self._rows(sql.USED_BY_TIME, source, window.since, window.until, step))

    async def _rows(self, statement: str, *parameters: Any) -> list[Any]:
        async with self._using() as connection:
            return await connection.fetch(statement, *parameters)

    @asynccontextmanager
    async def _using(self) -> AsyncGenerator[Any]:
        """The connection, for one caller at a time."""
        async with self._lock:
            try:
                if self._connection is None or self._connection.is_closed():
                    # Without a cache of statements, so that it works behind pgbouncer, too.
                    self._connection = await _asyncpg.connect(
                        self._url, statement_cache_size=0, command_timeout=PATIENCE, timeout=PATIENCE
                    )
                yield self._connection
            except (OSError, TimeoutError, _asyncpg.PostgresError, _asyncpg.InterfaceError) as error:
                # Not its text alone: that of a connection names host and user, and no password.
                raise StoreUnavailable(
                    f"the history database does not take it: {type(error).__name__}: {error}"
                ) from error


def _all(read: Callable[[Any], _T], rows: list[Any]) -> list[_T]:
    return [read(row) for row in rows]
