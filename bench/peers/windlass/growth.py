"""What a verb costs as things grow: `python growth.py backlog|lanes|sessions|flight|history MOST`.

By the broker alone, without workers: a claim of 10, or a drain of batches of 100 where a settle asks for the
next.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from bench_peer import URL

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement

PAYLOAD = b'["' + b"x" * 196 + b'"]'
CLAIMS = 300
_seq = itertools.count(1)
Point = tuple[int, dict[str, float]]


async def backlog(broker: Broker, most: int) -> AsyncIterator[Point]:
    """A claim of 10, by how many jobs wait."""
    waiting = 0
    for size in _steps(1000, most):
        await fill(broker, size - waiting)
        times = await claims(broker, CLAIMS)
        waiting = size
        yield size, quantiles(times)


async def lanes(broker: Broker, most: int) -> AsyncIterator[Point]:
    """A drain of 20,000 jobs, by over how many lanes they go."""
    for count in _steps(1, most):
        await fill(broker, 20_000, count)
        yield count, {"us_per_job": await drain(broker, 20_000)}


async def sessions(broker: Broker, most: int) -> AsyncIterator[Point]:
    """A beat for all of 20 sessions, a sweep and a claim, by how many sessions there are."""
    await fill(broker, 20_000)
    there = 0
    for count in _steps(1, most):
        names = [f"s{number}" for number in range(there, count)]
        for start in range(0, len(names), 20):
            await broker.beat(
                [Beat(session=name, open=SessionInfo(host="h")) for name in names[start : start + 20]]
            )
        there = count
        some = [Beat(session=f"s{number}") for number in range(min(20, count))]
        beats = await timed(100, lambda beats=some: broker.beat(beats))
        sweeps = await timed(50, lambda: broker.sweep(limit=1000))
        found = quantiles(await claims(broker, 50))
        yield (
            count,
            {
                "beat_us_each": quantiles(beats)["p50_ms"] * 1e3 / len(some),
                "sweep_p50_ms": quantiles(sweeps)["p50_ms"],
                "claim_p50_ms": found["p50_ms"],
            },
        )


async def flight(broker: Broker, most: int) -> AsyncIterator[Point]:
    """A beat for 20 sessions that run everything, a sweep, and a claim of 10, by how many jobs run."""
    names = [f"s{number}" for number in range(20)]
    await broker.beat([Beat(session=name, open=SessionInfo(host="h", slots=most)) for name in names])
    await fill(broker, 1000)
    running, seqs = 0, {name: itertools.count(1) for name in names}
    for size in _steps(1000, most):
        await fill(broker, size - running)
        for name in itertools.cycle(names):
            if running >= size:
                break
            part = min(500, size - running)
            asks = Ask(session=name, seq=next(seqs[name]), queues=("default",), slots=part, limit=part)
            running += len((await broker.claim(asks)).leases)
        beats = await timed(100, lambda: broker.beat([Beat(session=name) for name in names]))
        sweeps = await timed(50, lambda: broker.sweep(limit=1000))
        found = quantiles(await claims(broker, CLAIMS))
        yield (
            size,
            {
                "beat_us_each": quantiles(beats)["p50_ms"] * 1e3 / len(names),
                "sweep_p50_ms": quantiles(sweeps)["p50_ms"],
                "claim_p50_ms": found["p50_ms"],
                "claim_p99_ms": found["p99_ms"],
            },
        )


async def history(broker: Broker, most: int) -> AsyncIterator[Point]:
    """Enqueue and drain 20,000 jobs, by how many were done before."""
    done = 0
    for size in _steps(1000, most):
        while done < size - 1000:
            part = min(20_000, size - done)
            await fill(broker, part)
            await drain(broker, part)
            done += part
        began = time.perf_counter()
        await fill(broker, 20_000)
        filled = (time.perf_counter() - began) / 20_000 * 1e6
        yield done, {"enqueue_us": filled, "drain_us": await drain(broker, 20_000)}
        done += 20_000


def _steps(first: int, most: int) -> list[int]:
    return [size for size in (first * 10**power for power in range(8)) if size <= most]


async def timed(count: int, call: Callable[[], Awaitable[object]]) -> list[float]:
    """Seconds of each call."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
    return times


async def fill(broker: Broker, count: int, lanes: int = 1) -> None:
    """Enqueue in groups of 1,000."""
    for start in range(0, count, 1000):
        numbers = range(start, min(start + 1000, count))
        await broker.enqueue([[new_job("" if lanes == 1 else str(number % lanes)) for number in numbers]])


def new_job(lane: str) -> NewJob:
    """A plain job."""
    name = new_job_id(time.time_ns() // 1_000_000, os.urandom(10))
    return NewJob(id=name, task="noop", queue="default", payload=PAYLOAD, lane=lane)


async def claims(broker: Broker, count: int) -> list[float]:
    """Seconds of each claim of 10; what is claimed is settled and replaced, untimed."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        claimed = await broker.claim(ask(10))
        times.append(time.perf_counter() - began)
        assert len(claimed.leases) == 10, f"{len(claimed.leases)} leases"
        await broker.settle(done(claimed.leases))
        await fill(broker, 10)
    return times


async def drain(broker: Broker, count: int) -> float:
    """Microseconds per job of settling 100 and claiming 100 more in one call, until so many are done."""
    began, left = time.perf_counter(), count
    leases = (await broker.claim(ask(100))).leases
    while left > 0:
        left -= len(leases)
        settled = await broker.settle(done(leases), ask(min(100, max(left, 1))))
        assert settled.claimed is not None
        leases = settled.claimed.leases
    return (time.perf_counter() - began) / count * 1e6


def done(leases: Sequence[Lease]) -> list[Settlement]:
    """Settlements of what was run."""
    return [Settlement(job=one.job, fence=one.fence, outcome=Outcome.DONE, runtime=1) for one in leases]


def ask(limit: int) -> Ask:
    """The next ask of the session."""
    return Ask(session="bench", seq=next(_seq), queues=("default",), slots=limit, limit=limit)


def quantiles(times: list[float]) -> dict[str, float]:
    """The middle, and nearly the worst."""
    times.sort()
    return {"p50_ms": times[len(times) // 2] * 1e3, "p99_ms": times[int(len(times) * 0.99)] * 1e3}


async def main() -> None:
    """Print every point."""
    app = Windlass(URL)
    app.queue("default")
    broker = await app.broker()
    await broker.beat([Beat(session="bench", open=SessionInfo(host="bench", slots=100))])
    what = {"backlog": backlog, "lanes": lanes, "sessions": sessions, "flight": flight, "history": history}
    points = [point async for point in what[sys.argv[1]](broker, int(sys.argv[2]))]
    print(json.dumps([{"at": at, **figures} for at, figures in points]), flush=True)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
