"""History in a SQLite file, which any number of processes of a machine may share."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw

from windlass.broker.sqlite.library import library
from windlass.core.units import MINUTE, Cursor, JobId, Micros
from windlass.errors import InvalidOption, StoreUnavailable
from windlass.observe.history import sql
from windlass.observe.history.attempt import Batch, Worker
from windlass.observe.history.rollup import by_minute, decode, encode
from windlass.observe.history.sink import By, Failed, Group, Minute, Trail, Used, Window

_T = TypeVar("_T")
_FileId: TypeAlias = tuple[int, int]
_OURS = 0x57484953
"""`application_id` of a history file: a store's own file is not taken for one."""
PATIENCE = 5_000
"""Milliseconds that another writer is waited for."""


class SqliteSink:
    """A file. Its calls run on threads, one at a time.

    SQLite does not notice that its file was deleted or replaced: it goes on writing to a file without a name.
    So each call looks at the paths, before it begins and before it answers.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: dict[str, _FileId | None] = {}
        """The file and its log, as they were found at their paths when they were opened. Empty: open anew."""
        with library:
            self._open()

    @classmethod
    async def open(cls, path: str) -> "SqliteSink":
        """Open a file, or make it."""
        return await asyncio.to_thread(cls, path)

    def _open(self) -> None:
        self._connection = _opened(self._path)
        self._generation = library.generation
        library.close_with(self, self._connection)
        self._seen = {path: _file_at(path) for path in (self._path, f"{self._path}-wal")}

    async def close(self) -> None:
        """Close the file."""

        def close() -> None:
            with library, self._lock:
                self._close()

        await asyncio.to_thread(close)

    def _close(self) -> None:
        """Close the connection. The last to close a file writes its log to it and removes the log, by name:
        unless another file or log has that name now.
        """
        found = {path: _file_at(path) for path in self._seen}
        others = [path for path, known in self._seen.items() if found[path] not in (known, None)]
        if others or found.get(self._path) is None:
            library.leave(self._connection)
        else:
            library.close(self._connection)

    def _make_ready(self) -> None:
        if self._seen:
            self._look()
        if not self._seen or self._generation != library.generation:
            self._open()

    def _look(self) -> None:
        """Refuse if what is open is not at its path any more; the next call opens what is there, or makes it.

        Refused, although it could be opened at once: what was kept a moment ago, and is gone, is for the
        caller to keep again.
        """
        # A fork closes the file, and with it goes its log: that may be another one by now.
        paths = self._seen if self._generation == library.generation else (self._path,)
        lost = next((path for path in paths if _file_at(path) != self._seen[path]), None)
        if lost is not None:
            self._close()
            self._seen = {}
            raise StoreUnavailable(
                f'the history file "{lost}" was deleted or replaced while this process had it open; it is '
                "opened anew, and what nobody else has read of it is lost"
            )

    # --- writing --------------------------------------------------------------------------------------------

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """See `Sink`."""
        rows = await self._rows(sql.TURN, (source, reader, now, until))
        return Cursor(rows[0][0]) if rows else None

    async def write(self, source: str, reader: str, batch: Batch, cursor: Cursor) -> None:
        """See `Sink`."""

        def keep() -> None:
            run = self._connection.cursor()
            run.execute("BEGIN IMMEDIATE")  # minutes are read and written: nobody else may, meanwhile
            try:
                new = [
                    attempt
                    for attempt in batch.attempts
                    if run.execute(_ADD_ATTEMPT, sql.attempt_row(source, attempt)).fetchall()
                ]
                for key, figures in by_minute(new).items():
                    for (kept,) in run.execute(_GET_MINUTE, (source, *key)).fetchall():
                        figures.merge(decode(kept))
                    run.execute(_PUT_MINUTE, (source, *key, encode(figures)))
                run.executemany(_ADD_ENQUEUE, [sql.enqueue_row(source, each) for each in batch.enqueued])
                run.executemany(_ADD_SLOTS, [sql.slots_row(source, each) for each in batch.slots])
                run.executemany(_PUT_WORKER, [sql.worker_row(source, each) for each in batch.workers])
                run.execute(_GO_ON, (source, reader, cursor))
                run.execute("COMMIT")
            except BaseException:
                run.execute("ROLLBACK")
                raise

        await self._on_thread(keep)

    async def forget(self, source: str, before: Micros) -> None:
        """See `Sink`."""
        for statement in sql.FORGET:
            await self._rows(statement, (source, before))

    async def blank(self, source: str, tag: str) -> int:
        """See `Sink`. What was there is not left in the file, nor in the log beside it, unless another
        process reads at this moment.
        """
        count = await sql.blanked(self.rows, source, tag)
        await self._rows("PRAGMA wal_checkpoint(TRUNCATE)", ())
        return count

    # --- reading --------------------------------------------------------------------------------------------

    async def minutes(
        self,
        source: str,
        window: Window,
        step: Micros = MINUTE,  # noqa: ARG002 - they are added up by minute when they are written
    ) -> Sequence[Minute]:
        """See `Sink`."""
        return [sql.minute(row) for row in await self._rows(sql.MINUTES, sql.window_row(source, window))]

    async def used(self, source: str, window: Window) -> Sequence[Used]:
        """See `Sink`."""
        return [sql.used(row) for row in await self._rows(sql.USED, (source, window.since, window.until))]

    async def rows(self, statement: str, *parameters: Any) -> list[Any]:
        """Execute a statement and wait for the disk: history is lost with the last moments of a machine, an
        archive is not.
        """
        marked = sql.with_question_marks(statement)

        def execute() -> list[Any]:
            self._connection.execute("PRAGMA synchronous = FULL")
            try:
                return self._connection.execute(marked, parameters).fetchall()
            finally:
                self._connection.execute("PRAGMA synchronous = NORMAL")

        return await self._on_thread(execute)

    async def groups(self, source: str, window: Window, by: By) -> Sequence[Group]:
        """See `Sink`."""
        chosen = sql.window_row(source, window)
        return sql.groups(await self._rows(sql.ends(by), chosen), await self._rows(sql.waits(by), chosen))

    async def failed(self, source: str, window: Window) -> Sequence[Failed]:
        """See `Sink`."""
        return [sql.failed(row) for row in await self._rows(sql.FAILED, sql.window_row(source, window))]

    async def workers(self, source: str, window: Window) -> Sequence[Worker]:
        """See `Sink`."""
        return [
            sql.worker(row) for row in await self._rows(sql.WORKERS, (source, window.since, window.until))
        ]

    async def trail(self, source: str, job: JobId) -> Trail:
        """See `Sink`."""
        return sql.trail(
            await self._rows(sql.ORIGIN, (source, job)), await self._rows(sql.TRAIL, (source, job))
        )

    async def _rows(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        marked = sql.with_question_marks(statement)
        return await self._on_thread(lambda: self._connection.execute(marked, parameters).fetchall())

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        def alone() -> _T:
            with library, self._lock:
                try:
                    self._make_ready()
                    answer = work()
                except (apsw.BusyError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError) as error:
                    raise StoreUnavailable(f"the history file does not take it: {error}") from error
                self._look()  # it may have been deleted meanwhile
                return answer

        return await asyncio.to_thread(alone)


def _file_at(path: str) -> _FileId | None:
    """Device and inode of what is at a path; None if nothing is."""
    try:
        found = os.stat(path)  # noqa: PTH116 - twice for each call: a third of the time
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_nlink else None


def _set_wal_mode(connection: Any) -> None:
    """Two processes that make a file at the same time meet here, and SQLite does not wait for either."""
    until = time.monotonic() + PATIENCE / 1_000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _opened(path: str) -> Any:
    try:
        connection = library.open(path)
    except apsw.CantOpenError:
        raise InvalidOption(
            f'history cannot be kept in "{Path(path).absolute()}": '
            "make its folder, or let this user write there"
        ) from None
    try:
        connection.set_busy_timeout(PATIENCE)
        _check(connection, path)
        _set_wal_mode(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")  # what is blanked is overwritten
        with connection:
            connection.execute(f"PRAGMA application_id = {_OURS}")
            for statement in sql.SCHEMA:
                connection.execute(statement.replace("BYTES", "blob"))
            _add_columns(connection)
    except apsw.NotADBError:
        library.close(connection)
        raise InvalidOption(f'"{path}" is not a SQLite file; history needs one of its own') from None
    except apsw.Error as error:
        with contextlib.suppress(apsw.Error):
            library.close(connection)
        raise StoreUnavailable(f'the history file "{path}" cannot be opened: {error}') from error
    except BaseException:
        library.close(connection)
        raise
    return connection


def _add_columns(connection: Any) -> None:
    there = {row[1] for row in connection.execute("PRAGMA table_info(windlass_history_attempt)")}
    for name, kind in sql.ADDED.items():
        if name not in there:
            connection.execute(f"ALTER TABLE windlass_history_attempt ADD COLUMN {name} {kind}")


def _check(connection: Any, path: str) -> None:
    """A store's file has one writer at a time, and history must not be that one."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    # In this order: who makes a history file writes mark and tables in one step.
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    if tables and mark != _OURS:
        raise InvalidOption(f'"{path}" holds something else; history needs a file of its own')


_ADD_ATTEMPT = sql.with_question_marks(sql.ADD_ATTEMPT)
_ADD_ENQUEUE = sql.with_question_marks(sql.ADD_ENQUEUE)
_PUT_WORKER = sql.with_question_marks(sql.PUT_WORKER)
_GET_MINUTE = sql.with_question_marks(sql.GET_MINUTE)
_PUT_MINUTE = sql.with_question_marks(sql.PUT_MINUTE)
_ADD_SLOTS = sql.with_question_marks(sql.ADD_SLOTS)
_GO_ON = sql.with_question_marks(sql.GO_ON)
