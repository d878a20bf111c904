"""One job from `enqueue` to its first line, step by step: `python bench/pickup_trace.py redis postgres`.

A worker waits in this process, and another process enqueues one job after the other; nothing else happens.
Both read the same monotonic clock. Prints the median of each step, and the steps of the slowest pickups.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.broker.postgres import servers as postgres
from tests.broker.redis import servers as redis

from windlass import Windlass
from windlass.broker.observed import Observation

JOBS = 300
PAUSE = 0.02
STEPS = ("enqueue answered", "wait returned", "claim sent", "claim answered", "first line")


@contextmanager
def store(name: str) -> Iterator[str]:
    """The URL of a store of its own."""
    if name == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/trace.db"
    elif name == "redis":
        with redis.running(redis.redis_binary()) as running:
            yield running.url
    else:
        server = postgres.Server(postgres.programs())
        try:
            yield server.dsn
        finally:
            server.stop()


seen: dict[str, float] = {}
started = asyncio.Event()
others: list[tuple[str, float, float]] = []
"""What else the worker asked the store: verb, when, and for how long."""


def app_on(url: str) -> tuple[Windlass, Any]:
    """The app, and its task."""
    app = Windlass(url, namespace="trace")

    @app.task(name="ping")
    async def ping() -> None:
        seen["first line"] = time.perf_counter()
        started.set()

    return app, ping


def produce(url: str) -> None:
    """In a process of its own: enqueue for each line, and say when that began and ended."""
    _, ping = app_on(url)
    for _ in sys.stdin:
        called = time.perf_counter()
        ping.enqueue()
        print(called, time.perf_counter(), flush=True)


def watch(call: Observation) -> None:
    """Note what the worker asks the store."""
    now = time.perf_counter()
    if call.verb == "wait":
        seen["wait returned"] = now
    elif call.verb in ("claim", "settle") and _claimed(call):
        seen["claim sent"], seen["claim answered"] = now - call.seconds, now
    elif call.verb != "wait":
        others.append((call.verb, now - call.seconds, now))


async def trace(url: str) -> list[dict[str, Any]]:
    """The moments of each pickup, in ms since its call."""
    pickups: list[dict[str, Any]] = []
    app, _ = app_on(url)
    app.observe(watch)
    producer = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--produce", url, stdin=PIPE, stdout=PIPE
    )
    assert producer.stdin is not None
    assert producer.stdout is not None
    async with app.worker():
        for _ in range(JOBS):
            await asyncio.sleep(PAUSE)
            started.clear()
            seen.clear()
            others.clear()
            producer.stdin.write(b"go\n")
            line = await producer.stdout.readline()
            called, answered = map(float, line.split())
            await started.wait()
            seen["enqueue answered"] = answered
            pickup = {step: (seen.get(step, called) - called) * 1_000 for step in STEPS}
            pickups.append(pickup)
            pickup["number"] = len(pickups)
            pickup["others"] = [
                f"{verb} {(a - called) * 1_000:.1f} to {(b - called) * 1_000:.1f}" for verb, a, b in others
            ]
    producer.stdin.close()
    await producer.wait()
    await app.aclose()
    return pickups


def _claimed(call: Observation) -> bool:
    answer = call.answer
    claimed = getattr(answer, "claimed", answer)
    return bool(getattr(claimed, "leases", ()))


def _shown(pickup: dict[str, Any]) -> str:
    return "  ".join(f"{step} {pickup[step]:6.2f}" for step in STEPS)


def main() -> None:
    """Print the trace of each store that is named."""
    if sys.argv[1] == "--produce":
        produce(sys.argv[2])
        return
    with asyncio.Runner() as runner:  # one loop for all, since `started` belongs to a loop
        for name in sys.argv[1:]:
            show(name, runner)


def show(name: str, runner: asyncio.Runner) -> None:
    """Print the trace of a store."""
    with store(name) as url:
        pickups = runner.run(trace(url))
    ends = sorted(pickup["first line"] for pickup in pickups)
    print(f"\n{name}: p50 {ends[len(ends) // 2]:.2f} ms, p99 {ends[len(ends) * 99 // 100]:.2f} ms")
    print("median   " + _shown({s: statistics.median(p[s] for p in pickups) for s in STEPS}))
    for pickup in sorted(pickups, key=lambda one: one["first line"])[-5:]:
        print(f"no. {pickup['number']:4} " + _shown(pickup) + f"  beside it: {pickup['others']}")


if __name__ == "__main__":
    main()
