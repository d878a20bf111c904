"""The Redis broker answers as the reference model does on Valkey, and on the machine's own redis-server."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.servers import Server, machine_binary, running, valkey_binary
from tests.broker.test_redis_machine import _PATIENT

from windlass.broker.contract import Broker, Options
from windlass.broker.redis import RedisBroker
from windlass.clock import ManualClock
from windlass.conformance.machine import machine_for

pytestmark = pytest.mark.slow
_servers: dict[str, Server] = {}


@pytest.fixture(scope="module")
def _valkey() -> Iterator[None]:
    with running(valkey_binary()) as server:
        _servers["valkey"] = server
        yield


@pytest.fixture(scope="module")
def _other() -> Iterator[None]:
    with running(machine_binary()) as server:
        _servers["machine"] = server
        yield


async def _on_valkey(clock: ManualClock, options: Options) -> Broker:
    return await RedisBroker.open(_servers["valkey"].url, clock=clock, options=new_namespace(options))


async def _on_the_machines_own(clock: ManualClock, options: Options) -> Broker:
    return await RedisBroker.open(_servers["machine"].url, clock=clock, options=new_namespace(options))


@pytest.mark.usefixtures("_valkey")
class TestValkey(machine_for(_on_valkey).TestCase):
    settings = settings(_PATIENT, max_examples=100, stateful_step_count=60)


@pytest.mark.usefixtures("_other")
class TestTheMachinesOwn(machine_for(_on_the_machines_own).TestCase):
    settings = settings(_PATIENT, max_examples=100, stateful_step_count=60)
