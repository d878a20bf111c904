"""A PostgreSQL broker on a clock that stands still, and a look at the tables of its finished jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from tests.broker.postgres.namespaces import Namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.conformance.harness import Harness
from windlass.core.outcome import Verdict


class Store:
    """A broker on a clock that stands still, and a look at its tables."""

    def __init__(self, harness: Harness, connection: Any) -> None:
        self.harness = harness
        self._connection = connection
        broker = harness.broker
        assert isinstance(broker, PostgresBroker)
        self.broker = broker
        self.schema = quoted(broker.namespace)

    async def rows(self, question: str) -> list[Any]:
        """One column of what a statement says."""
        return [row[0] for row in await self._connection.fetch(question.replace("{s}", self.schema))]

    async def past(self) -> int:
        """How many rows the partitions hold."""
        return (await self.rows("SELECT count(*) FROM {s}.past"))[0]

    async def segments(self) -> list[int]:
        """Those that hold anything, or will."""
        return await self.rows(
            "SELECT segment FROM {s}.segment WHERE opened_at IS NOT NULL ORDER BY opened_at, segment"
        )

    async def done(self, count: int = 1, *, result: bytes | None = None, **options: Any) -> list[str]:
        """Jobs that were claimed and are done."""
        jobs = await self.harness.add_many(count, **options)
        worker = await self.harness.worker()
        for lease in await worker.take(count, options.get("queue", "q")):
            assert (await self.harness.done(lease, result)).verdict is Verdict.APPLIED
        return jobs


def with_store(namespaces: Namespaces, body: Callable[[Store], Awaitable[None]], **options: Any) -> None:
    async def test() -> None:
        harness = await Harness.open(namespaces.open, Options(**options))
        connection: Any = await asyncpg.connect(namespaces.server.dsn)
        try:
            await body(Store(harness, connection))
        finally:
            await connection.close()
            await harness.close()

    asyncio.run(test())


# the same as the reference model, step by step
