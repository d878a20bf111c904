"""The Redis broker keeps the contract on Valkey 9, too."""

import pytest
from tests.broker.redis.fixtures import opener, valkey_server  # noqa: F401 - a fixture
from tests.broker.redis.servers import Server

from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403

pytestmark = pytest.mark.slow


@pytest.fixture
def open_broker(valkey_server: Server) -> OpenBroker:  # noqa: F811
    return opener(valkey_server)
