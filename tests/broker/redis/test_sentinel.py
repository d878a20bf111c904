"""A namespace behind Sentinel: the primary is found, and found again after a failover."""

import asyncio

import pytest
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.sentinel import trio
from tests.broker.redis.servers import redis_binary
from tests.broker.redis.test_faults import ask, done, jobs, statuses

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.core.job import Status
from windlass.core.outcome import Verdict
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject

pytestmark = pytest.mark.slow


def test_a_failover_is_followed() -> None:
    async def main(url: str) -> None:
        broker = await RedisBroker.open(f"{url}?wait=1&timeout=30", options=new_namespace(Options()))
        await broker.declare([Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="a")])
        await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
        assert statuses(await broker.enqueue([jobs(1, 5)])) == {Status.CREATED}
        held = (await broker.claim(ask(1, 2))).leases
        # The replica has it all: this enqueue was confirmed by it.
        assert statuses(broker.blocking.enqueue([jobs(6, 1)])) == {Status.CREATED}
        await asyncio.to_thread(whole.fail_over)
        assert {a.verdict for a in (await broker.settle(done(held))).answers} == {Verdict.APPLIED}
        assert len((await broker.claim(ask(2, 10))).leases) == 4
        await broker.close()

    with trio(redis_binary()) as whole:
        asyncio.run(main(whole.url))
