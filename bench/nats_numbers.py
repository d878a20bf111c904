"""How fast messages of NATS become jobs: `python bench/nats_numbers.py STORE...`, with URLs of empty stores.

A NATS of its own is started (one node, sync_interval: always). For each store the rate of an intake from a
stream and from a work queue is told as a share of that of plain bulk enqueue (groups of 1,000), and of that
of a bare client which makes nothing of them. Medians of three rounds. `BENCH_MESSAGES` makes it smaller.
"""

import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import nats
from intake_rates import MESSAGES, against, body, median

from windlass.bridges.addresses import address_of, open_sink
from windlass.bridges.message import Outgoing
from windlass.verify.brokers.nats import OwnNats
from windlass.verify.guardian import Guardian
from windlass.verify.processes import Starter


async def _filled(server: OwnNats, retention: str) -> str:
    """A stream with messages; its name."""
    name = f"B{uuid.uuid4().hex[:10]}"
    client = await nats.connect(server.url())
    await client.jetstream().add_stream(name=name, subjects=[f"{name}.a"], retention=retention)
    await client.close()
    sink = await open_sink(address_of(f"{server.url()}/{name}"))
    for first in range(0, MESSAGES, 1_000):
        await sink.publish(
            [Outgoing(id=str(number), body=body(number)) for number in range(first, first + 1_000)]
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


async def _table(server: OwnNats, stores: Sequence[str]) -> None:
    for retention in ("limits", "workqueue"):

        async def bare(retention: str = retention) -> float:
            return await _bare(server, await _filled(server, retention), retention)

        async def url(retention: str = retention) -> str:
            return f"{server.url()}/{await _filled(server, retention)}"

        alone = await median(bare)
        print(f"bare client, {retention}: {alone:,.0f}/s", flush=True)
        for store in stores:
            await against(retention, store, alone, url)


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
