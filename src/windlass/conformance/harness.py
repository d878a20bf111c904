"""Short forms of the verbs, so that a test reads as the obligation it holds a broker to."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias

import msgspec
import pytest

from windlass.broker.contract import Broker, Options, Settled
from windlass.clock import ManualClock
from windlass.core.bounds import CALL_ITEMS
from windlass.core.event import FROM_START
from windlass.core.job import Edge, JobDetail, NewJob, Receipt, Status
from windlass.core.lease import Ask, Claimed, Lease
from windlass.core.operate import Operated, Target
from windlass.core.outcome import Answer, Cause, CauseKind, Error, Outcome
from windlass.core.query import Explanation, JobQuery, JobView, LaneView
from windlass.core.session import Beat, Ended, Pulse, SessionInfo, Swept
from windlass.core.settings import (
    Change,
    Changed,
    Declaration,
    Kind,
    LaneSettings,
    QueueSettings,
    Subject,
)
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, JobId, Micros, SessionId

OpenBroker: TypeAlias = Callable[[ManualClock, Options], Awaitable[Broker]]
"""Opens a broker on an empty namespace of its own."""

APP = "conformance"
_numbers = itertools.count(1)


def new_id() -> str:
    """An id that no other test uses, in the shape of a UUIDv7."""
    return f"01900000-0000-7000-8000-{next(_numbers):012x}"


class Worker:
    """A session, with the count of its asks."""

    def __init__(self, store: "Harness", session: SessionId) -> None:
        self.store = store
        self.id = session
        self.seq = 0

    def ask(self, *queues: str, slots: int = 100, limit: int | None = None, **more: Any) -> Ask:
        """The next ask of this session; it counts as answered."""
        self.seq += 1
        limit = slots if limit is None else limit
        return Ask(session=self.id, seq=self.seq, queues=queues or ("q",), slots=slots, limit=limit, **more)

    async def claim(self, *queues: str, slots: int = 100, limit: int | None = None, **more: Any) -> Claimed:
        """Ask for work and return the whole answer."""
        return await self.store.broker.claim(self.ask(*queues, slots=slots, limit=limit, **more))

    async def take(self, count: int = 1, *queues: str, **more: Any) -> list[Lease]:
        """Claim and require exactly `count` leases out of `count` slots."""
        claimed = await self.claim(*queues, slots=count, **more)
        assert len(claimed.leases) == count, claimed
        return list(claimed.leases)

    async def one(self, *queues: str, **more: Any) -> Lease:
        """Claim exactly one job."""
        return (await self.take(1, *queues, **more))[0]

    async def drain(self, *queues: str, **more: Any) -> list[JobId]:
        """Claim one by one, finishing each, until nothing is handed out; the ids in the order of their
        starts.
        """
        order: list[JobId] = []
        while (claimed := await self.claim(*queues, slots=1, **more)).leases:
            order.append(claimed.leases[0].job)
            await self.store.done(claimed.leases[0])
        return order

    async def beat(self) -> Pulse:
        """One plain sign of life."""
        return (await self.store.broker.beat([Beat(session=self.id)]))[0]

    async def end(
        self, kind: CauseKind, started: Collection[Lease] = (), detail: str = "for the test"
    ) -> Ended:
        """End this session."""
        started_jobs = [(lease.job, lease.fence) for lease in started]
        return await self.store.broker.end_session(self.id, Cause(kind, detail), started_jobs)


class Harness:
    """A broker on an empty namespace, the clock it runs on, and short forms of the verbs."""

    runner: asyncio.Runner

    def __init__(self, broker: Broker, clock: ManualClock, open_broker: OpenBroker) -> None:
        self.broker = broker
        self.clock = clock
        self._open_broker = open_broker
        self._others: list[Harness] = []

    @classmethod
    async def open(cls, open_broker: OpenBroker, options: Options | None = None) -> "Harness":
        """Open a broker with the queue `q` declared."""
        clock = ManualClock()
        harness = cls(await open_broker(clock, options or Options()), clock, open_broker)
        await harness.queue("q")
        return harness

    async def fresh(self, **options: Any) -> "Harness":
        """Another empty namespace, opened with other options; closed with this one."""
        other = await Harness.open(self._open_broker, Options(**options))
        self._others.append(other)
        return other

    async def close(self) -> None:
        """Close every broker that was opened."""
        for other in self._others:
            await other.close()
        await self.broker.close()

    def needs(self, capability: str) -> None:
        """Skip the test, with the reason, on a broker that declares not to have a capability."""
        if not getattr(self.broker.capabilities, capability):
            pytest.skip(f"{self.broker.capabilities.store} declares no {capability}")

    # settings

    async def queue(self, name: str, **settings: Any) -> Changed:
        """Declare a queue."""
        return await self.declare(Subject(Kind.QUEUE, name), QueueSettings(**settings))

    async def lane(self, queue: str, lane: str, **settings: Any) -> Changed:
        """Declare a lane."""
        return await self.declare(Subject(Kind.LANE, queue, lane), LaneSettings(**settings))

    async def declare(
        self,
        subject: Subject,
        body: QueueSettings | LaneSettings | bytes,
        *,
        app: str = APP,
        revision: int = 0,
    ) -> Changed:
        """Declare one document and require that it is in force."""
        declaration = Declaration(subject=subject, body=body, app=app, revision=revision)
        changed = (await self.broker.declare([declaration]))[0]
        assert changed.change in (Change.APPLIED, Change.UNCHANGED), changed
        return changed

    # produce

    def job(self, **options: Any) -> NewJob:
        """A new job for the queue `q`."""
        asked: dict[str, Any] = {"id": new_id(), "task": "t", "queue": "q", **options}
        return NewJob(**asked)

    async def enqueue(self, *jobs: NewJob) -> list[Receipt]:
        """Enqueue one group."""
        return list((await self.broker.enqueue([jobs]))[0])

    async def add(self, **options: Any) -> JobId:
        """Enqueue one job and require that it was created."""
        job = self.job(**options)
        receipts = await self.enqueue(job)
        assert [receipt.status for receipt in receipts] == [Status.CREATED], receipts
        return job.id

    async def add_many(self, count: int, **options: Any) -> list[JobId]:
        """Enqueue jobs in one group and require that all were created."""
        jobs = [self.job(**options) for _ in range(count)]
        receipts = await self.enqueue(*jobs)
        assert all(receipt.status is Status.CREATED for receipt in receipts), receipts
        return [job.id for job in jobs]

    # consume

    async def worker(self, **info: Any) -> Worker:
        """Open a session."""
        # Names that sort in the order of their opening: stores list those that opened at one time by name.
        worker = Worker(self, f"session-{next(_numbers):09}")
        pulses = await self.broker.beat([Beat(session=worker.id, open=SessionInfo(**info))])
        assert pulses[0].alive, pulses
        return worker

    async def settle(self, lease: Lease, outcome: Outcome, **more: Any) -> Answer:
        """Settle one lease."""
        settlement = Settlement(job=lease.job, fence=lease.fence, outcome=outcome, **more)
        settled: Settled = await self.broker.settle([settlement])
        assert settled.claimed is None
        return settled.answers[0]

    async def done(self, lease: Lease, result: bytes | None = None, **more: Any) -> Answer:
        """Settle one lease as done after a run of a millisecond."""
        return await self.settle(lease, Outcome.DONE, **{"result": result, "runtime": 1_000, **more})

    async def retry(self, lease: Lease, delay: Micros = 0, **more: Any) -> Answer:
        """Settle one lease for a retry."""
        error = Error(type="ValueError", message="no")
        return await self.settle(
            lease, Outcome.RETRY, **{"delay": delay, "runtime": 1_000, "error": error, **more}
        )

    async def dead(self, lease: Lease, **more: Any) -> Answer:
        """Settle one lease as dead."""
        error = Error(type="GiveUp", message="no")
        return await self.settle(lease, Outcome.DEAD, **{"runtime": 1_000, "error": error, **more})

    async def release(self, lease: Lease, **more: Any) -> Answer:
        """Give one lease back, unstarted."""
        return await self.settle(lease, Outcome.RELEASE, **more)

    async def snooze(self, lease: Lease, delay: Micros, **more: Any) -> Answer:
        """Settle one lease for later."""
        return await self.settle(lease, Outcome.SNOOZE, **{"delay": delay, "runtime": 1_000, **more})

    async def hold(self, lease: Lease, key: str = "task:t", reason: str = "unknown task") -> Answer:
        """Hold one job."""
        return await self.settle(lease, Outcome.HOLD, hold=HoldKey(key, reason))

    async def time_task(self, task: str = "t", queue: str = "q") -> None:
        """Make a task count as timed: run one job of it to its end."""
        worker = await self.worker()
        await self.add(task=task, queue=queue, priority=100)
        await self.done(await worker.one(queue))
        await worker.end(CauseKind.STOP)

    async def reach(self, state: State, **options: Any) -> JobId:
        """A new job, brought into a state; no other job of its queue may be ready."""
        if state is State.BLOCKED:
            await self.queue("parents")
            return await self.add(after=(Edge(await self.add(queue="parents")),), **options)
        job = await self.add(**{"delay": HOUR if state is State.SCHEDULED else 0, **options})
        if state is State.CANCELLED:
            await self.cancel(job)
        if state in (State.RUNNING, State.DONE, State.DEAD):
            lease = await (await self.worker()).one(options.get("queue", "q"))
            assert lease.job == job, lease
            if state is not State.RUNNING:
                await (self.done(lease) if state is State.DONE else self.dead(lease))
        assert await self.state(job) is state
        return job

    def advance(self, by: Micros) -> None:
        """Move the clock."""
        self.clock.advance(by)

    async def sweep(self, limit: int = 1_000) -> list[Swept]:
        """Sweep until nothing is left to do, and return every pass."""
        passes = [await self.broker.sweep(limit=limit)]
        while passes[-1].more:
            passes.append(await self.broker.sweep(limit=limit))
        return passes

    async def passes(self, count: int, gap: Micros) -> list[Swept]:
        """Let `gap` pass and sweep, so many times, and return every pass."""
        swept: list[Swept] = []
        for _ in range(count):
            self.advance(gap)
            swept.append(await self.broker.sweep(limit=1_000))
        return swept

    # operate

    async def cancel(self, job: JobId, expect: State | None = None) -> Operated:
        """Cancel one job."""
        return (await self.broker.cancel([Target(job, expect)]))[0]

    async def replay(self, job: JobId, expect: State | None = None) -> Operated:
        """Replay one job."""
        return (await self.broker.replay([Target(job, expect)]))[0]

    async def discard(self, job: JobId, expect: State | None = None) -> Operated:
        """Discard one job."""
        return (await self.broker.discard([Target(job, expect)]))[0]

    async def prune(self, job: JobId, expect: State | None = None) -> Operated:
        """Prune one job."""
        return (await self.broker.prune([Target(job, expect)]))[0]

    # read

    async def get(self, job: JobId) -> JobDetail:
        """One job that must be there."""
        detail = (await self.broker.get([job]))[0]
        assert detail is not None, f"no record of {job}"
        return detail

    async def missing(self, job: JobId) -> bool:
        """Whether nothing at all is known of a job."""
        return (await self.broker.get([job]))[0] is None

    async def state(self, job: JobId) -> State:
        """The state of a job that must be there."""
        return (await self.get(job)).state

    async def states(self, jobs: Sequence[JobId]) -> list[State]:
        """The states of jobs that must be there."""
        return [await self.state(job) for job in jobs]

    async def listed(self, limit: int = 100, **query: Any) -> list[JobView]:
        """Every job that matches, over as many pages as it takes."""
        found: list[JobView] = []
        page = await self.broker.list(JobQuery(**query), limit=limit)
        found.extend(page.jobs)
        while page.cursor is not None:
            page = await self.broker.list(JobQuery(**query), page.cursor, limit)
            found.extend(page.jobs)
        return found

    async def count(self, state: State, queue: str = "q") -> int:
        """How many jobs of a queue are in a state."""
        counts = await self.broker.counts()
        return sum(row.count for row in counts.rows if row.queue == queue and row.state is state)

    async def lane_view(self, lane: str, queue: str = "q") -> LaneView:
        """One lane that must be listed."""
        lanes = (await self.broker.lanes(queue)).lanes
        return next(view for view in lanes if view.lane == lane)

    async def everything(self, *unlisted: JobId) -> dict[str, object]:
        """All that can be read, to compare before and after a word that must change nothing."""
        jobs = sorted({view.id for view in await self.listed()}.union(unlisted))
        queues = [document.subject.name for document in await self.broker.documents(Kind.QUEUE)]
        counts = await self.broker.counts()
        return {
            "jobs": [detail for page in batched(jobs) for detail in await self.broker.get(page)],
            "counts": {(row.queue, row.task, row.state): row.count for row in counts.rows},
            "oldest": dict(counts.oldest),
            "lanes": [await self.broker.lanes(queue) for queue in queues],
            "sessions": list(await self.broker.sessions()),
            "offsets": list(await self.broker.offsets()),
            "events": (await self.broker.events(FROM_START, 1_000, 0)).items,
        }

    async def explain(self, job: JobId) -> Explanation:
        """Why a job waits."""
        return await self.broker.explain(job)


def batched(jobs: Sequence[JobId]) -> list[Sequence[JobId]]:
    """Jobs in as many parts as it takes to name them all."""
    return [jobs[start : start + CALL_ITEMS] for start in range(0, len(jobs), CALL_ITEMS)]


def ids(leases: Sequence[Lease]) -> list[JobId]:
    """The jobs of leases, in order."""
    return [lease.job for lease in leases]


def same(lease: Lease) -> Lease:
    """A lease without what changes with time, to compare a repeated reply."""
    return msgspec.structs.replace(lease, waited=0, expires_in=None, visibility=None)
