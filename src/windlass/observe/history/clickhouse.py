"""History in ClickHouse, for more attempts than PostgreSQL should count.

There is no transaction over its tables: the data come first, then the place, which is a document of the
store (`places.py`). What is written twice collapses by its key; a batch that is repeated whole, as after a
death between the two, is recognised by its token and not even written.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import aiohttp
import clickhouse_connect
import msgspec
from clickhouse_connect.driver.exceptions import ClickHouseError

from windlass.core.secret import without_credentials
from windlass.core.units import MINUTE, Cursor, JobId, Micros
from windlass.errors import ContractError, StoreUnavailable
from windlass.observe.history import clickhouse_sql as sql
from windlass.observe.history.attempt import Attempt, Batch, Enqueued, Worker
from windlass.observe.history.place import KEPT
from windlass.observe.history.places import Places
from windlass.observe.history.rollup import Figures, Spread
from windlass.observe.history.sink import By, Failed, Group, Minute, Trail, Used, Window

PATIENCE = 60.0
"""Seconds for whatever is asked."""
_DAY = 86_400.0
_R = TypeVar("_R")
_S = TypeVar("_S", bound=msgspec.Struct)


class ClickHouseSink:
    """A database of a server, by its HTTP interface."""

    def __init__(self, client: Any, places: Places | None, keep: Micros) -> None:
        """Without places it only answers."""
        self._client = client
        self._places = places
        self._keep = keep
        self._forgot_at: dict[str, float] = {}

    @classmethod
    async def open(cls, url: str, *, places: Places | None = None, keep: Micros = KEPT) -> "ClickHouseSink":
        """Make the tables where they are not there."""
        parts = urlsplit(url)
        async with _telling():
            client = await cast(
                "Any", clickhouse_connect
            ).get_async_client(
                host=parts.hostname or "localhost",
                port=parts.port,  # None: the usual one
                username=unquote(parts.username) if parts.username else None,
                password=unquote(parts.password or ""),
                database=unquote(parts.path[1:]) or "default",
                secure=parts.scheme == "clickhouses",
                compress=False,  # a batch has some hundred KiB
                query_limit=0,
                connect_timeout=int(PATIENCE),
                send_receive_timeout=int(PATIENCE),
                client_name="windlass",
            )
            sink = cls(client, places, keep)
            try:
                for statement in sql.SCHEMA:
                    await client.command(statement)
            except BaseException:
                await client.close()
                raise
        return sink

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    # --- writing --------------------------------------------------------------------------------------------

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """See `Sink`."""
        return await self._known_places.turn(source, reader, now, until)

    async def write(self, source: str, reader: str, batch: Batch, cursor: Cursor) -> None:
        """See `Sink`."""
        places = self._known_places
        await self._insert("slots", source, batch.slots, sql.slots_row)
        await self._insert("worker", source, batch.workers, sql.worker_row)
        await self._insert("enqueue", source, batch.enqueued, sql.enqueue_row, key=attrgetter("job"))
        await self._insert("attempt", source, batch.attempts, sql.attempt_row, key=attrgetter("job", "fence"))
        await places.go_on(source, reader, cursor)

    async def forget(self, source: str, before: Micros) -> None:
        """See `Sink`. The server drops rows by itself, at the time that each of them carries. What is left to
        do, once a day: rows that were kept for longer once, when the setting said so.
        """
        now = asyncio.get_running_loop().time()
        if now - self._forgot_at.get(source, -_DAY) < _DAY:
            return
        self._forgot_at[source] = now
        for table, age in sql.AGES.items():
            old = f"{age} < {{before:Int64}} AND source = {{source:String}}"
            parameters = {"before": before, "source": source}
            # A table and a column of ours; values are parameters.
            found = f"SELECT 1 FROM windlass_history_{table} WHERE {old} LIMIT 1"  # noqa: S608
            if await self._rows(found, parameters):
                gone = f"DELETE FROM windlass_history_{table} WHERE {old}"  # noqa: S608
                async with _telling():
                    await self._client.command(gone, parameters=parameters)

    async def blank(self, source: str, tag: str) -> int:
        """See `Sink`. The parts of the table that hold such rows are written anew; the server drops the old
        ones within minutes.
        """
        count, parameters = 0, {"source": source, "tag": tag}
        for table, (blanked, where) in sql.BLANK.items():
            # A table and columns of ours; values are parameters.
            found = f"SELECT count() FROM windlass_history_{table} FINAL WHERE {where}"  # noqa: S608
            rows: int = (await self._rows(found, parameters))[0][0]
            if rows:
                change = f"ALTER TABLE windlass_history_{table} UPDATE {blanked} WHERE {where}"
                async with _telling():
                    await self._client.command(change, parameters=parameters, settings={"mutations_sync": 2})
            count += rows
        return count

    async def _insert(
        self,
        table: str,
        source: str,
        said: Sequence[_R],
        row: Callable[[str, _R, Micros], Sequence[Any]],
        *,
        key: Callable[[_R], Any] | None = None,
    ) -> None:
        if not said:
            return
        columns = sql.COLUMNS[table]
        # Not async_insert, which a server may have as its default: what is answered is there.
        settings: dict[str, Any] = {"async_insert": 0}
        if key is not None:
            settings |= {
                "insert_deduplicate": 1,
                "insert_deduplication_token": _token(source, map(key, said)),
            }
        async with _telling():
            await self._client.insert(
                f"windlass_history_{table}",
                [row(source, each, self._keep) for each in said],
                column_names=list(columns),
                column_type_names=list(columns.values()),
                settings=settings,
            )

    @property
    def _known_places(self) -> Places:
        if self._places is None:
            raise ContractError("a ClickHouse sink that was opened without places does not write")
        return self._places

    # --- reading --------------------------------------------------------------------------------------------

    async def minutes(self, source: str, window: Window, step: Micros = MINUTE) -> Sequence[Minute]:
        """See `Sink`."""
        found = await self._counted(sql.MINUTES, source, window, 3, step)
        return [Minute(at, task, queue, found[at, task, queue]) for at, task, queue in sorted(found)]

    async def used(self, source: str, window: Window) -> Sequence[Used]:
        """See `Sink`."""
        return [Used(*row) for row in await self._window(sql.USED, source, window)]

    async def groups(self, source: str, window: Window, by: By) -> Sequence[Group]:
        """See `Sink`."""
        found = await self._counted(sql.groups(by), source, window, 1)
        groups = [Group(name, figures) for (name,), figures in found.items()]
        return sorted(groups, key=lambda each: (-each.figures.attempts, each.name))

    async def failed(self, source: str, window: Window) -> Sequence[Failed]:
        """See `Sink`."""
        rows = await self._window(sql.LAST_FAILED, source, window)
        return [Failed(fingerprint, *last) for fingerprint, last in rows]

    async def workers(self, source: str, window: Window) -> Sequence[Worker]:
        """See `Sink`."""
        rows = await self._window(sql.WORKERS, source, window)
        return [_read(row, Worker) for row in rows]

    async def trail(self, source: str, job: JobId) -> Trail:
        """See `Sink`."""
        asked = {"source": source, "job": job}
        origin = [_read(row, Enqueued) for row in await self._rows(sql.ORIGIN, asked)]
        attempts = [_read(row, Attempt) for row in await self._rows(sql.TRAIL, asked)]
        return Trail(origin[0] if origin else None, attempts)

    async def _counted(
        self, statements: tuple[str, str], source: str, window: Window, keys: int, step: Micros = MINUTE
    ) -> dict[tuple[Any, ...], Figures]:
        ends, waits = statements
        found: dict[tuple[Any, ...], Figures] = {}
        for row in await self._window(ends, source, window, step):
            done, failed, dead, cancelled, given_back, ran, runs = row[keys:]
            found[tuple(row[:keys])] = Figures(
                done=done,
                failed=failed,
                dead=dead,
                cancelled=cancelled,
                given_back=given_back,
                ran=ran,
                runs=_spread(runs),
            )
        for row in await self._window(waits, source, window, step):
            figures = found.setdefault(tuple(row[:keys]), Figures())
            figures.waits = _spread(row[keys])
        return found

    async def _window(
        self, statement: str, source: str, window: Window, step: Micros = MINUTE
    ) -> Sequence[Sequence[Any]]:
        return await self._rows(
            statement, sql.window_parameters(source, window, step, time.time_ns() // 1_000)
        )

    async def _rows(self, statement: str, parameters: dict[str, Any]) -> Sequence[Sequence[Any]]:
        async with _telling():
            found = await self._client.query(statement, parameters=parameters)
            return found.result_rows


@asynccontextmanager
async def _telling() -> AsyncGenerator[None]:
    """What the server or the way to it refuses is said in one line, without user and password."""
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except (ClickHouseError, aiohttp.ClientError, OSError, TimeoutError) as error:
        first = next(iter(without_credentials(str(error)).splitlines()), "")
        raise StoreUnavailable(
            f"the history database does not take it: {type(error).__name__}: {first[:500]}"
        ) from error


def _token(source: str, keys: Iterable[Any]) -> str:
    """What the server knows an insert by that comes again. By its rows, not by the place in the log: one who
    reads the same stretch later may find more in it.
    """
    return hashlib.sha256(repr((source, *keys)).encode()).hexdigest()


def _spread(buckets: tuple[Sequence[int], Sequence[int]]) -> Spread:
    return Spread(dict(zip(*buckets, strict=True)))


def _read(row: Sequence[Any], kind: type[_S]) -> _S:
    return msgspec.convert(dict(zip(kind.__struct_fields__, row, strict=True)), kind)
