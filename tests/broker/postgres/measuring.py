"""How much of its tables a call to PostgreSQL reads."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from windlass.broker.postgres import PostgresBroker

_READ = """
SELECT indexrelname, coalesce(idx_tup_read, 0) FROM pg_stat_user_indexes WHERE schemaname = $1
UNION ALL
SELECT relname, coalesce(seq_tup_read, 0) FROM pg_stat_user_tables
WHERE schemaname = $1 AND (relname LIKE 'past%' OR relname IN (
    'job', 'ready', 'floor', 'lease', 'edge', 'unique_key', 'session', 'answered', 'lane', 'seat', 'delta'))
"""


class Measured:
    """A broker on full tables, and how much of them its calls read."""

    def __init__(self, broker: "Told", connection: Any) -> None:
        self.broker = broker
        self._connection = connection

    async def read_by(self, call: Callable[[], Awaitable[object]]) -> Counter[str]:
        """How many entries of which index, and rows of which table read whole, a call has read."""
        before = await self._read()
        await call()
        return await self._read() - before

    async def _read(self) -> Counter[str]:
        # The last transaction of each backend tells what it has read when the next one asks it to.
        await self.broker.flush_statistics()
        return Counter(dict(await self._connection.fetch(_READ, self.broker.namespace)))


class Told(PostgresBroker):
    """A broker that can be told to hand in its statistics."""

    async def flush_statistics(self) -> None:
        """Let the server know what the last call has read."""
        await self._pool.fetch(b"SELECT pg_stat_force_next_flush()", named=False)
