"""How fast messages of NATS become jobs: `python bench/nats_numbers.py STORE...`, with URLs of empty stores.

A NATS of its own is started (one node, sync_interval: always). For each store the rate of an intake from a
stream and from a work queue is told as a share of that of plain bulk enqueue (groups of 1,000), and of that
of a bare client which makes nothing of them. Medians of three rounds. `BENCH_MESSAGES` makes it smaller.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import nats

from windlass import Windlass
from windlass.bridges.addresses import address_of, open_sink
from windlass.bridges.message import Outgoing
from windlass.pace import MachinePace
from windlass.verify.brokers.nats import OwnNats
from windlass.verify.guardian import Guardian
from windlass.verify.processes import Starter
from windlass.worker.host import Machine
from windlass.worker.intakes import Intakes

MESSAGES = int(os.environ.get("BENCH_MESSAGES", "20000"))
ROUNDS = 3
_FILLER = "x" * 180
"""A body of some 200 bytes."""


async def _filled(server: OwnNats, retention: str) -> str:
    """A stream with messages; its name."""
    name = f"B{uuid.uuid4().hex[:10]}"
    client = await nats.connect(server.url())
    await client.jetstream().add_stream(name=name, subjects=[f"{name}.a"], retention=retention)
    await client.close()
    sink = await open_sink(address_of(f"{server.url()}/{name}"))
    for first in range(0, MESSAGES, 1_000):
        await sink.publish(
            [
                Outgoing(id=str(number), body=b'{"n": %d, "text": "%s"}' % (number, _FILLER.encode()))
                for number in range(first, first + 1_000)
            ]
        )
    await sink.close()
    return name


async def _bare(server: OwnNats, stream: str, retention: str) -> float:
    """A client of NATS that reads all, and acknowledges if it has to."""
    client = await nats.connect(server.url())
    js = client.jetstream()
    work = retention == "workqueue"
    policy = {"ack_policy": "explicit" if work else "none", "max_ack_pending": 20_000 if work else None}
    await js.add_consumer(stream, durable_name="bare", **policy)
    reader = await js.pull_subscribe_bind(stream=stream, durable="bare")
    begun, count = time.perf_counter(), 0
    while count < MESSAGES:
        messages = await reader.fetch(500 if work else 1_000, timeout=5)
        count += len(messages)
        if work:
            for message in messages:
                await message.ack()
            await client.flush()
    took = time.perf_counter() - begun
    await client.close()
    return MESSAGES / took


def _app(store: str, url: str) -> Any:
    namespace = f"b{uuid.uuid4().hex[:8]}"
    # A file has one namespace.
    app = Windlass(f"{store}-{namespace}" if store.startswith("sqlite") else store, namespace=namespace)

    @app.task
    def ship(n: int, text: str) -> None: ...

    app.intake(url, task=ship, name="orders", backlog=10 * MESSAGES)
    return app


async def _bulk(store: str) -> float:
    """Plain bulk enqueue."""
    app = _app(store, "nats://localhost/S")
    ship = app.tasks["ship"]
    await app.broker()
    calls = [ship.call(number, _FILLER) for number in range(MESSAGES)]
    begun = time.perf_counter()
    await app.aenqueue_many(calls)
    took = time.perf_counter() - begun
    await app.aclose()
    return MESSAGES / took


async def _intake(server: OwnNats, store: str, retention: str) -> float:
    """An intake, from its first job to its last."""
    stream = await _filled(server, retention)
    app = _app(store, f"{server.url()}/{stream}")
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


async def _median(measure: Callable[[], Awaitable[float]]) -> float:
    return statistics.median([await measure() for _ in range(ROUNDS)])


async def _table(server: OwnNats, stores: Sequence[str]) -> None:
    for retention in ("limits", "workqueue"):

        async def bare(retention: str = retention) -> float:
            return await _bare(server, await _filled(server, retention), retention)

        alone = await _median(bare)
        print(f"bare client, {retention}: {alone:,.0f}/s", flush=True)
        for store in stores:
            bulk = await _median(lambda store=store: _bulk(store))
            taken = await _median(lambda store=store, retention=retention: _intake(server, store, retention))
            print(
                f"{store.partition(':')[0]}, {retention}: {taken:,.0f}/s; {taken / bulk:.2f} of bulk enqueue "
                f"({bulk:,.0f}/s), {taken / alone:.2f} of the bare client",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder, guardian = Path(name), Guardian()
        server = OwnNats(Starter(folder / "logs", guardian), folder / "nats")
        server.start()
        stores = sys.argv[1:] or [f"sqlite:///{folder}/bench.db"]
        try:
            asyncio.run(_table(server, stores))
        finally:
            server.close()
            guardian.close()


if __name__ == "__main__":
    main()
