"""A broker, and the connection of a caller who enqueues in transactions of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.conformance.harness import APP, new_id
from windlass.core.job import NewJob, Receipt
from windlass.core.lease import Ask
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.units import MINUTE

ASK = Ask(queues=("q",), slots=10, limit=10, visibility=MINUTE)


class Both:
    """A broker, and a connection of somebody else to the same database."""

    def __init__(self, broker: PostgresBroker, connection: Any, dsn: str) -> None:
        self.broker = broker
        self.connection = connection
        self.dsn = dsn

    async def enqueue(self, *jobs: NewJob) -> list[Receipt]:
        """Enqueue a group in the transaction that is open, or in one of its own."""
        if self.connection.is_in_transaction():
            return list((await self.broker.enqueue_on(self.connection, [jobs]))[0])
        async with self.connection.transaction():
            return list((await self.broker.enqueue_on(self.connection, [jobs]))[0])

    async def enqueue_alone(self, count: int, last: NewJob) -> None:
        """Enqueue so many jobs and a last one, each a group of its own, in one transaction."""
        groups = [[a_job()] for _ in range(count)] + [[last]]
        async with self.connection.transaction():
            for start in range(0, len(groups), 1_000):
                await self.broker.enqueue_on(self.connection, groups[start : start + 1_000])


@asynccontextmanager
async def _opened(namespaces: Namespaces) -> AsyncIterator[Both]:
    broker = await namespaces.open(None, Options())
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app=APP)
    await broker.declare([queue])
    connection: Any = await asyncpg.connect(namespaces.server.dsn)
    try:
        yield Both(broker, connection, namespaces.server.dsn)
    finally:
        await connection.close()
        await broker.close()


@pytest.fixture
def run(namespaces: Namespaces) -> Callable[[Callable[[Both], Awaitable[None]]], None]:
    def ran(test: Callable[[Both], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with _opened(namespaces) as both:
                await test(both)

        asyncio.run(whole())

    return ran


Run = Callable[[Callable[[Both], Awaitable[None]]], None]


def a_job(**options: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "t", "queue": "q", **options})
