"""Plain calls and plain jobs: their code path for many alike answers as the model does, and is taken."""

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
from windlass.broker.redis.conversation import Send, Talk
from windlass.broker.redis.scripts import link, source
from windlass.broker.redis.store import Store
from windlass.broker.redis.url import read_url
from windlass.broker.redis.verbs import ScriptCall
from windlass.clock import ManualClock
from windlass.core.job import NewJob
from windlass.core.outcome import Outcome
from windlass.core.settings import Emit, QueueSettings
from windlass.core.take import Source, Take, TakeStatus
from windlass.core.units import HOUR, SECOND
from windlass.errors import StoreError

_T = TypeVar("_T")
PLAIN = {"priorities": (0,), "delays": (0,), "outcomes": (Outcome.DONE,)}
MIXED = {"results": (None, None, b"result"), "lanes": ("",)}
LANED = {"lanes": ("", "a", "b", "c")}


@pytest.mark.parametrize("emit", [Emit.NONE, Emit.FINAL, Emit.ALL])
@pytest.mark.parametrize("retention", [0, HOUR])
@pytest.mark.parametrize("wishes", [PLAIN, MIXED, LANED], ids=["plain", "mixed", "laned"])
def test_many_alike_are_answered_as_the_model_does(
    redis_server: Server,  # noqa: F811
    wishes: dict[str, Any],
    retention: int,
    emit: Emit,
) -> None:
    async def main() -> None:
        clock, options = ManualClock(), Options(events_kept=700)
        store = await RedisBroker.open(redis_server.url, clock=clock, options=new_namespace(options))
        both = Both([MemoryBroker(clock=clock, options=options), store], clock, random.Random(str(wishes)))
        for name, value in wishes.items():
            setattr(both, name, value)
        await both.start(QueueSettings(retention=retention, result_ttl=retention, emit=emit))
        steps = [both.enqueue, both.work, both.work, both.operate, both.sweep]
        for _ in range(25):
            await both.chance.choice(steps)()
            await both.compare()
        await store.close()

    asyncio.run(main())


_GENERAL = {
    "accept": ("function accept.all(group)", "function accept.all(group) error('the general code path')"),
    "handout": (
        "local function start(ask, j)",
        "local function start(ask, j) error('the general code path')",
    ),
    "leases": (
        "function leases.finish(j, ",
        "function leases.finish(...) error('the general code path') end local function unused(j, ",
    ),
}


@cache
def _without_general(verb: str) -> bytes:
    instead = {part: source("parts", part).replace(*change) for part, change in _GENERAL.items()}
    assert all(text != source("parts", part) for part, text in instead.items())
    return link(verb, instead=instead).encode()


class _PlainOnly(Store):
    """A store whose general code paths fail."""

    strict = False

    async def run(self, call: ScriptCall[_T]) -> _T:
        if not self.strict or call.script not in ("enqueue", "take", "claim", "settle"):
            return await super().run(call)
        return await self.on_this_loop().wire.hold(self._plain(call))

    def _plain(self, call: ScriptCall[_T]) -> Talk[_T]:
        said = next(self._talk(call))
        assert isinstance(said, Send)
        reply: Any = yield Send(((b"EVAL", _without_general(call.script), *said.commands[0][2:]),))
        if isinstance(reply, Exception):
            raise StoreError(str(reply))
        return call.read(reply)


def test_plain_jobs_take_no_general_code_path(redis_server: Server) -> None:  # noqa: F811
    async def main() -> None:
        clock, options = ManualClock(), Options()
        store = _PlainOnly(read_url(redis_server.url), new_namespace(options), clock)
        broker = RedisBroker(store, await store.durability())
        both = Both([MemoryBroker(clock=clock, options=options), broker], clock, random.Random(1))
        for name, value in PLAIN.items():
            setattr(both, name, value)
        await both.start(QueueSettings(retention=HOUR))
        store.strict = True
        for _ in range(40):
            await both.chance.choice([both.enqueue, both.work, both.work, both.sweep])()
            await both.compare()
        for nth in range(3):
            jobs = [[NewJob(id=job_id(90_000 + nth), task="t", queue="q")]]
            take = Take(source=Source("s"), expect=str(nth) if nth else None, then=str(nth + 1), groups=jobs)
            assert (await broker.take(take)).status is TakeStatus.TAKEN
        late = [[NewJob(id=job_id(99_999), task="t", queue="q", delay=SECOND)]]
        with pytest.raises(StoreError, match="the general code path"):
            await broker.enqueue(late)
        with pytest.raises(StoreError, match="the general code path"):
            await broker.take(Take(source=Source("s"), expect="3", then="4", groups=late))
        assert [offset.at for offset in await broker.offsets()] == ["3"]
        await broker.close()

    asyncio.run(main())
