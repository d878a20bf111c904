"""Message brokers that tests share."""

from collections.abc import Iterator

import pytest
from tests.bridges.kafka_ground import Kafka, running_kafka
from tests.bridges.servers import without

from windlass.verify.brokers.places import Missing


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One broker for a whole process of pytest: each test makes topics of its own."""
    try:
        with running_kafka() as running:
            yield running
    except Missing as missing:
        without(missing)
