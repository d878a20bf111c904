"""Servers of message brokers that tests of bridges share."""

from collections.abc import Iterator

import pytest
from tests.bridges.kafka_ground import Kafka
from tests.bridges.servers import without

from windlass.verify.brokers.places import Missing
from windlass.verify.guardian import Guardian
from windlass.verify.processes import Starter


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Starts servers; whatever is left of them is ended with the tests."""
    guardian = Guardian()
    yield Starter(tmp_path_factory.mktemp("servers"), guardian)
    guardian.close()


@pytest.fixture(scope="session")
def kafka(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker for a whole process of pytest: each test makes topics of its own."""
    try:
        running = Kafka(starter, tmp_path_factory.mktemp("kafka"))
    except Missing as missing:
        without(missing)
    try:
        running.broker.start()
        yield running
    finally:
        running.close()
