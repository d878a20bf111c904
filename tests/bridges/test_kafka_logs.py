"""Partitions of Kafka are logs as intakes need them."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.bridges.kafka_ground import Kafka, KafkaLogGround

from windlass.conformance.bridges.ground import LogGround
from windlass.conformance.bridges.logs import *  # noqa: F403


@pytest.fixture
def logs(kafka: Kafka) -> Iterator[LogGround]:
    with asyncio.Runner() as runner:
        yield KafkaLogGround(runner, kafka)
        kafka.network.clear()
