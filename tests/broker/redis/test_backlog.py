"""A backlog of many chunks is handed out as by the model, in the same order, whatever leaves from the middle.

The state machine has few jobs, and a chunk has 64.
"""

import asyncio
import itertools
import random

import pytest
from tests.broker.redis.fixtures import new_namespace, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.scenario import job_id
from tests.broker.redis.servers import Server

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.redis import RedisBroker
from windlass.clock import ManualClock
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Edit, Target
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND

OUTCOMES = [Outcome.DONE] * 12 + [Outcome.RELEASE, Outcome.RETRY, Outcome.SNOOZE, Outcome.DEAD]


class _Both:
    """The model and the store, called alike."""

    def __init__(self, brokers: list[Broker], clock: ManualClock, seed: int) -> None:
        self.brokers = brokers
        self.clock = clock
        self.chance = random.Random(seed)
        self.numbers = itertools.count(1)
        self.held: list[Lease] = []
        self.seq = 0
        self.lanes: tuple[str, ...] = ("",)

    async def start(self, retention: int) -> None:
        queue = Declaration(
            subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(retention=retention), app="a"
        )
        for broker in self.brokers:
            await broker.declare([queue])
            await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])

    async def enqueue(self) -> None:
        batch = [
            NewJob(
                id=job_id(next(self.numbers)),
                task=self.chance.choice("tu"),
                queue="q",
                lane=self.chance.choice(self.lanes),
                priority=self.chance.choice((0, 0, 0, 5)),
                delay=self.chance.choice((0, 0, 0, 0, 0, 0, 0, SECOND)),
            )
            for _ in range(self.chance.randint(1, 150))
        ]
        for broker in self.brokers:
            await broker.enqueue([batch])

    async def work(self) -> None:
        count = self.chance.randint(1, 150)
        self.seq += 1
        ask = Ask(session="s", seq=self.seq, queues=("q",), slots=count, limit=count)
        self.chance.shuffle(self.held)
        ended, self.held = self.held[:100], self.held[100:]
        words = [
            Settlement(job=one.job, fence=one.fence, outcome=outcome, runtime=self.chance.choice((None, 5)))
            for one in ended
            for outcome in [self.chance.choice(OUTCOMES)]
        ]
        model, store = [await broker.settle(words, ask) for broker in self.brokers]
        assert store.answers == model.answers
        assert model.claimed is not None
        assert store.claimed is not None
        assert store.claimed.leases == model.claimed.leases
        assert store.claimed.more == model.claimed.more
        self.held += model.claimed.leases

    async def operate(self) -> None:
        newest = next(self.numbers)
        chosen = [job_id(self.chance.randint(1, newest)) for _ in range(self.chance.choice((5, 200)))]
        edits = [Edit(job=job, priority=self.chance.choice((0, 5))) for job in chosen[:5]]
        answers = [
            (await broker.cancel([Target(job) for job in chosen]), await broker.edit(edits))
            for broker in self.brokers
        ]
        assert answers[0] == answers[1]

    async def sweep(self) -> None:
        self.clock.advance(self.chance.choice((1, SECOND)))
        model, store = [await broker.sweep(limit=1_000) for broker in self.brokers]
        assert store.promoted == model.promoted

    async def compare(self) -> None:
        model, store = [await broker.counts() for broker in self.brokers]
        assert store.rows == model.rows


@pytest.mark.parametrize("seed", range(4))
def test_a_long_backlog_is_handed_out_as_the_model_does(redis_server: Server, seed: int) -> None:  # noqa: F811
    async def main() -> None:
        clock, options = ManualClock(), Options()
        store = await RedisBroker.open(redis_server.url, clock=clock, options=new_namespace(options))
        both = _Both([MemoryBroker(clock=clock, options=options), store], clock, seed)
        await both.start(retention=0 if seed % 2 else 3600 * SECOND)
        steps = [both.enqueue, both.enqueue, both.work, both.work, both.work, both.operate, both.sweep]
        for step in range(40):
            if step == 20 and seed >= 2:
                both.lanes = ("", "", "a", "b")
            await both.chance.choice(steps)()
            await both.compare()
        await store.close()

    asyncio.run(main())
