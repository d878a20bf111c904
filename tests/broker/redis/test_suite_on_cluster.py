"""The Redis broker keeps the contract on a cluster."""

from collections.abc import Iterator

import pytest
from tests.broker.redis.cluster import Cluster, cluster
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.servers import redis_binary

from windlass.broker.contract import Broker, Options
from windlass.broker.redis import RedisBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.conformance.suite import *  # noqa: F403

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    with cluster(redis_binary()) as whole:
        yield whole


@pytest.fixture
def open_broker(nodes: Cluster) -> OpenBroker:
    async def opened(clock: ManualClock, options: Options) -> Broker:
        return await RedisBroker.open(nodes.url, clock=clock, options=new_namespace(options))

    return opened
