"""The short ways: taken where everything is plain, and with the answers of the model.

The scripts run without their long ways here, so that a call which takes one fails.
"""

import asyncio
import random
from functools import cache
from typing import Any, TypeVar

import pytest
from tests.broker.redis.both import Both
from tests.broker.redis.fixtures import new_namespace, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.scenario import job_id
from tests.broker.redis.servers import Server

from windlass.broker.contract import Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.conversation import Say, Talk
from windlass.broker.redis.scripts import assemble
from windlass.broker.redis.store import Store
from windlass.broker.redis.url import read_url
from windlass.broker.redis.verbs import Call
from windlass.clock import ManualClock
from windlass.core.job import NewJob
from windlass.core.outcome import Outcome
from windlass.core.settings import Emit, QueueSettings
from windlass.core.units import SECOND
from windlass.errors import StoreError

_T = TypeVar("_T")
SHORT = ("enqueue", "claim", "settle")
LANES = tuple(f"lane {number}" for number in range(60))


@cache
def _without(name: str, way: str) -> bytes:
    return assemble(name, instead={f"{name}_{way}": "error('the long way')"}).encode()


class _ShortOnly(Store):
    strict = False
    way = "any"
    """Which is not there."""

    async def run(self, call: Call[_T]) -> _T:
        if not self.strict or call.script not in SHORT:
            return await super().run(call)
        return await self.side().wire.hold(self._short(call))

    def _short(self, call: Call[_T]) -> Talk[_T]:
        said = next(self._talk(call))
        assert isinstance(said, Say)
        reply: Any = yield Say(((b"EVAL", _without(call.script, self.way), *said.commands[0][2:]),))
        if isinstance(reply, Exception):
            raise StoreError(str(reply))
        return call.read(reply)


@pytest.mark.parametrize("emit", [Emit.NONE, Emit.FINAL])
@pytest.mark.parametrize("results", [(None,), (None, b"", b"result")])
@pytest.mark.parametrize("retention", [0, 3600 * SECOND])
@pytest.mark.parametrize(
    ("lanes", "most"),
    [(("",), None), (LANES, None), (LANES, 1), (LANES, 4), (LANES[:5], 3), (LANES[:2], None)],
)
def test_short_ways_answer_as_the_model_does(
    redis_server: Server,  # noqa: F811
    lanes: tuple[str, ...],
    most: int | None,
    retention: int,
    results: tuple[bytes | None, ...],
    emit: Emit,
) -> None:
    async def main() -> None:
        clock, options = ManualClock(), Options(events_kept=700)
        store = _ShortOnly(read_url(redis_server.url), new_namespace(options), clock)
        broker = RedisBroker(store, await store.durability())
        both = Both([MemoryBroker(clock=clock, options=options), broker], clock, random.Random(str(lanes)))
        both.lanes, both.priorities, both.delays, both.results = lanes, (0,), (0,), results
        both.outcomes = (Outcome.DONE,)
        if most is None:
            settings = QueueSettings(retention=retention, result_ttl=retention, emit=emit)
        else:
            settings = QueueSettings(
                retention=retention, result_ttl=retention, emit=emit, lane_concurrency=most
            )
        await both.start(settings)
        await both.enqueue()  # the first lane of a queue takes the long way
        store.strict = True
        steps = [both.enqueue, both.work, both.work, both.sweep]
        for _ in range(30):
            await both.chance.choice(steps)()
            await both.compare()
        await broker.close()

    asyncio.run(main())


@pytest.mark.parametrize("priority", [0, 5])
def test_one_plain_job_takes_the_shortest_way(redis_server: Server, priority: int) -> None:  # noqa: F811
    """Over the edges of chunks, of 64 jobs, and of a queue that was emptied meanwhile."""

    async def main() -> None:
        clock, options = ManualClock(), Options()
        store = _ShortOnly(read_url(redis_server.url), new_namespace(options), clock)
        store.way = "many"
        broker = RedisBroker(store, await store.durability())
        both = Both([MemoryBroker(clock=clock, options=options), broker], clock, random.Random(priority))
        both.priorities, both.delays, both.outcomes = (priority,), (0,), (Outcome.DONE,)
        both.most = 1
        await both.start(QueueSettings())
        for steps in (200, 70):
            store.strict = True
            for _ in range(steps):
                await both.enqueue()
            await both.compare()
            store.strict = False  # claims have no such way
            for _ in range(20):
                await both.work()
            await both.compare()
        await broker.close()

    asyncio.run(main())


def test_what_is_not_plain_would_take_the_long_way(redis_server: Server) -> None:  # noqa: F811
    """That the test above can fail."""

    async def main() -> None:
        store = _ShortOnly(read_url(redis_server.url), new_namespace(Options()), ManualClock())
        broker = RedisBroker(store, await store.durability())
        store.strict = True
        try:
            with pytest.raises(StoreError, match="the long way"):
                await broker.enqueue([[NewJob(id=job_id(1), task="t", queue="q", delay=SECOND)]])
        finally:
            await broker.close()

    asyncio.run(main())
