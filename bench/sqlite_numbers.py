"""Figures of the SQLite broker, in a minute or two: `python bench/sqlite_numbers.py [folder [laned]]`.

Everything runs at the defaults (WAL, synchronous=FULL), payloads have 200 bytes, batches 100. `bare` is a
loop of `BEGIN; INSERT; COMMIT` in a file beside it, the most that one job per call can reach.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from windlass.broker.sqlite import SqliteBroker
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement

PAYLOAD = b"x" * 200
_loop = asyncio.new_event_loop()


class Verbs:
    """Every verb of a broker, run to its end in one loop."""

    def __init__(self, broker: SqliteBroker) -> None:
        self._broker = broker

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *given, **named: _loop.run_until_complete(getattr(self._broker, verb)(*given, **named))


run = Verbs
SESSION = "bench"


def main() -> None:
    """Measure and print a table."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        parts = laned if sys.argv[2:] == ["laned"] else figures
        for title, figure in parts(Path(name)):
            print(f"{title:<58} {figure}", flush=True)


def figures(folder: Path) -> Iterator[tuple[str, str]]:
    """Every figure, as it is measured."""
    yield "bare BEGIN; INSERT; COMMIT", rate(2_000, lambda: bare(folder / "bare.db", 2_000))
    broker = opened(folder / "one.db")
    yield "single enqueue, blocking", rate(2_000, lambda: one_by_one(broker, 2_000))
    yield "bulk enqueue, groups of 1,000", rate(50_000, lambda: bulk(broker, 50_000))
    yield "claim + settle in batches of 100 (settle asks)", rate(30_000, lambda: drain(broker, 30_000))
    yield "100 concurrent aenqueue", rate(10_000, lambda: asyncio.run(concurrent(broker, 10_000)))
    run(broker).close()
    yield "eight processes, single enqueues for 3 s", fairness(folder / "eight.db", 8, 3.0)
    yield from backlog(folder)
    yield from leases(folder)
    yield from laned(folder)


def laned(folder: Path) -> Iterator[tuple[str, str]]:
    """Claim and settle with lanes: the plain drain beside it is what they are to be compared with."""
    count = int(os.environ.get("BENCH_LANED", "10000"))
    limited = QueueSettings(lane_concurrency=20)
    single = QueueSettings(lane_concurrency=1)
    for batch in (100, 16):
        for title, lanes, settings in (
            ("plain", 0, QueueSettings()),
            ("1 lane", 1, QueueSettings()),
            ("10 lanes", 10, QueueSettings()),
            ("1,000 lanes", 1_000, QueueSettings()),
            ("1,000 lanes with a limit of 20", 1_000, limited),
            ("1,000 lanes with a limit of 1", 1_000, single),
        ):
            broker = opened(folder / f"{batch}-{title}.db", settings)
            enqueued = rate(
                count + 1_000, lambda broker=broker, lanes=lanes: bulk(broker, count + 1_000, lanes)
            )
            yield f"{title}: bulk enqueue", enqueued
            drained = rate(count, lambda broker=broker, batch=batch: drain(broker, count, batch))
            yield f"{title}: claim + settle by {batch}", drained
            run(broker).close()


def backlog(folder: Path) -> Iterator[tuple[str, str]]:
    """The time of a claim of 10 with few and with many jobs waiting."""
    broker = opened(folder / "backlog.db")
    waiting = 0
    for size in (1_000, int(os.environ.get("BENCH_BACKLOG", "1000000"))):
        bulk(broker, size - waiting)
        waiting = size
        times = sorted(claims(broker, 50))
        yield (
            f"claim of 10 with {size:,} waiting",
            f"p50 {times[25] * 1e3:.2f} ms, p99 {times[-1] * 1e3:.2f} ms",
        )
        waiting -= 500
    run(broker).close()


def fairness(path: Path, writers: int, seconds: float) -> str:
    """What each of several processes gets done in the same time, and the longest that one waited."""
    run(opened(path)).close()
    read, write = os.pipe()
    for _ in range(writers):
        if os.fork() == 0:
            os.write(write, f"{' '.join(map(str, busy(path, seconds)))}\n".encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        done = [line.split() for line in answers]
    for _ in range(writers):
        os.wait()
    counts = sorted(int(count) for count, _ in done)
    longest = max(float(wait) for _, wait in done)
    return (
        f"{sum(counts) / seconds:,.0f} /s; each {counts[0]} to {counts[-1]}; longest {longest * 1e3:.0f} ms"
    )


def busy(path: Path, seconds: float) -> tuple[int, float]:
    """Enqueue without pause; how many, and the longest call."""
    broker = SqliteBroker(path)
    count, longest, end = 0, 0.0, time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        broker.blocking.enqueue([[job()]])
        longest = max(longest, time.perf_counter() - start)
        count += 1
    return count, longest


def leases(folder: Path) -> Iterator[tuple[str, str]]:
    """Beat and sweep with many leases under few sessions."""
    broker = opened(folder / "leases.db")
    count = int(os.environ.get("BENCH_LEASES", "100000"))
    bulk(broker, count)
    names = [f"s{number}" for number in range(20)]
    run(broker).beat([Beat(session=name, open=SessionInfo()) for name in names])
    for seq in range(1, count // 20_000 + 1):
        for name in names:
            ask = Ask(session=name, seq=seq, queues=("q",), slots=1_000, limit=1_000)
            run(broker).claim(ask)
    yield (
        f"beat of 20 sessions with {count:,} leases",
        timed(lambda: run(broker).beat([Beat(session=name) for name in names])),
    )
    yield f"sweep with {count:,} leases", timed(lambda: run(broker).sweep(limit=1_000))
    run(broker).close()


# the work


def opened(path: Path, settings: QueueSettings | None = None) -> SqliteBroker:
    """A broker with the queue `q` and a session."""
    broker = SqliteBroker(path)
    subject = Subject(Kind.QUEUE, "q")
    run(broker).declare([Declaration(subject=subject, body=settings or QueueSettings(), app="bench")])
    run(broker).beat([Beat(session=SESSION, open=SessionInfo())])
    _seq[:] = [0]
    return broker


def new_id() -> str:
    """A job id of now."""
    return new_job_id(time.time_ns() // 1_000_000, os.urandom(10))


def job(lane: str = "") -> NewJob:
    """A plain job."""
    return NewJob(id=new_id(), task="t", queue="q", lane=lane, payload=PAYLOAD)


def bare(path: Path, count: int) -> None:
    """One insert per transaction, without anything around it."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, payload BLOB) STRICT")
    for _ in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES (?1, ?2)", (new_id(), PAYLOAD))
        connection.execute("COMMIT")
    connection.close()


def one_by_one(broker: SqliteBroker, count: int) -> None:
    """One job per call."""
    for _ in range(count):
        broker.blocking.enqueue([[job()]])


def bulk(broker: SqliteBroker, count: int, lanes: int = 0) -> None:
    """Groups of 1,000, dealt out to so many lanes."""
    for start in range(0, count, 1_000):
        numbers = range(start, min(start + 1_000, count))
        broker.blocking.enqueue([[job(f"lane {number % lanes}" if lanes else "") for number in numbers]])


_seq = [0]
"""The asks of the session of the broker opened last."""


def next_ask(limit: int) -> Ask:
    """The next ask of the session."""
    _seq[0] += 1
    return Ask(session=SESSION, seq=_seq[0], queues=("q",), slots=limit, limit=limit)


def drain(broker: SqliteBroker, count: int, batch: int = 100) -> None:
    """Take a batch, then settle it and take another in one call, until so many are done."""
    leases = run(broker).claim(next_ask(batch)).leases
    for _ in range(count // batch):
        done = [
            Settlement(job=each.job, fence=each.fence, outcome=Outcome.DONE, runtime=1) for each in leases
        ]
        settled = run(broker).settle(done, next_ask(batch))
        assert settled.claimed is not None
        leases = settled.claimed.leases
    for each in leases:
        run(broker).settle([Settlement(job=each.job, fence=each.fence, outcome=Outcome.RELEASE)])


async def concurrent(broker: SqliteBroker, count: int) -> None:
    """A hundred callers, each one job at a time."""

    async def caller() -> None:
        for _ in range(count // 100):
            await broker.enqueue([[job()]])

    await asyncio.gather(*(caller() for _ in range(100)))


def claims(broker: SqliteBroker, count: int) -> Iterator[float]:
    """Seconds of claims of 10."""
    for _ in range(count):
        ask = next_ask(10)
        start = time.perf_counter()
        claimed = run(broker).claim(ask)
        yield time.perf_counter() - start
        assert len(claimed.leases) == 10


def rate(count: int, work: Callable[[], None]) -> str:
    """How many a second, and the CPU of this process per piece."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    return f"{count / seconds:>10,.0f} /s   {used / count * 1e6:6.1f} µs CPU"


def timed(work: Callable[[], object]) -> str:
    """The median of a few runs."""
    times: list[float] = []
    for _ in range(9):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return f"median {statistics.median(times) * 1e3:.2f} ms"


if __name__ == "__main__":
    main()
