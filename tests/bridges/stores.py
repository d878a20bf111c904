"""Each store in turn, on a clock that a test drives."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.redis.fixtures import opener, redis_server
from tests.broker.sqlite.files import new_file

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.sqlite import SqliteBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker

__all__ = ["namespaces", "open_broker", "redis_server"]


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def open_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenBroker]:
    """What the fixture `store` is opened with: a test that asks for it runs on each store."""
    match request.param:
        case "redis":
            yield opener(request.getfixturevalue("redis_server"))
        case "postgres":
            found: Namespaces = request.getfixturevalue("namespaces")

            async def on_postgres(clock: ManualClock, options: Options) -> Broker:
                return await found.open(clock, options)

            yield on_postgres
        case "sqlite":

            async def on_sqlite(clock: ManualClock, options: Options) -> Broker:
                return SqliteBroker(new_file(tmp_path, options.namespace), clock=clock, options=options)

            yield on_sqlite
        case _:

            async def in_memory(clock: ManualClock, options: Options) -> Broker:
                return MemoryBroker(clock=clock, options=options)

            yield in_memory
