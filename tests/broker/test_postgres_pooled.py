"""The PostgreSQL broker keeps the contract behind pgbouncer in transaction mode."""

from collections.abc import Iterator

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.postgres.poolers import Pooler

from windlass.broker.contract import Broker, Options
from windlass.broker.postgres import read_url
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403

__all__ = ["namespaces"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pooled(namespaces: Namespaces) -> Iterator[Namespaces]:
    pooler = Pooler(namespaces.server)
    try:
        yield Namespaces(namespaces.server, read_url(pooler.dsn), "pooled")
    finally:
        pooler.stop()


@pytest.fixture
def open_broker(pooled: Namespaces) -> OpenBroker:
    async def opened(clock: ManualClock, options: Options) -> Broker:
        return await pooled.open(clock, options)

    return opened
