"""How fast messages become jobs: what the programs for the message brokers share.

`BENCH_MESSAGES` makes them smaller.
"""

import asyncio
import os
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from windlass import Windlass
from windlass.pace import MachinePace
from windlass.worker.host import Machine
from windlass.worker.intakes import Intakes

MESSAGES = int(os.environ.get("BENCH_MESSAGES", "20000"))
ROUNDS = 3
_FILLER = "x" * 180


def body(number: int) -> bytes:
    """Of a message: some 200 bytes."""
    return b'{"n": %d, "text": "%s"}' % (number, _FILLER.encode())


def app_of(store: str, url: str) -> Any:
    """An app with an intake, in a namespace of its own."""
    namespace = f"b{uuid.uuid4().hex[:8]}"
    # A file has one namespace.
    app = Windlass(f"{store}-{namespace}" if store.startswith("sqlite") else store, namespace=namespace)

    @app.task
    def ship(n: int, text: str) -> None: ...

    app.intake(url, task=ship, name="orders", backlog=10 * MESSAGES)
    return app


async def bulk(store: str, url: str) -> float:
    """Jobs a second of plain bulk enqueue, in groups of 1,000."""
    app = app_of(store, url)
    ship = app.tasks["ship"]
    await app.broker()
    calls = [ship.call(number, _FILLER) for number in range(MESSAGES)]
    begun = time.perf_counter()
    await app.aenqueue_many(calls)
    took = time.perf_counter() - begun
    await app.aclose()
    return MESSAGES / took


async def taken(store: str, url: str) -> float:
    """Jobs a second of an intake, from its first to its last."""
    app = app_of(store, url)
    broker = await app.broker()

    async def jobs() -> int:
        return sum(row.count for row in (await broker.counts()).rows)

    intakes = Intakes(app, broker, declare=lambda: app.declare(broker), pace=MachinePace(), host=Machine())
    running = asyncio.create_task(intakes.run())
    while not (first := await jobs()):  # noqa: ASYNC110 - only the store knows
        await asyncio.sleep(0.005)
    begun = time.perf_counter()
    while await jobs() < MESSAGES:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.02)
    took = time.perf_counter() - begun
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await app.aclose()
    return (MESSAGES - first) / took


async def median(measure: Callable[[], Awaitable[float]]) -> float:
    """Of some rounds."""
    return statistics.median([await measure() for _ in range(ROUNDS)])


async def against(name: str, store: str, alone: float, url: Callable[[], Awaitable[str]]) -> None:
    """Print the rate of an intake on a store, and what it is of bulk enqueue and of a bare client."""
    enqueued = await median(lambda: bulk(store, "kafka://localhost/orders"))

    async def once() -> float:
        return await taken(store, await url())

    rate = await median(once)
    print(
        f"{store.partition(':')[0]}, {name}: {rate:,.0f}/s; {rate / enqueued:.2f} of bulk enqueue "
        f"({enqueued:,.0f}/s), {rate / alone:.2f} of the bare client",
        flush=True,
    )
