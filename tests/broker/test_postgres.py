"""The PostgreSQL broker keeps the contract."""

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Broker, Options
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403

__all__ = ["namespaces"]


@pytest.fixture
def open_broker(namespaces: Namespaces) -> OpenBroker:
    async def opened(clock: ManualClock, options: Options) -> Broker:
        return await namespaces.open(clock, options)

    return opened
