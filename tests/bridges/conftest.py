"""Servers of message brokers that tests of bridges share. A fixture that is imported into several modules
would start its server for each of them.
"""

from collections.abc import Iterator

import pytest
from tests.bridges.kafka_ground import kafka, own_kafka
from tests.bridges.nats_server import nats_server
from tests.bridges.rabbits import rabbit
from tests.bridges.sqs_server import sqs

from windlass.verify.guardian import Guardian
from windlass.verify.processes import Starter

__all__ = ["kafka", "nats_server", "own_kafka", "rabbit", "sqs", "starter"]


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Starts servers; whatever is left of them is ended with the tests."""
    guardian = Guardian()
    yield Starter(tmp_path_factory.mktemp("servers"), guardian)
    guardian.close()
