"""The model and the store, called alike, at random; what they answer is compared."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.broker.redis.scenario import job_id

from windlass.broker.contract import Broker
from windlass.clock import ManualClock
from windlass.core.event import FROM_START
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Edit, Target
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND


@dataclass
class Both:
    """Two brokers that live the same life."""

    brokers: list[Broker]
    clock: ManualClock
    chance: random.Random
    lanes: Sequence[str] = ("",)
    priorities: Sequence[int] = (0, 0, 0, 5)
    delays: Sequence[int] = (0, 0, 0, 0, 0, 0, 0, SECOND)
    outcomes: Sequence[Outcome] = (
        *[Outcome.DONE] * 12,
        Outcome.RELEASE,
        Outcome.RETRY,
        Outcome.SNOOZE,
        Outcome.DEAD,
    )
    results: Sequence[bytes | None] = (None,)
    most: int = 150
    """Jobs of a call."""
    held: list[Lease] = field(default_factory=list[Lease])
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    seq: int = 0

    async def start(self, settings: QueueSettings) -> None:
        queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=settings, app="a")
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
                priority=self.chance.choice(self.priorities),
                delay=self.chance.choice(self.delays),
            )
            for _ in range(self.chance.choice((1, self.chance.randint(1, self.most))))
        ]
        for broker in self.brokers:
            await broker.enqueue([batch])

    async def work(self) -> None:
        count = self.chance.randint(1, 150)
        self.seq += 1
        slots = self.chance.choice((count, self.chance.randint(0, count)))  # some wait in the worker's hand
        soon = self.chance.choice((0, self.chance.randint(slots, count)))
        ask = Ask(session="s", seq=self.seq, queues=("q",), slots=slots, limit=count, soon=soon)
        self.chance.shuffle(self.held)
        ended, self.held = self.held[:100], self.held[100:]
        words = [
            Settlement(
                job=one.job,
                fence=one.fence,
                outcome=outcome,
                runtime=self.chance.choice((None, 5)),
                result=self.chance.choice(self.results) if outcome is Outcome.DONE else None,
            )
            for one in ended
            for outcome in [self.chance.choice(self.outcomes)]
        ]
        model, store = [await broker.settle(words, ask) for broker in self.brokers]
        assert store.answers == model.answers
        assert model.claimed is not None
        assert store.claimed is not None
        assert store.claimed.leases == model.claimed.leases
        assert store.claimed.more == model.claimed.more
        assert store.claimed.next_in == model.claimed.next_in
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
        """What everybody can see."""
        model, store = [await broker.counts() for broker in self.brokers]
        assert store.rows == model.rows
        model_lanes, store_lanes = [(await broker.lanes("q")).lanes for broker in self.brokers]
        assert store_lanes == model_lanes
        seen = [job_id(self.chance.randint(1, max(2, next(self.numbers)))) for _ in range(20)]
        assert await self.brokers[1].get(seen) == await self.brokers[0].get(seen)
        model_log, store_log = [await broker.events(FROM_START, 1_000, 0) for broker in self.brokers]
        assert store_log.items == model_log.items
