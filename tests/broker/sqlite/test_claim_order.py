"""Claims hand out what the model hands out, job by job, whatever the settings of the queue."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from windlass.broker.contract import Broker
from windlass.broker.memory import MemoryBroker
from windlass.broker.sqlite import SqliteBroker, candidates
from windlass.clock import ManualClock
from windlass.conformance.machine.compare import answers
from windlass.core import order
from windlass.core.event import FROM_START, Emit
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Claimed, Lease
from windlass.core.limits import Rate
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, LaneSettings, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND

STEPS = 120
RATE = Rate(5, SECOND, 3)
QUEUES = {
    "unlimited": QueueSettings(),
    "one slot a lane": QueueSettings(lane_concurrency=1),
    "three slots a lane": QueueSettings(lane_concurrency=3),
    "a rate for each lane": QueueSettings(lane_rate=RATE),
    "both for each lane": QueueSettings(lane_rate=RATE, lane_concurrency=2),
    "limits of the queue": QueueSettings(concurrency=7, rate=Rate(40, SECOND, 20), lane_concurrency=4),
    "lanes first": QueueSettings(order="lane", lane_concurrency=2),
    "aging": QueueSettings(age_step=SECOND),
    "weighted bands": QueueSettings(bands={5: 2, 0: 1}, lane_concurrency=3),
    "weighted bands, aging": QueueSettings(bands={5: 2, 0: 1}, age_step=SECOND),
    "weighted bands, lanes first": QueueSettings(bands={5: 2, 0: 1}, order="lane"),
    "in sequence": QueueSettings(sequence=True),
    "every event": QueueSettings(emit=Emit.ALL, lane_concurrency=2),
    "nothing kept": QueueSettings(retention=0, result_ttl=0, lane_concurrency=2),
}


class Both:
    """The model and the store, told the same at the same times."""

    def __init__(self, path: Path, seed: int) -> None:
        self.clock = ManualClock(10**15)
        self.model = MemoryBroker(clock=self.clock)
        self.store = SqliteBroker(path, clock=self.clock)
        self.random = random.Random(seed)
        self.seq = 0
        self.ids = 0
        self.held: list[Lease] = []

    @property
    def brokers(self) -> Sequence[Broker]:
        return (self.model, self.store)

    async def open(self, settings: QueueSettings) -> None:
        queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=settings, app="test")
        heavy = LaneSettings(weight=3, concurrency=None, rate=None)
        lane = Declaration(subject=Subject(Kind.LANE, "q", "b"), body=heavy, app="test")
        for broker in self.brokers:
            await broker.declare([queue, lane])
            await broker.beat([Beat(session="s", open=SessionInfo())])

    async def enqueue(self) -> None:
        jobs = [self._job() for _ in range(self.random.choice((1, 5, 40)))]
        assert await self.model.enqueue([jobs]) == await self.store.enqueue([jobs])

    def _job(self) -> NewJob:
        self.ids += 1
        return NewJob(
            id=new_job_id(self.ids, bytes(10)),
            task=self.random.choice(("t", "u")),
            queue="q",
            lane=self.random.choice(("", "a", "b", "c", "d", "é", *(f"{n}" for n in range(20)))),
            priority=self.random.choice((0, 0, 0, 1, 5)),
            payload=bytes(self.random.choice((0, 10, 100))),
            tags=self.random.choice(((), ("tag",))),
            expires=self.random.choice((None, None, None, SECOND)),
            max_attempts=self.random.choice((1, 3)),
        )

    def ask(self) -> Ask:
        slots = self.random.choice((0, 1, 3, 16, 60))
        limit = slots + self.random.choice((0, 0, 5, 60, 100))
        soon = min(limit, slots + self.random.choice((0, 0, 32, 64, 100)))
        most = self.random.choice((1 << 20, 1_000, 150))
        draw = self.random.randrange(2**32)
        self.seq += 1
        return Ask(
            session="s",
            seq=self.seq,
            queues=("q",),
            slots=slots,
            soon=soon,
            limit=limit,
            max_bytes=most,
            draw=draw,
        )

    async def claim(self) -> None:
        ask = self.ask()
        self._handed(await self.model.claim(ask), await self.store.claim(ask))

    def _handed(self, expected: Claimed | None, got: Claimed | None) -> None:
        assert expected is not None
        assert got is not None
        answers("claim", expected, got)  # who is told to ask again may be told so early
        self.held += got.leases

    async def settle(self) -> None:
        self.random.shuffle(self.held)
        count = self.random.randint(0, len(self.held))
        ended, self.held = self.held[:count], self.held[count:]
        items = [self._word(lease) for lease in ended]
        ask = self.ask() if self.random.random() < 0.7 else None
        expected = await self.model.settle(items, ask)
        got = await self.store.settle(items, ask)
        answers("settle", expected, got)
        if ask is not None:
            self._handed(expected.claimed, got.claimed)

    def _word(self, lease: Lease) -> Settlement:
        outcome = self.random.choice((*[Outcome.DONE] * 8, Outcome.RETRY, Outcome.RELEASE))
        result = self.random.choice((None, b"42")) if outcome is Outcome.DONE else None
        runtime = None if outcome is Outcome.RELEASE else 5
        return Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=runtime, result=result)

    async def wait(self) -> None:
        self.clock.advance(self.random.choice((1_000, 100_000, 700_000)))

    async def compare(self) -> None:
        assert await self.store.lanes("q") == await self.model.lanes("q")
        assert (await self.store.counts()).rows == (await self.model.counts()).rows

    async def run(self, settings: QueueSettings) -> None:
        await self.open(settings)
        steps = (self.enqueue, self.claim, self.claim, self.settle, self.settle, self.wait)
        for _ in range(STEPS):
            await self.random.choice(steps)()
            await self.compare()
        expected, got = [await broker.events(FROM_START, 1_000, 0) for broker in self.brokers]
        assert got.items == expected.items
        for broker in self.brokers:
            await broker.close()


@pytest.mark.parametrize("title", QUEUES)
@pytest.mark.parametrize("seed", [1, 2])
def test_lanes_take_turns_as_in_the_model(title: str, seed: int, tmp_path: Path) -> None:
    asyncio.run(Both(tmp_path / "w.db", seed).run(QUEUES[title]))


@pytest.mark.parametrize("title", ["unlimited", "one slot a lane", "lanes first"])
def test_clocks_that_have_become_large_are_set_back_as_in_the_model(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (order, candidates):
        monkeypatch.setattr(module, "REBASE_AT", 4 * order.STRIDE)
    asyncio.run(Both(tmp_path / "w.db", 3).run(QUEUES[title]))


def test_a_weight_that_makes_a_queue_laned_counts_from_the_claim_after_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        both = Both(tmp_path / "w.db", 5)
        subject = Subject(Kind.QUEUE, "q")
        ids = [new_job_id(number, bytes(10)) for number in range(1, 4)]
        weight = Declaration(subject=Subject(Kind.LANE, "q", ""), body=LaneSettings(weight=5), app="test")
        for broker in both.brokers:
            await broker.declare([Declaration(subject=subject, body=QueueSettings(), app="test")])
            await broker.beat([Beat(session="s", open=SessionInfo())])
            await broker.enqueue([[NewJob(id=each, task="t", queue="q", payload=b"") for each in ids]])
            await broker.declare([weight])
        for seq in (1, 2):
            ask = Ask(session="s", seq=seq, queues=("q",), slots=1, limit=1)
            assert await both.store.claim(ask) == await both.model.claim(ask)
            await both.compare()
        for broker in both.brokers:
            await broker.close()

    asyncio.run(main())
