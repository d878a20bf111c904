"""What idle sessions cost the server: `python fleet.py MOST`, with $BENCH_SERVER its process.

Sessions are real to the store: each is opened, asks for work once a second and is beaten for every 5 s, two
in a call as a supervisor of two processes does; the fleet sweeps four times a second. They share this process
and its connections, so what connections cost is not in it. Where this process cannot keep up, `kept_percent`
says so; the cost is per session-second that was really asked for.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Sequence

from bench_peer import URL
from sidebyside.processes import cpu_of

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.core.lease import Ask
from windlass.core.session import Beat, SessionInfo
from windlass.errors import StoreUnavailable

BEAT, POLL, SWEEP = 5.0, 1.0, 0.25
SETTLES, LASTS = 6.0, 15.0
SERVER = int(os.environ["BENCH_SERVER"])
asked = [0]  # claims that were answered


async def supervise(broker: Broker, names: Sequence[str]) -> None:
    """One supervisor: its heart, and the fetchers of its children."""
    await asyncio.sleep(random.random() * BEAT)
    await broker.beat([Beat(session=name, open=SessionInfo(host="fleet", slots=16)) for name in names])
    async with asyncio.TaskGroup() as children:
        for name in names:
            children.create_task(fetch(broker, name))
        while True:
            await asyncio.sleep(BEAT)
            with contextlib.suppress(StoreUnavailable):
                await broker.beat([Beat(session=name) for name in names])


async def fetch(broker: Broker, name: str) -> None:
    """Ask, and be told that there is nothing."""
    seq = 0
    while True:
        seq += 1
        with contextlib.suppress(StoreUnavailable):
            await broker.claim(Ask(session=name, seq=seq, queues=("default",), slots=16, limit=32))
            asked[0] += 1
        await asyncio.sleep(POLL)


async def sweep(broker: Broker) -> None:
    """The janitor of the whole fleet."""
    while True:
        await broker.sweep(limit=1000)
        await asyncio.sleep(SWEEP)


async def measured(broker: Broker, count: int) -> dict[str, float]:
    """The server's time while so many sessions idle."""
    pairs = [(f"{count}-{number}-a", f"{count}-{number}-b") for number in range(max(1, count // 2))]
    jobs = [asyncio.create_task(supervise(broker, names)) for names in pairs]
    jobs.append(asyncio.create_task(sweep(broker)))
    await asyncio.sleep(SETTLES)
    before, began, asks = cpu_of(SERVER), time.monotonic(), asked[0]
    await asyncio.sleep(LASTS)
    spent, passed, asks = cpu_of(SERVER) - before, time.monotonic() - began, asked[0] - asks
    for job in jobs:
        job.cancel()
    for job in jobs:
        with contextlib.suppress(asyncio.CancelledError):
            await job
    return {
        "server_percent": spent / passed * 100,
        "us_per_session_second": spent / max(1, asks) * 1e6,
        "kept_percent": asks / passed / count * 100,
    }


async def main() -> None:
    """Print every point."""
    app = Windlass(URL)
    app.queue("default")
    broker = await app.broker()
    counts = [count for count in (2, 10, 100, 1000, 2000) if count <= int(sys.argv[1])]
    points = [{"at": count, **await measured(broker, count)} for count in counts]
    print(json.dumps(points), flush=True)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
