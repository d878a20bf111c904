"""The Redis broker keeps the contract on whichever redis-server the machine has."""

from collections.abc import Iterator

import pytest
from tests.broker.redis.fixtures import opener
from tests.broker.redis.servers import Server, machine_binary, running

from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def other_server() -> Iterator[Server]:
    with running(machine_binary()) as server:
        yield server


@pytest.fixture
def open_broker(other_server: Server) -> OpenBroker:
    return opener(other_server)
