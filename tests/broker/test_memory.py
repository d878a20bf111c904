"""The reference model keeps the contract."""

import pytest

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403


@pytest.fixture
def open_broker() -> OpenBroker:
    async def opened(clock: ManualClock, options: Options) -> Broker:
        return MemoryBroker(clock=clock, options=options)

    return opened
