"""The measures, in the order in which they are taken. Rates are jobs per second, times milliseconds."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from windlass.bench import FOLDER, URL, flows
from windlass.bench.tasks import LATE, MARK, noop, ping
from windlass.bench.tasks import app as target
from windlass.core.state import State
from windlass.errors import WindlassError

_T = TypeVar("_T")
CALL = 1_000
CALLERS = 100
PINGS = 100
STUCK = 60.0
"""Seconds without a started job after which the workers are taken to be stuck."""
STOPPING = 10.0


class Figure(msgspec.Struct, frozen=True):
    """One line of the answer."""

    measure: str
    rate: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


def measures(url: str, folder: Path, jobs: int, payload: int) -> Iterator[Figure]:
    """Take every measure; `folder` is empty and is left so that it can be removed."""
    text = "x" * payload
    try:
        yield _single(text, max(1, min(jobs // 10, 2_000)))
        yield asyncio.run(_concurrent(text, jobs))
        yield _bulk(text, jobs)
        asyncio.run(_purge())
        yield from _flows()
        target.enqueue_many(noop.call(text) for _ in range(jobs))
        with _workers(url, folder):
            yield _drain(folder, jobs)
            yield _pickup(folder)
    finally:
        asyncio.run(_purge())
        target.close()


def _single(text: str, jobs: int) -> Figure:
    noop.enqueue(text)  # connects
    times: list[float] = []
    began = time.monotonic()
    for _ in range(jobs):
        before = time.monotonic()
        noop.enqueue(text)
        times.append(time.monotonic() - before)
    return _figure("enqueue one by one", jobs / (time.monotonic() - began), times)


async def _concurrent(text: str, jobs: int) -> Figure:
    times: list[float] = []

    async def caller() -> None:
        for _ in range(max(1, jobs // CALLERS)):
            before = time.monotonic()
            await noop.aenqueue(text)
            times.append(time.monotonic() - before)

    await noop.aenqueue(text)
    began = time.monotonic()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    rate = len(times) / (time.monotonic() - began)
    await target.aclose()
    return _figure(f"enqueue, {CALLERS} callers at once", rate, times)


def _bulk(text: str, jobs: int) -> Figure:
    times: list[float] = []
    began = time.monotonic()
    for start in range(0, jobs, CALL):
        before = time.monotonic()
        target.enqueue_many(noop.call(text) for _ in range(min(CALL, jobs - start)))
        times.append(time.monotonic() - before)
    return _figure(f"enqueue, {CALL:,} a call", jobs / (time.monotonic() - began), times)


def _flows() -> Iterator[Figure]:
    """Edges and fires. Each width on an empty store."""
    for width in flows.WIDTHS:
        yield asyncio.run(_alone(f"edges a second, {width:,} children", flows.fan_out(width)))
    yield asyncio.run(_alone(f"edges a second, {flows.JOIN:,} parents", flows.fan_in(flows.JOIN)))
    times = asyncio.run(_cleared(flows.fires(flows.FIRES)))
    yield _figure("fires of a schedule", len(times) / sum(times), times)


async def _alone(measure: str, edges: Awaitable[float]) -> Figure:
    return Figure(measure, await _cleared(edges))


async def _cleared(work: Awaitable[_T]) -> _T:
    """Do it, and leave nothing behind."""
    try:
        return await work
    finally:
        await _purge()


@contextlib.contextmanager
def _workers(url: str, folder: Path) -> Generator[None]:
    """The command that a user runs, at its defaults."""
    command = [sys.executable, "-m", "windlass", "worker", "windlass.bench.tasks:app", "--log-level", "error"]
    environment = {**os.environ, URL: url, FOLDER: str(folder)}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)  # noqa: S603 - this program
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _drain(folder: Path, jobs: int) -> Figure:
    """From the first start to the last: the workers' own start is left out."""
    seen, end = -1, 0.0
    while True:
        marks = [mark for mark in map(_mark, folder.glob("*.starts")) if mark[0]]
        count = sum(mark[0] for mark in marks)
        if count >= jobs:
            spent = max(mark[2] for mark in marks) - min(mark[1] for mark in marks)
            return Figure("drain, two worker processes", jobs / max(spent, 1e-9))
        end = _patience(count, seen, end, jobs)
        seen = count
        time.sleep(0.01)


def _mark(path: Path) -> tuple[int, float, float]:
    text = path.read_bytes()
    count, first, last = MARK.unpack(text) if len(text) == MARK.size else (0, 0.0, 0.0)
    return count, first, last


def _pickup(folder: Path) -> Figure:
    """From the call of `enqueue` to the first line of the task, while there is nothing else to do."""
    for _ in range(PINGS):
        ping.enqueue(time.monotonic())
        time.sleep(0.02)
    seen, end = -1, 0.0
    while len(times := _late(folder)) < PINGS:
        end = _patience(len(times), seen, end, PINGS)
        seen = len(times)
        time.sleep(0.02)
    return _figure("enqueue to start, idle", None, times)


def _late(folder: Path) -> list[float]:
    texts = [path.read_bytes() for path in folder.glob("*.late")]
    return [LATE.unpack_from(text, at)[0] for text in texts for at in range(0, len(text) - 7, LATE.size)]


def _patience(count: int, seen: int, end: float, wanted: int) -> float:
    """Until when to wait for the next job."""
    if count > seen:
        return time.monotonic() + STUCK
    if time.monotonic() > end:
        raise WindlassError(f"{count} of {wanted} jobs had started, and none in the last {STUCK:.0f} s")
    return end


def _figure(measure: str, rate: float | None, times: Sequence[float]) -> Figure:
    ordered = sorted(times)
    middle, worst = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return Figure(measure, rate, middle * 1e3, worst * 1e3)


async def _purge() -> None:
    """Leave no jobs behind."""
    broker = await target.broker()
    waiting = (State.READY, State.SCHEDULED, State.BLOCKED)  # cancelled by it, and then removed
    for state in (*waiting, State.CANCELLED, State.DONE, State.DEAD):
        while (await broker.purge("default", state, 1_000)).more:
            pass
    await target.aclose()
