"""How fast messages of RabbitMQ become jobs: `python bench/rabbitmq_numbers.py STORE...`, with URLs of empty
stores.

A RabbitMQ of its own is started (one node). For each store the rate of an intake from a classic and from a
quorum queue is told as a share of that of plain bulk enqueue (groups of 1,000), and of that of a bare
consumer which acknowledges and makes nothing of the messages. Medians of three rounds. `BENCH_MESSAGES` makes
it smaller.
"""

import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from typing import Any

import aiormq
from intake_rates import MESSAGES, against, body, median

from windlass.bridges.addresses import address_of, open_sink
from windlass.bridges.message import Outgoing
from windlass.verify.brokers.rabbitmq import Rabbit

BATCH, PREFETCH = 500, 1_000
"""As an intake has them."""


async def _filled(server: Rabbit, kind: str) -> str:
    """A queue with messages; its name."""
    name = f"b{uuid.uuid4().hex[:10]}"
    connection = await aiormq.connect(server.url())
    channel = await connection.channel()
    await channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    await connection.close()
    sink = await open_sink(address_of(server.url(name)))
    for first in range(0, MESSAGES, BATCH):
        numbers = range(first, min(first + BATCH, MESSAGES))
        await sink.publish([Outgoing(id=str(number), body=body(number)) for number in numbers])
    await sink.close()
    return name


async def _bare(server: Rabbit, kind: str) -> float:
    """Messages a second of a consumer that acknowledges 500 at a time, from its first to its last."""
    name = await _filled(server, kind)
    connection = await aiormq.connect(server.url())
    channel = await connection.channel()
    await channel.basic_qos(prefetch_count=PREFETCH)
    all_there = asyncio.Event()
    begun = count = 0.0

    async def arrived(message: Any) -> None:
        nonlocal begun, count
        begun, count = begun or time.perf_counter(), count + 1
        if count % BATCH == 0 or count == MESSAGES:
            await channel.basic_ack(message.delivery_tag, multiple=True)
        if count == MESSAGES:
            all_there.set()

    await channel.basic_consume(name, arrived)
    await all_there.wait()
    took = time.perf_counter() - begun
    await connection.close()
    return MESSAGES / took


async def table(server: Rabbit, stores: Sequence[str]) -> None:
    """Print all."""
    for kind in ("classic", "quorum"):

        async def consumed(kind: str = kind) -> float:
            return await _bare(server, kind)

        async def url(kind: str = kind) -> str:
            return server.url(await _filled(server, kind))

        alone = await median(consumed)
        print(f"bare consumer, {kind} queue: {alone:,.0f}/s", flush=True)
        for store in stores:
            await against(f"{kind} queue", store, alone, url)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        server = Rabbit()
        server.start()
        try:
            asyncio.run(table(server, sys.argv[1:] or [f"sqlite:///{folder}/bench.db"]))
        finally:
            server.close()


if __name__ == "__main__":
    main()
