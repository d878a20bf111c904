"""The Redis broker keeps the contract, on Redis 6.2."""

import pytest
from tests.broker.redis.fixtures import opener, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.servers import Server

from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403


@pytest.fixture
def open_broker(redis_server: Server) -> OpenBroker:  # noqa: F811
    return opener(redis_server)
