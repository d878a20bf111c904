"""What a transaction that is left open costs a claim on PostgreSQL: `python bench/held_numbers.py [form …]`.

Such a transaction keeps vacuum from removing what claims, settlements and beats leave behind. Jobs flow
through a namespace, first with nothing held, then with a REPEATABLE READ snapshot held from the start. For
each fifth of the jobs: p50 and p99 of a settle that claims ten jobs, its wall and the CPU that the server's
process spent in it, which says more on a machine that has other work. Forms: singles (runs of one), bulk
(runs of 100), laned, sequence.

HELD_JOBS: how many jobs (40,000). HELD_RATE: jobs a second (0: as fast as they go); 180,000 jobs at 300 a
second are ten minutes.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parent.parent))

from postgres_numbers import Bench
from tests.broker.postgres.servers import Server, programs

from windlass.core.outcome import Outcome
from windlass.core.session import Beat
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement

JOBS = int(os.environ.get("HELD_JOBS", "40000"))
RATE = int(os.environ.get("HELD_RATE", "0"))
BATCH = 10
STRETCHES = 5
FORMS = {
    "singles": QueueSettings(),
    "bulk": QueueSettings(),
    "laned": QueueSettings(lane_concurrency=5),
    "sequence": QueueSettings(sequence=True),
}


def spent(pids: list[int]) -> int:
    """Nanoseconds of CPU that these processes have used."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids)


def quantiles(times: list[float]) -> str:
    """p50 and p99, in ms."""
    times.sort()
    return f"p50 {times[len(times) // 2] * 1e3:6.2f}  p99 {times[len(times) * 99 // 100] * 1e3:6.2f}"


async def fill(bench: Bench, form: str, count: int) -> None:
    """Enqueue so many jobs in this form."""
    lanes = 0 if form in ("singles", "bulk") else 20
    await bench.enqueue(count, 1 if form == "singles" else min(count, 100), lanes=lanes)


async def flow(bench: Bench, form: str) -> None:
    """Enqueue, claim and settle; print what a claim took in each stretch."""
    await fill(bench, form, 1_000)
    leases = (await bench.broker.claim(bench.ask(BATCH))).leases
    round_of = BATCH if form == "singles" else 100
    walls: list[float] = []
    cpus: list[float] = []
    rows = await bench.asked(
        "SELECT pid FROM pg_stat_activity WHERE query LIKE %s AND pid <> pg_backend_pid()",
        f"%{bench.broker.namespace}%",
    )
    pids = [row[0] for row in rows]
    assert pids
    began = swept = time.monotonic()
    for done in range(0, JOBS, round_of):
        await fill(bench, form, round_of)
        for _ in range(round_of // BATCH):
            items = [
                Settlement(job=each.job, fence=each.fence, outcome=Outcome.DONE, runtime=10)
                for each in leases
            ]
            start, cpu = time.perf_counter(), spent(pids)
            claimed = (await bench.broker.settle(items, bench.ask(BATCH))).claimed
            walls.append(time.perf_counter() - start)
            cpus.append((spent(pids) - cpu) / 1e9)
            leases = () if claimed is None else claimed.leases
        # A worker beats and sweeps about once a second; without a rate, once in 300 jobs.
        if time.monotonic() - swept > 1 or (not RATE and done % 300 < round_of):
            swept = time.monotonic()
            await bench.broker.beat([Beat(session=bench.session)])
            await bench.broker.sweep(limit=1_000)
        if RATE:
            await asyncio.sleep(max(0.0, began + (done + round_of) / RATE - time.monotonic()))
        if (done + round_of) % (JOBS // STRETCHES) == 0:
            print(
                f"  up to {done + round_of:8,}: wall {quantiles(walls)}  server {quantiles(cpus)} ms",
                flush=True,
            )
            walls.clear()
            cpus.clear()


@asynccontextmanager
async def snapshot(server: Server) -> AsyncIterator[None]:
    """A transaction that has seen something, and stays open."""
    async with await psycopg.AsyncConnection[Any].connect(server.dsn, autocommit=True) as holder:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        yield


async def largest(bench: Bench) -> str:
    """The tables with the most dead rows."""
    rows = await bench.asked(
        "SELECT relname, n_dead_tup, pg_total_relation_size(relid) / 1024 FROM pg_stat_user_tables "
        "WHERE schemaname = %s ORDER BY n_dead_tup DESC LIMIT 6",
        bench.broker.namespace,
    )
    return ", ".join(f"{name} {dead:,} ({size:,} KiB)" for name, dead, size in rows)


async def measure(server: Server, form: str, *, held: bool) -> None:
    """One form, with or without an open transaction."""
    bench = await Bench.open(server)
    subject = Subject(Kind.QUEUE, "q")
    await bench.broker.declare([Declaration(subject=subject, body=FORMS[form], app="bench", revision=1)])
    print(f"{form}, {'a snapshot held' if held else 'nothing held'}", flush=True)
    if held:
        async with snapshot(server):
            await flow(bench, form)
    else:
        await flow(bench, form)
    print(f"  dead rows: {await largest(bench)}", flush=True)
    await bench.close()


async def main(server: Server) -> None:
    """Measure the forms that were named, or all."""
    for form in sys.argv[1:] or FORMS:
        for held in (False, True):
            await measure(server, form, held=held)


if __name__ == "__main__":
    _server = Server(programs(), synchronous_commit="on", shared_buffers="256MB")
    try:
        asyncio.run(main(_server))
    finally:
        _server.remove()
