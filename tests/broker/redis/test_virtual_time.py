"""Virtual time starts anew before it grows too large, and nobody can tell."""

import asyncio
from typing import Any, TypeVar

from tests.broker.redis.fixtures import new_namespace, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.scenario import job_id
from tests.broker.redis.servers import Server

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.conversation import Send, Talk
from windlass.broker.redis.scripts import link, source
from windlass.broker.redis.store import Store
from windlass.broker.redis.url import read_url
from windlass.broker.redis.verbs import ScriptCall
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, LaneSettings, QueueSettings, Subject
from windlass.errors import StoreError

_T = TypeVar("_T")
_ORDER = source("parts", "order")


class _Short(Store):
    """A store whose rings start anew after every few claims."""

    def _talk(self, call: ScriptCall[_T]) -> Talk[_T]:
        return self._altered(super()._talk(call), call)

    def _altered(self, talk: Talk[_T], call: ScriptCall[_T]) -> Talk[_T]:
        said = next(talk)
        assert isinstance(said, Send)
        order = _ORDER.replace("$REBASE_AT", "2000000")
        assert order != _ORDER
        text = link(call.script, instead={"order": order}).encode()
        reply: Any = yield Send(((b"EVAL", text, *said.commands[0][2:]),))
        if isinstance(reply, Exception):
            raise StoreError(str(reply))
        return call.read(reply)


def test_a_ring_that_starts_anew_keeps_its_order(redis_server: Server) -> None:  # noqa: F811
    async def order(store: Store) -> list[str]:
        broker = RedisBroker(store, await store.durability())
        queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="a")
        heavy = Declaration(subject=Subject(Kind.LANE, "q", "a"), body=LaneSettings(weight=3), app="a")
        await broker.declare([queue, heavy])
        await broker.beat([Beat(session="s", open=SessionInfo())])
        lanes = "abbacaabcaacbbabcaabbcacba" * 2
        jobs = [NewJob(id=job_id(1 + n), task="t", queue="q", lane=lane) for n, lane in enumerate(lanes)]
        await broker.enqueue([jobs])
        found: list[str] = []
        for seq in range(1, 30):
            ask = Ask(session="s", seq=seq, queues=("q",), slots=2, limit=2)
            found += [lease.job for lease in (await broker.claim(ask)).leases]
        await broker.close()
        assert len(found) == len(jobs)
        return found

    async def main() -> None:
        place = read_url(redis_server.url)
        plain, short = (kind(place, new_namespace(Options()), None) for kind in (Store, _Short))
        assert await order(short) == await order(plain)

    asyncio.run(main())
