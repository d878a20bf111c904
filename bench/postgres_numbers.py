"""Figures of the PostgreSQL broker, in a minute or two: `python bench/postgres_numbers.py [name …]`.

CPU time a job, of the server (the backends that served it) and of this process: walls say more of the
neighbours. The server is the wheel's, in a folder of its own, with synchronous commits and no fsync. Payloads
have 70 bytes. Names: plain, single, bulk, laned, keyed, idle, prune; all without one.
"""

import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.broker.postgres.servers import Server, programs

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker, read_url
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement

PAYLOAD = b'{"a":1}' * 10
COUNT = int(os.environ.get("BENCH_JOBS", "20000"))
_names = itertools.count(1)


class Bench:
    """A namespace of its own on a server, one connection, and the clocks of both sides."""

    def __init__(self, broker: PostgresBroker, watcher: Any) -> None:
        self.broker = broker
        self.watcher = watcher
        self.seq = 0
        self.session = ""
        self.times: list[float] = []

    @classmethod
    async def open(cls, server: Server, connections: int = 1) -> "Bench":
        """A new namespace with the queue `q`."""
        place = read_url(f"{server.dsn}&connections={connections}&wake=poll")
        broker = await PostgresBroker.open(place, options=Options(namespace=f"bench{next(_names)}"))
        subject = Subject(Kind.QUEUE, "q")
        await broker.declare([Declaration(subject=subject, body=QueueSettings(), app="bench")])
        bench = cls(broker, await psycopg.AsyncConnection[Any].connect(server.dsn, autocommit=True))
        await bench.begin()
        return bench

    async def begin(self) -> None:
        """A new session."""
        self.session, self.seq = f"s{next(_names)}", 0
        await self.broker.beat([Beat(session=self.session, open=SessionInfo(queues=("q",)))])

    async def close(self) -> None:
        """Let go of everything."""
        await self.broker.close()
        await self.watcher.close()

    async def enqueue(self, count: int, size: int, *, lanes: int = 0, keyed: bool = False) -> None:
        """So many jobs, in groups."""
        for start in range(0, count, size):
            await self.broker.enqueue([[job(start + i, lanes, keyed=keyed) for i in range(size)]])

    async def drain(self, size: int, most: int = sys.maxsize) -> None:
        """Take, then settle and take in one call, until nothing is left or so many are done."""
        done = 0
        leases = (await self.broker.claim(self.ask(size))).leases
        while leases and done < most:
            items = [
                Settlement(job=each.job, fence=each.fence, outcome=Outcome.DONE, runtime=10)
                for each in leases
            ]
            done += len(leases)
            start = time.perf_counter()
            claimed = (await self.broker.settle(items, self.ask(size))).claimed
            self.times.append(time.perf_counter() - start)
            leases = () if claimed is None else claimed.leases

    def ask(self, size: int) -> Ask:
        """The next ask of the session."""
        self.seq += 1
        return Ask(session=self.session, seq=self.seq, queues=("q",), slots=size, limit=size)

    async def asked(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """What a connection of its own answers."""
        return await (await self.watcher.execute(query, arguments or None)).fetchall()

    async def measured(self, title: str, count: int, work: Callable[[], Awaitable[None]]) -> None:
        """Do some work and print what it cost a job."""
        rows = await self.asked(
            "SELECT pid FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        pids = [row[0] for row in rows]
        ((log,),) = await self.asked("SELECT pg_current_wal_insert_lsn()::text")
        server, client, wall = cpu(pids), time.process_time(), time.perf_counter()
        await work()
        wall, client, server = time.perf_counter() - wall, time.process_time() - client, cpu(pids) - server
        ((log,),) = await self.asked("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", log)
        print(
            f"{title:<52} server {server / count * 1e6:6.1f}  client {client / count * 1e6:6.1f} µs"
            f"  log {int(log) // count:5} B  wall {wall / count * 1e6:6.1f} µs a job",
            flush=True,
        )


def job(number: int, lanes: int, *, keyed: bool) -> NewJob:
    """A job; with lanes, of one of them; keyed, under a key of its own."""
    return NewJob(
        id=new_job_id(time.time_ns() // 1_000_000, os.urandom(10)),
        task="t",
        queue="q",
        payload=PAYLOAD,
        lane=f"l{number % lanes}" if lanes else "",
        key=os.urandom(8).hex() if keyed else None,
    )


def cpu(pids: list[int]) -> float:
    """Seconds of CPU that these processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def plain(server: Server) -> None:
    """The plain path, in batches."""
    bench = await Bench.open(server)
    await bench.enqueue(2_000, 100)
    await bench.drain(100)
    for size in (100, 200):
        await bench.measured(
            f"enqueue, groups of {size}", COUNT, lambda size=size: bench.enqueue(COUNT, size)
        )
        await bench.measured(f"settle + claim, batches of {size}", COUNT, lambda size=size: bench.drain(size))
    await bench.close()


async def single(server: Server) -> None:
    """One job a call."""
    bench = await Bench.open(server)
    count = min(COUNT, 1_000)
    await bench.measured("enqueue, one by one", count, lambda: bench.enqueue(count, 1))
    await bench.measured("settle + claim, one by one", count, lambda: bench.drain(1))
    await bench.close()
    bench = await Bench.open(server, 4)
    blocking = bench.broker.blocking
    assert blocking is not None

    def block(count: int) -> None:
        for number in range(count):
            blocking.enqueue([[job(number, 0, keyed=False)]])

    await asyncio.to_thread(block, 10)
    await bench.measured("enqueue, one by one, blocking", count, lambda: asyncio.to_thread(block, count))
    await bench.close()


async def bulk(server: Server) -> None:
    """Groups of 1,000 from four connections, and four who drain."""
    bench = await Bench.open(server, 4)
    count = COUNT * 2

    async def fill() -> None:
        await asyncio.gather(*(bench.enqueue(count // 4, 1_000) for _ in range(4)))

    await asyncio.gather(*(bench.enqueue(1_000, 1_000) for _ in range(4)))
    await bench.measured("enqueue, groups of 1,000, 4 connections", count, fill)
    sharers = [Bench(bench.broker, bench.watcher) for _ in range(4)]
    for sharer in sharers:
        await sharer.begin()

    async def drain() -> None:
        await asyncio.gather(*(sharer.drain(100) for sharer in sharers))

    await bench.measured("settle + claim, batches of 100, 4 connections", count + 4_000, drain)
    await bench.close()


async def laned(server: Server) -> None:
    """A hundred lanes."""
    bench = await Bench.open(server)
    count = COUNT // 4
    await bench.enqueue(100, 100, lanes=100)
    await bench.measured(
        "enqueue, groups of 100, 100 lanes", count, lambda: bench.enqueue(count, 100, lanes=100)
    )
    await bench.measured("settle + claim, batches of 100, 100 lanes", count, lambda: bench.drain(100))
    await bench.close()


async def keyed(server: Server) -> None:
    """Each job under a key."""
    bench = await Bench.open(server)
    count = COUNT // 4
    await bench.measured(
        "enqueue, groups of 100, keyed", count, lambda: bench.enqueue(count, 100, keyed=True)
    )
    await bench.measured("settle + claim, batches of 100, keyed", count, lambda: bench.drain(100))
    await bench.close()


async def idle(server: Server) -> None:
    """A transaction that stays open while jobs flow."""
    total = int(os.environ.get("BENCH_IDLE", "200000"))
    for held in (False, True):
        bench = await Bench.open(server)
        await bench.enqueue(10_000, 1_000)
        holder = await psycopg.AsyncConnection[Any].connect(server.dsn, autocommit=True)
        if held:
            await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        step = total // 4
        for start in range(0, total, step):
            bench.times.clear()

            async def flow(bench: Bench = bench, step: int = step) -> None:
                for _ in range(step // 5_000):
                    await bench.enqueue(5_000, 1_000)
                    await bench.drain(100, 5_000)
                    await bench.broker.sweep(limit=1_000)

            word = "idle transaction" if held else "no idle transaction"
            await bench.measured(f"{word}, {start:,} to {start + step:,}, in + out", step, flow)
            times = sorted(bench.times)
            p50, p99 = statistics.median(times) * 1e3, times[-len(times) // 100] * 1e3
            print(f"{'':<52} settle + claim p50 {p50:.1f}, p99 {p99:.1f} ms", flush=True)
        await holder.close()
        await bench.close()


async def prune(server: Server) -> None:
    """Forgetting finished jobs."""
    bench = await Bench.open(server)
    await bench.enqueue(COUNT, 1_000)
    await bench.drain(200)
    schema = bench.broker.namespace
    await bench.watcher.execute(f"UPDATE {schema}.queue SET retention = 1, result_ttl = 1")  # noqa: S608 - our own

    async def sweep() -> None:
        while (await bench.broker.sweep(limit=1_000)).more:
            pass

    await bench.measured("prune, by 1,000", COUNT, sweep)
    await bench.close()


ALL = {work.__name__: work for work in (plain, single, bulk, laned, keyed, idle, prune)}


def chosen() -> Iterator[Callable[[Server], Awaitable[None]]]:
    """What is to be measured."""
    return (ALL[name] for name in sys.argv[1:] or ALL)


async def main(server: Server) -> None:
    """Measure and print."""
    for work in chosen():
        await work(server)


if __name__ == "__main__":
    _server = Server(programs(), synchronous_commit="on")
    try:
        asyncio.run(main(_server))
    finally:
        _server.remove()
