"""The protocol of a peer written in Python: `python run_peer.py VERB ...` prints one line of JSON.

    prepare                     make what the store needs, once, while it is empty
    single N BYTES              N jobs, one awaited call each
    concurrent N BYTES CALLERS  N jobs by so many callers at once
    bulk N BYTES                N jobs in calls of 1,000
    ping N GAP PRIORITY         N jobs that note how long they took to start, GAP seconds apart
    work                        run the workers, until ended

The environment says the rest: BENCH_URL (the store), BENCH_MARKS (a folder for what workers note), BENCH_TASK
(`async` or `def`), BENCH_LANES (over how many lanes the jobs of `bulk` go) and BENCH_DEALT (in `turn` or at
`random`). `peer.mjs` is the same for Node, `peer.rb` for Ruby, `peer.go` for Go.
"""

import asyncio
import inspect
import json
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

URL = os.environ.get("BENCH_URL", "")
MARKS = Path(os.environ.get("BENCH_MARKS", "."))
TASK = os.environ.get("BENCH_TASK", "async")
LANES = int(os.environ.get("BENCH_LANES", "1"))
DEALT = os.environ.get("BENCH_DEALT", "turn")
CALL = 1000
WORKERS = 2

_MARK = struct.Struct("<Qdd")
_LATENCY = struct.Struct("<d")


class _Starts:
    """How many jobs this process has started, and when the first and the last: seen from outside, at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._first = 0.0
        self._file: mmap.mmap | None = None
        self._latencies = -1

    def mark(self) -> None:
        """Note a start."""
        now = time.monotonic()
        with self._lock:
            if self._file is None:
                self._file = self._open()
                self._first = now
            self._count += 1
            _MARK.pack_into(self._file, 0, self._count, self._first, now)

    def ping(self, sent: float) -> None:
        """Note how long ago a job was sent."""
        late = time.monotonic() - sent
        with self._lock:
            if self._latencies < 0:
                path = MARKS / f"{os.getpid()}.latencies"
                self._latencies = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(self._latencies, _LATENCY.pack(late))

    def _open(self) -> mmap.mmap:
        path = MARKS / f"{os.getpid()}.starts"
        path.write_bytes(bytes(_MARK.size))
        with path.open("r+b") as file:
            return mmap.mmap(file.fileno(), _MARK.size)


_starts = _Starts()
mark = _starts.mark
ping = _starts.ping


class Peer:
    """What a peer says about itself: plain functions or coroutines, as its own interface is."""

    uvloop = False

    def prepare(self) -> object:
        """Make what the store needs."""

    def open(self) -> object:
        """Connect a producer."""

    def close(self) -> object:
        """Close it."""

    def enqueue(self, text: str) -> object:
        """Enqueue one job."""
        raise NotImplementedError

    def bulk(self, texts: list[str]) -> object:
        """Enqueue many jobs in one call."""
        raise NotImplementedError

    def concurrent(self, text: str) -> Awaitable[object]:
        """Enqueue one job beside many other callers: as ever, where that is a coroutine."""
        if inspect.iscoroutinefunction(self.enqueue):
            return self.enqueue(text)
        raise NotImplementedError

    def ping(self, sent: float, priority: int) -> object:
        """Enqueue a job that calls `ping(sent)`."""
        raise NotImplementedError

    def work(self) -> object:
        """Run two worker processes."""
        raise NotImplementedError


def in_processes(peer: Peer, serve: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine in each of two processes: for peers that have an interface, but no command for it."""
    if os.environ.get("BENCH_CHILD"):
        with asyncio.Runner(loop_factory=_loop_factory(peer)) as runner:
            runner.run(serve())
        return
    os.environ["BENCH_CHILD"] = "1"
    children = [
        os.posix_spawn(sys.executable, [sys.executable, *sys.argv], os.environ) for _ in range(WORKERS)
    ]
    for child in children:
        os.waitpid(child, 0)


def main(peer: Peer) -> None:
    """Do what the command line asks for."""
    verb, *rest = sys.argv[1:]
    with asyncio.Runner(loop_factory=_loop_factory(peer)) as runner:

        def settled(value: object) -> None:
            if inspect.iscoroutine(value):
                runner.run(value)

        if verb == "work":
            settled(peer.work())
        elif verb == "prepare":
            settled(peer.prepare())
            print("{}", flush=True)
        else:
            settled(peer.open())
            try:
                answer = _drive(peer, runner, verb, [float(word) for word in rest])
            except NotImplementedError:
                answer = {"absent": verb}
            print(json.dumps(answer), flush=True)
            settled(peer.close())


def _loop_factory(peer: Peer) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not peer.uvloop:
        return None
    import uvloop  # noqa: PLC0415 - of the peers that have it

    return uvloop.new_event_loop


def _drive(peer: Peer, runner: asyncio.Runner, verb: str, numbers: list[float]) -> dict[str, float]:
    count = int(numbers[0])
    if verb == "ping":
        gap, priority = numbers[1], int(numbers[2])
        return _timed(runner, peer.ping, count, 1, lambda: (time.monotonic(), priority), gap)
    text = "x" * int(numbers[1])
    if verb == "bulk":
        texts = [text] * CALL
        return _timed(runner, peer.bulk, count // CALL, CALL, lambda: (texts,))
    if verb == "single":
        return _timed(runner, peer.enqueue, count, 1, lambda: (text,))
    return runner.run(_concurrent(peer, count, text, int(numbers[2])))


def _timed(
    runner: asyncio.Runner,
    call: Callable[..., object],
    calls: int,
    each: int,
    arguments: Callable[[], tuple[object, ...]],
    gap: float = 0.0,
) -> dict[str, float]:
    """The rate of a loop of calls, and how long a call took; the first call, which connects, apart."""
    if inspect.iscoroutinefunction(call):
        return runner.run(_timed_async(call, calls, each, arguments, gap))
    call(*arguments())
    waits: list[float] = []
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(calls - 1):
        before = time.monotonic()
        call(*arguments())
        waits.append(time.monotonic() - before)
        if gap:
            time.sleep(gap)
    return _rate(began, cpu, (calls - 1) * each, waits)


async def _timed_async(
    call: Callable[..., Awaitable[object]],
    calls: int,
    each: int,
    arguments: Callable[[], tuple[object, ...]],
    gap: float,
) -> dict[str, float]:
    await call(*arguments())
    waits: list[float] = []
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(calls - 1):
        before = time.monotonic()
        await call(*arguments())
        waits.append(time.monotonic() - before)
        if gap:
            await asyncio.sleep(gap)
    return _rate(began, cpu, (calls - 1) * each, waits)


async def _concurrent(peer: Peer, count: int, text: str, callers: int) -> dict[str, float]:
    waits: list[float] = []

    async def caller(times: int) -> None:
        for _ in range(times):
            before = time.monotonic()
            await peer.concurrent(text)
            waits.append(time.monotonic() - before)

    await peer.concurrent(text)
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(caller(count // callers) for _ in range(callers)))
    return _rate(began, cpu, count // callers * callers, waits)


def _rate(began: float, cpu: float, jobs: int, waits: list[float]) -> dict[str, float]:
    seconds = time.monotonic() - began
    spent = time.process_time() - cpu
    waits.sort()
    return {
        "jobs": jobs,
        "began": began,
        "rate": jobs / seconds,
        "client_us": spent / jobs * 1e6,
        "p50_ms": waits[len(waits) // 2] * 1e3,
        "p99_ms": waits[int(len(waits) * 0.99)] * 1e3,
    }
