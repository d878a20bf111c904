"""History in a SQLite file, which any number of processes of a machine may share."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from windlass.core.units import Cursor, Micros
from windlass.errors import InvalidOption, StoreUnavailable
from windlass.observe.history import sql
from windlass.observe.history.attempt import Attempt, Slots
from windlass.observe.history.sink import Figures, Used, Window

_T = TypeVar("_T")
_OURS = 0x57484953
"""`application_id` of a history file: a store's own file is not taken for one."""
PATIENCE = 5_000
"""Milliseconds that another writer is waited for."""


class SqliteSink:
    """A file. Its calls run on threads, one at a time."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    async def open(cls, path: str) -> "SqliteSink":
        """Open a file, or make it."""
        return cls(await asyncio.to_thread(_opened, path))

    async def close(self) -> None:
        """Close the file."""
        await self._on_thread(self._connection.close)

    # --- writing --------------------------------------------------------------------------------------------

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """See `Sink`."""
        rows = await self._rows(sql.TURN, (source, reader, now, until))
        return Cursor(rows[0][0]) if rows else None

    async def write(
        self, source: str, reader: str, attempts: Sequence[Attempt], slots: Sequence[Slots], cursor: Cursor
    ) -> None:
        """See `Sink`."""

        def keep() -> None:
            with self._connection:
                run = self._connection.cursor()
                run.executemany(_ADD_ATTEMPT, [sql.attempt_row(source, attempt) for attempt in attempts])
                run.executemany(_ADD_SLOTS, [sql.slots_row(source, each) for each in slots])
                run.execute(_GO_ON, (source, reader, cursor))

        await self._on_thread(keep)

    async def forget(self, source: str, before: Micros) -> None:
        """See `Sink`."""
        for statement in sql.FORGET:
            await self._rows(statement, (source, before))

    # --- reading --------------------------------------------------------------------------------------------

    async def total(self, source: str, window: Window) -> Figures:
        """See `Sink`."""
        rows = await self._rows(sql.TOTAL, sql.window_row(source, window))
        return sql.figures(rows[0]) if rows else Figures()

    async def by_task(self, source: str, window: Window, limit: int) -> list[Figures]:
        """See `Sink`."""
        return _all(sql.figures, await self._rows(sql.BY_TASK, (*sql.window_row(source, window), limit)))

    async def by_time(self, source: str, window: Window, step: Micros) -> list[Figures]:
        """See `Sink`."""
        return _all(sql.figures, await self._rows(sql.BY_TIME, (*sql.window_row(source, window), step)))

    async def used_by_host(self, source: str, window: Window) -> list[Used]:
        """See `Sink`."""
        return _all(sql.used, await self._rows(sql.USED_BY_HOST, (source, window.since, window.until)))

    async def used_by_time(self, source: str, window: Window, step: Micros) -> list[Used]:
        """See `Sink`."""
        return _all(sql.used, await self._rows(sql.USED_BY_TIME, (source, window.since, window.until, step)))

    async def _rows(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        marked = sql.with_question_marks(statement)
        return await self._on_thread(lambda: self._connection.execute(marked, parameters).fetchall())

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        def alone() -> _T:
            with self._lock:
                try:
                    return work()
                except (apsw.BusyError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError) as error:
                    raise StoreUnavailable(f"the history file does not take it: {error}") from error

        return await asyncio.to_thread(alone)


def _all(read: Callable[[Any], _T], rows: list[Any]) -> list[_T]:
    return [read(row) for row in rows]


def _opened(path: str) -> Any:
    try:
        connection: Any = apsw.Connection(path)
    except apsw.CantOpenError:
        raise InvalidOption(
            f'history cannot be kept in "{Path(path).absolute()}": '
            "make its folder, or let this user write there"
        ) from None
    try:
        connection.set_busy_timeout(PATIENCE)
        _check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        with connection:
            connection.execute(f"PRAGMA application_id = {_OURS}")
            for statement in sql.SCHEMA:
                connection.execute(statement)
    except apsw.NotADBError:
        connection.close()
        raise InvalidOption(f'"{path}" is not a SQLite file; history needs one of its own') from None
    except apsw.Error as error:
        with contextlib.suppress(apsw.Error):
            connection.close()
        raise StoreUnavailable(f'the history file "{path}" cannot be opened: {error}') from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: Any, path: str) -> None:
    """A store's file has one writer at a time, and history must not be that one."""
    mark = connection.execute("PRAGMA application_id").fetchone()
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if mark is not None and mark[0] != _OURS and tables is not None and tables[0]:
        raise InvalidOption(f'"{path}" holds something else; history needs a file of its own')


_ADD_ATTEMPT = sql.with_question_marks(sql.ADD_ATTEMPT)
_ADD_SLOTS = sql.with_question_marks(sql.ADD_SLOTS)
_GO_ON = sql.with_question_marks(sql.GO_ON)
