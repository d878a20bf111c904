"""The SQLite broker keeps the contract."""

from pathlib import Path

import pytest
from tests.broker.sqlite.files import new_file

from windlass.broker.contract import Broker, Options
from windlass.broker.sqlite import SqliteBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403


@pytest.fixture
def open_broker(tmp_path: Path) -> OpenBroker:
    async def opened(clock: ManualClock, options: Options) -> Broker:
        return SqliteBroker(new_file(tmp_path, options.namespace), clock=clock, options=options)

    return opened
