"""A commit whose answer never came: whether it happened is for the store to say, by the fence."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass import RetryPolicy, Windlass, current
from windlass.core.state import State

__all__ = ["namespaces"]
Loss = Literal["before", "after"]
"""The connection is lost before the server hears of the commit, or after it has committed."""


class Wire:
    """A wire between clients and a server that breaks once, at a commit of a transaction that was begun."""

    def __init__(self, socket: Path, loss: Loss) -> None:
        self._socket = socket
        self._loss = loss
        self.armed = False
        self.broken = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(str(self._socket))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, server_writer, b"COMMIT\x00", "before"))
                group.create_task(self._carry(server_reader, writer, b"COMMIT\x00", "after"))
        except* ConnectionError:
            pass
        finally:
            for each in (writer, server_writer):
                each.close()
                with contextlib.suppress(ConnectionError):
                    await each.wait_closed()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mark: bytes, loss: Loss
    ) -> None:
        while data := await reader.read(65_536):
            if self.armed and loss == self._loss and mark in data:
                self.armed = False
                self.broken += 1
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # the other direction ends with this one


@asynccontextmanager
async def _wire(namespaces: Namespaces, loss: Loss) -> AsyncIterator[tuple[Wire, str]]:
    wire = Wire(namespaces.server.folder / ".s.PGSQL.5432", loss)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield wire, f"postgresql://windlass@127.0.0.1:{port}/postgres?sslmode=disable"
    server.close()


@pytest.mark.parametrize(("loss", "runs"), [("before", 2), ("after", 1)])
def test_what_the_task_wrote_is_there_once(namespaces: Namespaces, loss: Loss, runs: int) -> None:
    async def test() -> None:
        connection: Any = await asyncpg.connect(namespaces.server.dsn)
        await connection.execute("DROP SCHEMA IF EXISTS unknown CASCADE")
        await connection.execute("DROP TABLE IF EXISTS ledger; CREATE TABLE ledger (attempt int)")
        async with _wire(namespaces, loss) as (wire, url):
            app = Windlass(url, namespace="unknown")

            @app.task(retry=RetryPolicy(base=0, max_attempts=3))
            async def write() -> None:
                async with current.transaction() as own:
                    await own.execute("INSERT INTO ledger VALUES (%s)", [current.attempt])
                    wire.armed = current.attempt == 1

            async with app.worker():
                job = await write.aenqueue()
                assert await job.aresult(timeout=30) is None
                assert await job.astate() is State.DONE
            (detail,) = await (await app.broker()).get([job.id])
            await app.aclose()
        assert wire.broken == 1
        rows = await connection.fetch("SELECT attempt FROM ledger")
        assert [row["attempt"] for row in rows] == [runs]
        assert detail is not None
        assert detail.attempt == runs
        await connection.close()

    asyncio.run(test())
