"""Opens topics of Kafka: `kafka://host:9092/topic`, `kafkas://` with TLS."""

from windlass.bridges.addresses import Address
from windlass.bridges.kafka import sink, source


async def open_source(address: Address) -> source.KafkaSource:
    """The partitions of a topic."""
    return await source.opened(address)


async def open_sink(address: Address) -> sink.KafkaSink:
    """A topic to publish to."""
    return await sink.opened(address)
