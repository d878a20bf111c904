"""Topics of Kafka are sinks as relays and front doors need them."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.bridges.kafka_ground import Kafka, KafkaSinkGround

from windlass.conformance.bridges.ground import SinkGround
from windlass.conformance.bridges.sinks import *  # noqa: F403


@pytest.fixture
def sinks(kafka: Kafka) -> Iterator[SinkGround]:
    with asyncio.Runner() as runner:
        yield KafkaSinkGround(runner, kafka)
        kafka.network.clear()
