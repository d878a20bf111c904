"""A broker that waits, and others that make something claimable: what tests of waking have in common."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker, listening
from windlass.broker.postgres import broker as broker_module
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.listening import ROOM, Listener
from windlass.broker.postgres.statements import statement
from windlass.broker.postgres.url import Location
from windlass.conformance.harness import APP, new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.units import MINUTE

NEVER = 60.0
"""Seconds that no test waits for."""
ASK = Ask(queues=("q",), slots=1, limit=1, visibility=MINUTE)
HELD = "FROM pg_locks WHERE locktype = 'advisory' AND classid = $1"
_IS_HELD = f"SELECT EXISTS (SELECT {HELD} AND granted)"


class House:
    """A broker that waits, one that sends, and a connection that sees what the server tells."""

    def __init__(self, waiting: PostgresBroker, sending: PostgresBroker, connection: Any) -> None:
        self.waiting = waiting
        self.sending = sending
        self.connection = connection
        self.told: list[str] = []

    async def send(self, queue: str = "q") -> None:
        await self.sending.enqueue([[NewJob(id=new_id(), task="t", queue=queue)]])

    async def listen(self, *, known: bool = True) -> None:
        """Listen like a worker; `known`: so that the server knows that somebody does."""
        row = await self.connection.fetchrow(statement(quoted(self.sending.namespace), "bell", 0).decode())
        await self.connection.add_listener(row["channel"], lambda *told: self.told.append(told[-1]))
        if known:
            await self.connection.execute(f"SELECT pg_advisory_lock_shared({ROOM}, {row['room']})")

    async def caught_up(self) -> list[str]:
        """What was told so far: it comes before the answer to anything asked later."""
        await self.connection.execute("SELECT 1")
        return self.told

    async def is_listened_to(self) -> bool:
        return await self.connection.fetchval(_IS_HELD, ROOM)

    async def until_listened_to(self) -> None:
        async with asyncio.timeout(30):
            while not await self.is_listened_to():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.01)

    async def listening_one(self) -> Listener:
        """The part of the one that waits that is told, once it is."""
        listener = self.waiting._listener
        async with asyncio.timeout(30):
            while listener._connection is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return listener

    async def until_heard(self, send: Awaitable[None]) -> None:
        """Do something that the one that waits is told of, and see that it was."""
        listener = await self.listening_one()
        heard = asyncio.Event()

        def told(queue: str) -> None:
            Listener._told(listener, queue)
            heard.set()

        listener._told = told
        await send
        async with asyncio.timeout(30):
            await heard.wait()

    async def deafen(self) -> None:
        """From here on the one that waits hears nothing of the server, as of jobs within a cooldown."""
        (await self.listening_one())._told = lambda queue: None


@asynccontextmanager
async def _house(namespaces: Namespaces, **options: Any) -> AsyncIterator[House]:
    sending = await namespaces.open(None, Options())
    for name in ("q", "other"):
        queue = Declaration(subject=Subject(Kind.QUEUE, name), body=QueueSettings(), app=APP)
        await sending.declare([queue])
    place = Location(namespaces.server.dsn, **options)
    waiting = await PostgresBroker.open(place, options=Options(namespace=sending.namespace))
    connection: Any = await asyncpg.connect(namespaces.server.dsn)
    try:
        yield House(waiting, sending, connection)
    finally:
        await connection.close()
        await waiting.close()
        await sending.close()


@pytest.fixture
def run(namespaces: Namespaces) -> Callable[..., None]:
    def ran(test: Callable[[House], Awaitable[None]], **options: Any) -> None:
        async def whole() -> None:
            async with _house(namespaces, **options) as house:
                await test(house)

        asyncio.run(whole())

    return ran


Run = Callable[..., None]


@pytest.fixture
def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself, but for a while after the server has told of something."""
    monkeypatch.setattr(broker_module, "_WAIT_FLOOR", NEVER)


@pytest.fixture
def only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself: only what the server tells wakes a waiter."""
    monkeypatch.setattr(broker_module, "_WAIT_FLOOR", NEVER)
    monkeypatch.setattr(listening, "_LOOKS_FOR", 0.0)
