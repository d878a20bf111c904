"""Fixtures of the tests of this store: one server per test process, a namespace per test."""

import itertools
import os
from collections.abc import Iterator

import msgspec
import pytest
from tests.broker.redis.servers import Server, redis_binary, running, valkey_binary

from windlass.broker.contract import Broker, Options
from windlass.broker.redis import RedisBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.core.settings import Retention

_namespaces = itertools.count()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """Redis 6.2."""
    with running(redis_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server]:
    """Valkey 9."""
    with running(valkey_binary()) as server:
        yield server


def new_namespace(options: Options) -> Options:
    """Options for a namespace that no other test uses, which keeps jobs for as long as the suite expects."""
    return msgspec.structs.replace(
        options,
        namespace=f"t{os.getpid()}-{next(_namespaces)}",
        retention=options.retention or Retention(),
    )


def opener(server: Server) -> OpenBroker:
    """Opens brokers, each on a namespace of its own."""

    async def opened(clock: ManualClock, options: Options) -> Broker:
        return await RedisBroker.open(server.url, clock=clock, options=new_namespace(options))

    return opened
