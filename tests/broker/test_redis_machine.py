"""The Redis broker answers as the reference model does, whatever is called in whatever order."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.servers import Server, redis_binary, running

from windlass.broker.contract import Broker, Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.decoding import view
from windlass.broker.redis.records import pack, read_head
from windlass.broker.redis.verbs import Call
from windlass.clock import ManualClock
from windlass.conformance.machine import machine_for
from windlass.core.query import FIRST_PAGE, JobQuery, Page
from windlass.core.units import Cursor

_servers: list[Server] = []


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    # Hypothesis opens brokers where no fixture reaches.
    with running(redis_binary()) as server:
        _servers.append(server)
        yield
        _servers.clear()


class _Ordered(RedisBroker):
    """Lists as the model does, newest first: the machine compares pages in their order.

    That pages in the order of the store cover everything is the suite's to test.
    """

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        rows = await self._store.run(Call("list", (pack(["0", 1_000, []]),), lambda raw: raw[1:]))
        heads = {rows[at]: rows[at + 1] for at in range(0, len(rows), 2)}
        newest = sorted(heads, key=lambda job: -read_head(heads[job]).arrival)
        found = [shown for job in newest if query.matches(shown := view(job, heads[job]))]
        start = int(after or 0)
        more = len(found) > start + limit
        return Page(
            jobs=tuple(found[start : start + limit]), cursor=Cursor(str(start + limit)) if more else None
        )


async def _opened(clock: ManualClock, options: Options) -> Broker:
    return await _Ordered.open(_servers[0].url, clock=clock, options=new_namespace(options))


_PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=True
)


class TestFew(machine_for(_opened).TestCase):
    settings = settings(_PATIENT, max_examples=10, stateful_step_count=25)


@pytest.mark.slow
class TestMany(machine_for(_opened).TestCase):
    settings = settings(_PATIENT, max_examples=300, stateful_step_count=60)
