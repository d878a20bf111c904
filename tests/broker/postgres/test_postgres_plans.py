"""No verb's work grows with what the tables hold: a long history, many scheduled jobs, a backlog."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.measuring import Measured, Told
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.url import Location
from windlass.conformance.harness import APP, new_id
from windlass.core.event import FROM_START
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.operate import Target
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.query import JobQuery
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import DAY, SECOND

__all__ = ["namespaces"]
_HISTORY, _SCHEDULED, _BACKLOG = 30_000, 8_000, 8_000
_LONG_HISTORY, _MANY_SCHEDULED, _LARGE_BACKLOG = 1_000_000, 100_000, 100_000
_ROWS = 4_000
"""Entries of indexes that one call may read: far more than any needs, far less than there are."""
_QUEUES = {
    "plain": QueueSettings(),
    "laned": QueueSettings(lane_concurrency=5),
    "counted": QueueSettings(retention_count=10**9),
}

_FILL = """
WITH made AS (
    INSERT INTO {schema}.{table} (id, n, state, priority, max_attempts, revision, queue, lane, task, band,
        seq, accepted_at, due_at, size, kept, finished_at, started, payload, segment, waits)
    SELECT gen_random_uuid(), i.n, $1::smallint, 0, 5, 0, $2,
        CASE WHEN $2 = 'laned' THEN 'l' || i.i % 50 ELSE '' END,
        't', 0, i.n, $3, $3 + CASE WHEN $1::smallint = 1 THEN $4::bigint ELSE 0 END, 10,
        CASE WHEN $1::smallint = 4 THEN 0 END, CASE WHEN $1::smallint = 4 THEN $3 END, $1::smallint = 4, 'x',
        CASE WHEN '{table}' = 'past' THEN (SELECT segment FROM {schema}.queue WHERE name = $2) END,
        CASE WHEN $1::smallint = 1 THEN 1 END
    FROM (SELECT i, nextval('{schema}.number') * 1024 AS n FROM generate_series(1, $5::integer) i) i
    RETURNING n, state, queue, lane, task, band, seq, size
)
INSERT INTO {schema}.ready (queue, lane, band, seq, n, task, size, last, suspect)
SELECT queue, lane, band, seq, n, task, size, false, false FROM made WHERE state = 2
"""
_LEASE = """
WITH made AS (
    INSERT INTO {schema}.job (id, n, state, priority, max_attempts, revision, queue, lane, task, band,
        seq, accepted_at, due_at, size, payload)
    SELECT gen_random_uuid(), -1024 * i, 2, 0, 5, 0, $1, '', 't', 0, -1024 * i, $2, $2, 1, 'x'
    FROM generate_series(1, $3::integer) i
    RETURNING n
)
INSERT INTO {schema}.lease (session, n, width, remaining, i, ask, queue, lane, at)
SELECT CASE WHEN n % 10240 = 0 AND n >= -10240 * 800 THEN $4 ELSE 'other' END, n, 1, 1, n, 0, $1, '', $2
FROM made
"""
"""Jobs that are leased, older than the others; 800 by the session that is measured: more than a
worker has in its hand. What a session holds is read when it ends, and when sessions are looked at.
"""


@pytest.mark.parametrize("planned", ["on full tables", "on empty tables"])
@pytest.mark.parametrize("queue", [*_QUEUES])
def test_work_does_not_grow_with_the_tables(namespaces: Namespaces, queue: str, planned: str) -> None:
    _measure(namespaces, queue, planned, (_HISTORY, _SCHEDULED, _BACKLOG))


@pytest.mark.slow
@pytest.mark.parametrize("planned", ["on full tables", "on empty tables"])
@pytest.mark.parametrize("queue", [*_QUEUES])
def test_work_does_not_grow_with_large_tables(namespaces: Namespaces, queue: str, planned: str) -> None:
    _measure(namespaces, queue, planned, (_LONG_HISTORY, _MANY_SCHEDULED, _LARGE_BACKLOG))


def _measure(namespaces: Namespaces, queue: str, planned: str, sizes: tuple[int, int, int]) -> None:
    async def test() -> None:
        prepared = await namespaces.open(None, Options())
        connection: Any = await asyncpg.connect(namespaces.server.dsn)
        try:
            broker = await Told.open(
                Location(namespaces.server.dsn, connections=1), options=Options(namespace=prepared.namespace)
            )
            assert isinstance(broker, Told)
            await _declare(broker, queue)
            if planned == "on empty tables":
                # What has been vacuumed empty looks as if it had one row for ever: the worst moment to plan.
                for table in ("job", "ready", "lease", "edge", "session", "past_0", "past_5"):
                    await connection.execute(f"VACUUM ANALYZE {quoted(prepared.namespace)}.{table}")
                await _excessive(Measured(broker, connection), queue, some=False)
            await _fill(broker, connection, queue, sizes)
            if planned == "on full tables":
                await connection.execute(f"ANALYZE {quoted(prepared.namespace)}.job")
            excessive = await _excessive(Measured(broker, connection), queue, some=True)
            await broker.close()
            assert excessive == {}
        finally:
            schema = quoted(prepared.namespace)
            await connection.execute(f"TRUNCATE {schema}.job, {schema}.ready, {schema}.lease, {schema}.past")
            await connection.close()
            await prepared.close()

    asyncio.run(test())


async def _declare(broker: PostgresBroker, queue: str) -> None:
    await broker.declare([Declaration(subject=Subject(Kind.QUEUE, queue), body=_QUEUES[queue], app=APP)])


async def _fill(broker: PostgresBroker, connection: Any, queue: str, sizes: tuple[int, int, int]) -> None:
    schema = quoted(broker.namespace)
    now = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    history, scheduled, backlog = sizes
    # Most of the past is where plain settlements put it; some of it, dependents keep among the others.
    for table, state, count in (
        ("past", 4, history),
        ("job", 4, history // 10),
        ("job", 1, scheduled),
        ("job", 2, backlog),
    ):
        await connection.execute(_FILL.format(schema=schema, table=table), state, queue, now, DAY, count)
    if queue == "plain":
        await connection.execute(_LEASE.format(schema=schema), queue, now, backlog, "wTrue")
    if queue == "laned":
        await broker.enqueue([[NewJob(id=new_id(), task="t", queue=queue, lane="l0")]])
        for lane in range(50):
            await broker.pause(queue, f"l{lane}")
            await broker.resume(queue, f"l{lane}")


async def _excessive(measured: Measured, queue: str, *, some: bool) -> dict[str, Counter[str]]:
    """The calls that read too much, and of what. Some: whether there are jobs but those that this makes."""
    broker = measured.broker
    session = f"w{some}"
    await broker.beat([Beat(session=session, open=SessionInfo(queues=(queue,)))])
    if not some:
        await broker.enqueue([[NewJob(id=new_id(), task="t", queue=queue)]])
    seq = 0

    def ask() -> Ask:
        nonlocal seq
        seq += 1
        return Ask(queues=(queue,), slots=10, limit=10, session=session, seq=seq)

    leases = (await broker.claim(ask())).leases
    assert leases
    done = [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1) for lease in leases]
    job = (await broker.list(JobQuery(), limit=1)).jobs[0].id
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "enqueue": lambda: broker.enqueue([[NewJob(id=new_id(), task="t", queue=queue)]]),
        "enqueue keyed": lambda: broker.enqueue([[NewJob(id=new_id(), task="t", queue=queue, key="k")]]),
        "claim": lambda: broker.claim(ask()),
        "settle": lambda: broker.settle(done, ask()),
        "claim alone": lambda: broker.claim(
            Ask(queues=(queue,), slots=1, limit=1, visibility=SECOND, alone=True)
        ),
        "beat": lambda: broker.beat([Beat(session=session)]),
        "sweep": lambda: broker.sweep(limit=100),
        "get": lambda: broker.get([job]),
        "list": lambda: broker.list(JobQuery(queue="none")),
        "list dead": lambda: broker.list(JobQuery(states=frozenset({State.DEAD}))),
        "list flow": lambda: broker.list(JobQuery(flow="f")),
        "counts": broker.counts,
        "explain": lambda: broker.explain(job),
        "sessions": broker.sessions,
        "watch": lambda: broker.watch([job], 0),
        "wait": lambda: broker.wait([queue], 0),
        "events": lambda: broker.events(FROM_START, 10, 0),
        "cancel": lambda: broker.cancel([Target(job)]),
        "unhold": lambda: broker.unhold("k", 10),
        "pause": lambda: broker.pause(queue),
        "resume": lambda: broker.resume(queue),
        "end_session": lambda: broker.end_session(session, Cause(CauseKind.STOP)),
    }
    found: dict[str, Counter[str]] = {}
    for name, call in calls.items():
        # The server's own upkeep is counted too, so nobody is blamed for one bad measurement.
        read = min([await measured.read_by(call) for _ in range(2)], key=Counter.total)
        if read.total() > _ROWS:
            found[name] = read
    return found
