"""Namespaces for tests, one for each broker that is open: made once, emptied and given out again.

Creating a schema with its tables and functions takes a tenth of a second, emptying one a few milliseconds.
"""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from tests.broker.postgres.servers import Server, programs

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.url import Location
from windlass.clock import Clock
from windlass.conformance.harness import APP
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject

_EMPTY = """
DO $$
DECLARE
    t regclass;
BEGIN
    FOR t IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'
             AND c.relname NOT IN ('layout', 'meta', 'event_end', 'segment') AND pg_relation_size(c.oid) > 0
    LOOP
        -- What a large test left behind would be in the way of all that come after it.
        IF pg_relation_size(t) > 100000 THEN
            EXECUTE format('TRUNCATE %s', t);
        ELSE
            EXECUTE format('DELETE FROM %s', t);
        END IF;
    END LOOP;
    UPDATE {schema}.meta SET mark = 0, live = 0, swept_at = NULL, left_work = false, version = 0,
        segments = '{{}}';
    UPDATE {schema}.segment SET opened_at = NULL, closed_at = NULL;
    UPDATE {schema}.event_end SET next = 0;
END $$
"""
_ASTRAY = """
SELECT j.id FROM {schema}.job j
WHERE timer IS DISTINCT FROM CASE WHEN state > 3 THEN pruned_until WHEN NOT started AND NOT EXISTS (
          SELECT FROM {schema}.lease l WHERE j.n BETWEEN l.n AND l.n + l.width - 1) THEN expires_at END
   OR waits IS DISTINCT FROM CASE WHEN state IN (0, 1) THEN state END
"""
"""Jobs of which a column that follows from others does not: indexes look for them by it."""
_MISPLACED = """
WITH places AS (
    SELECT u.n FROM {schema}.ready r, generate_series(r.n, r.n + r.width - 1) u (n)
    UNION ALL
    SELECT u.n FROM {schema}.lease l, generate_series(l.n, l.n + l.width - 1) u (n)
    WHERE EXISTS (SELECT FROM {schema}.job j WHERE j.n = u.n AND j.state = 2)
)
SELECT coalesce(j.n, p.n) AS n FROM (SELECT n FROM {schema}.job WHERE state = 2) j
FULL JOIN places p ON p.n = j.n WHERE j.n IS NULL OR p.n IS NULL
UNION ALL SELECT p.n FROM places p GROUP BY p.n HAVING count(*) > 1
UNION ALL SELECT l.n FROM {schema}.lease l
WHERE l.remaining <> (SELECT count(*) FROM {schema}.job j
                      WHERE j.n BETWEEN l.n AND l.n + l.width - 1 AND j.state = 2)
      OR l.remaining < 1 OR l.width > 100
UNION ALL SELECT j.n FROM {schema}.lease l JOIN {schema}.job j ON j.n BETWEEN l.n AND l.n + l.width - 1
WHERE (l.queue, l.lane) <> (j.queue, j.lane)
UNION ALL SELECT r.n FROM {schema}.ready r
WHERE r.width NOT BETWEEN 1 AND 100 OR r.width > 1 AND r.seq <> r.n
      OR r.size <> (SELECT sum(octet_length(j.payload)) FROM {schema}.job j
                    WHERE j.n BETWEEN r.n AND r.n + r.width - 1)
UNION ALL SELECT j.n FROM {schema}.ready r JOIN {schema}.job j ON j.n BETWEEN r.n AND r.n + r.width - 1
WHERE (r.queue, r.lane, r.band, r.task) <> (j.queue, j.lane, j.band, j.task)
      OR j.seq <> r.seq + j.n - r.n
      OR r.last <> (j.attempt + 1 >= j.max_attempts) OR r.suspect <> (j.crashes >= 2)
      OR r.expires_at IS DISTINCT FROM CASE WHEN NOT j.started THEN j.expires_at END
UNION ALL SELECT r.n FROM {schema}.ready r JOIN {schema}.floor f ON (f.queue, f.band) = (r.queue, r.band)
WHERE r.lane = '' AND NOT r.suspect AND r.seq < f.seq
UNION ALL SELECT d.i FROM {schema}.delta d, {schema}.meta m WHERE d.i <= m.cleared
UNION ALL SELECT e.i FROM {schema}.event_in e, {schema}.meta m WHERE e.i <= m.cleared
"""
"""Unfinished jobs that no run covers, or two; runs that say something else than their jobs; what is below a
floor, where nobody looks for it.
"""


class Namespaces:
    """The namespaces of one server."""

    def __init__(self, server: Server, place: Location | None = None, prefix: str = "windlass") -> None:
        self.server = server
        self._place = place or Location(server.dsn)
        self._prefix = prefix
        self._numbers = itertools.count(1)
        self._free: list[str] = []

    async def open(self, clock: Clock | None, options: Options) -> PostgresBroker:
        """A broker on an empty namespace."""
        is_new = not self._free
        name = f"{self._prefix}_{next(self._numbers)}" if is_new else self._free.pop()
        given = {field: getattr(options, field) for field in options.__struct_fields__}
        broker = await _Returned.open(
            self._place, clock=clock, options=Options(**{**given, "namespace": name})
        )
        assert isinstance(broker, _Returned)
        broker.taken_from(self, name)
        return broker

    @asynccontextmanager
    async def several(self, count: int, **queues: QueueSettings) -> AsyncIterator[list[PostgresBroker]]:
        """Brokers of so many processes on one namespace that has these queues."""
        first = await self.open(None, Options())
        options = Options(namespace=first.namespace)
        others = [await PostgresBroker.open(self._place, options=options) for _ in range(count - 1)]
        await first.declare(
            [
                Declaration(subject=Subject(Kind.QUEUE, name), body=body, app=APP)
                for name, body in queues.items()
            ]
        )
        try:
            yield [first, *others]
        finally:
            for broker in (*others, first):
                await broker.close()

    async def connect(self) -> "psycopg.AsyncConnection[Any]":
        """A connection that is not a broker's."""
        return await psycopg.AsyncConnection[Any].connect(self.server.dsn, autocommit=True)

    def give_back(self, name: str) -> None:
        """Nobody uses it any more, and it is empty."""
        self._free.append(name)


class _Returned(PostgresBroker):
    """A broker that gives its namespace back when it is closed."""

    _namespaces: Namespaces
    _name: str

    def taken_from(self, namespaces: Namespaces, name: str) -> None:
        self._namespaces, self._name = namespaces, name

    async def close(self) -> None:
        # One of its own, where there is one: a new one costs the server as much as a small test.
        idle = self._pool._idle.pop() if hasattr(self, "_name") and self._pool._idle else None
        await super().close()
        if hasattr(self, "_name"):
            schema = quoted(self._name)
            if idle is not None and not (idle.is_usable and idle.is_quiet):
                idle = idle.drop()  # a test has ended it
            connection = await self._namespaces.connect() if idle is None else idle.connection
            async with connection:
                astray = await (await connection.execute(_ASTRAY.format(schema=schema))).fetchall()
                misplaced = await (await connection.execute(_MISPLACED.format(schema=schema))).fetchall()
                await connection.execute(_EMPTY.format(schema=schema), prepare=False)
            self._namespaces.give_back(self._name)
            assert not astray, f"timer or waits is wrong: {astray}"
            assert not misplaced, f"a place is wrong: {misplaced}"


_running: list[Namespaces] = []


@pytest.fixture(scope="session")
def namespaces() -> Iterator[Namespaces]:
    """A server of this test process, while it lasts."""
    if _running:
        # Every module that imports this fixture has one of its own; the server is the first one's.
        yield _running[-1]
        return
    server = Server(programs())
    found = Namespaces(server)
    _running.append(found)
    try:
        yield found
    finally:
        _running.remove(found)
        server.remove()


def running() -> Namespaces:
    """The server that the fixture started, for tests that have no fixtures."""
    return _running[-1]
