"""The Redis broker answers as the reference model does, whatever is called in whatever order."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.servers import Server, redis_binary, running

from windlass.broker.contract import Broker, Options
from windlass.broker.redis import RedisBroker
from windlass.clock import ManualClock
from windlass.conformance.machine import machine_for

_servers: list[Server] = []


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    # Hypothesis opens brokers where no fixture reaches.
    with running(redis_binary()) as server:
        _servers.append(server)
        yield
        _servers.clear()


async def _opened(clock: ManualClock, options: Options) -> Broker:
    return await RedisBroker.open(_servers[0].url, clock=clock, options=new_namespace(options))


_PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=True
)


class TestFew(machine_for(_opened).TestCase):
    settings = settings(_PATIENT, max_examples=10, stateful_step_count=25)


@pytest.mark.slow
class TestMany(machine_for(_opened).TestCase):
    settings = settings(_PATIENT, max_examples=300, stateful_step_count=60)
