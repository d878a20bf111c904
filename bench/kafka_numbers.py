"""How fast messages of Kafka become jobs: `python bench/kafka_numbers.py STORE...`, URLs of empty stores.

A Kafka of its own is started (one broker, topics of one and of four partitions). For each store the rate of
an intake is told as a share of that of plain bulk enqueue (groups of 1,000), and of that of a bare consumer
which makes nothing of the messages. Medians of three rounds. `BENCH_MESSAGES` makes it smaller.
"""

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from intake_rates import MESSAGES, against, body, median

from windlass.verify.brokers.kafka import OwnKafka
from windlass.verify.guardian import Guardian
from windlass.verify.processes import Starter

_numbers = itertools.count(1)


def filled(kafka: OwnKafka, partitions: int) -> str:
    """A topic with messages; its name."""
    name = f"bench{next(_numbers)}"
    kafka.make_topic(name, partitions)
    producer: Any = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "linger.ms": 20})
    for number in range(MESSAGES):
        producer.produce(name, body(number), partition=number % partitions)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    producer.close()
    return name


def bare(kafka: OwnKafka, partitions: int) -> float:
    """Messages a second of a consumer, from its first to its last."""
    name = filled(kafka, partitions)
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "bench", "log_level": 0}
    consumer: Any = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, number, OFFSET_BEGINNING) for number in range(partitions)])
    first = len(consumer.consume(1, 30))
    begun, count = time.perf_counter(), first
    while count < MESSAGES:
        count += len(consumer.consume(1_000, 0.1))
    took = time.perf_counter() - begun
    consumer.close()
    return (MESSAGES - first) / took


async def table(kafka: OwnKafka, stores: Sequence[str]) -> None:
    """Print all."""
    for partitions in (1, 4):
        title = f"{partitions} partition{'s' if partitions > 1 else ''}"

        async def consumed(partitions: int = partitions) -> float:
            return await asyncio.to_thread(bare, kafka, partitions)

        async def url(partitions: int = partitions) -> str:
            return f"{kafka.url()}/{await asyncio.to_thread(filled, kafka, partitions)}"

        alone = await median(consumed)
        print(f"bare consumer, {title}: {alone:,.0f}/s", flush=True)
        for store in stores:
            await against(title, store, alone, url)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder, guardian = Path(name), Guardian()
        kafka = OwnKafka(Starter(folder / "logs", guardian), folder / "kafka")
        kafka.start()
        stores = sys.argv[1:] or [f"sqlite:///{folder}/bench.db"]
        try:
            asyncio.run(table(kafka, stores))
        finally:
            kafka.close()
            guardian.close()


if __name__ == "__main__":
    main()
