"""The face of the model: the contract's verbs, each one step under one lock."""

import asyncio
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager

from windlass.broker.contract import BlockingProduce, Capabilities, Options, Settled, Transact
from windlass.broker.memory import (
    claim,
    enqueue,
    explain,
    offsets,
    operate,
    reads,
    schedules,
    sessions,
    settings,
    settle,
    sweep,
)
from windlass.broker.memory.bells import Waiter
from windlass.broker.memory.namespace import Namespace
from windlass.clock import Clock, SystemClock
from windlass.core.bounds import check_items
from windlass.core.event import Events
from windlass.core.job import Finished, JobDetail, NewJob, Receipt
from windlass.core.lease import Ask, Claimed
from windlass.core.operate import Edit, Operated, Purged, Target
from windlass.core.outcome import Cause, Verdict
from windlass.core.query import (
    FIRST_PAGE,
    PAGE_ROWS,
    Counts,
    Explanation,
    JobQuery,
    Lanes,
    Page,
    UnfinishedFlows,
)
from windlass.core.session import Beat, Ended, Note, Pulse, SessionView, Swept
from windlass.core.settings import Body, Changed, Declaration, Document, Kind, Retention, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.take import Offset, Take, Taken, jobs_of
from windlass.core.timetable import Fire, Fired, NewSchedule, Schedules
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId
from windlass.errors import ContractError

CAPABILITIES = Capabilities(
    store="memory",
    durability="in the memory of this process: lost when it ends",
    durable=False,
    shared=False,
    transactional_enqueue=False,
    transactional_completion=False,
)


class MemoryBroker:
    """A broker whose store is this process. Any thread may call it."""

    def __init__(self, *, clock: Clock | None = None, options: Options | None = None) -> None:
        options = options or Options()
        self._ns = Namespace(clock or SystemClock(), options, options.retention or Retention())
        self._lock = threading.Lock()
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        return CAPABILITIES

    @property
    def transact(self) -> Transact | None:
        """Refuse: this store cannot take part in transactions of its callers."""
        return None

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of this store."""
        return ()

    async def close(self) -> None:
        """End every wait."""
        with self._lock:
            self._closed = True
            self._ns.bells.ring_all()

    @property
    def blocking(self) -> BlockingProduce | None:
        """The same store for blocking code: nothing here ever waits."""
        return _Blocking(self._enqueue)

    @contextmanager
    def _step(self) -> Generator[None]:
        """One verb, alone."""
        with self._lock:
            self._ns.begin_step()
            yield

    # produce

    async def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        return self._enqueue(groups)

    def _enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        check_items("groups", groups)
        with self._step():
            return enqueue.enqueue(self._ns, groups)

    # consume

    async def claim(self, ask: Ask) -> Claimed:
        with self._step():
            return claim.claim(self._ns, ask)

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        with self._step():
            return settle.settle(self._ns, items, ask)

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        check_items("beats", beats)
        with self._step():
            return sessions.beat(self._ns, beats)

    async def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        with self._step():
            return sessions.end_session(self._ns, session, cause, started)

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        with self._step():
            return settle.annotate(self._ns, notes)

    async def sweep(self, *, limit: int, every: Micros = 0, keep_dead: bool = False) -> Swept:
        with self._step():
            return sweep.sweep(self._ns, limit, every, keep_dead=keep_dead)

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        with self._lock:
            waiter = None if self._closed else self._ns.bells.wait_for(queues)
        if waiter is not None:
            await self._woken(waiter, timeout)

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        check_items("jobs", jobs)
        end = asyncio.get_running_loop().time() + timeout
        while True:
            with self._lock:
                found = reads.finished(self._ns, jobs)
                waiter = None if found or self._closed else self._ns.bells.watch()
            if waiter is None or not await self._woken(waiter, end - asyncio.get_running_loop().time()):
                return found

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events:
        end = asyncio.get_running_loop().time() + timeout
        while True:
            with self._lock:
                page = reads.events(self._ns, after, _page(limit))
                waiter = None if page.items or page.gap or self._closed else self._ns.bells.watch()
            if waiter is None or not await self._woken(waiter, end - asyncio.get_running_loop().time()):
                return page
            after = page.cursor

    async def _woken(self, waiter: Waiter, timeout: float) -> bool:
        try:
            return await waiter.woken(timeout)
        finally:
            with self._lock:
                self._ns.bells.leave(waiter)

    # intakes

    async def take(self, take: Take) -> Taken:
        jobs = jobs_of(take)
        with self._step():
            return offsets.take(self._ns, take, jobs)

    async def offsets(self, after: str = "", limit: int = 100) -> Sequence[Offset]:
        with self._step():
            return offsets.offsets(self._ns, after, _page(limit))

    # schedules

    async def declare_schedule(self, schedule: NewSchedule) -> Changed:
        with self._step():
            return schedules.declare_schedule(self._ns, schedule)

    async def override_schedule(
        self, name: str, spec: bytes | None, next_at: Micros | None, expect: int
    ) -> Changed:
        with self._step():
            return schedules.override_schedule(self._ns, name, spec, next_at, expect)

    async def delete_schedule(self, name: str) -> bool:
        with self._step():
            return schedules.delete_schedule(self._ns, name)

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        with self._step():
            return schedules.pause_schedule(self._ns, name, paused=paused)

    async def fire(self, fire: Fire) -> Fired:
        with self._step():
            return schedules.fire(self._ns, fire)

    async def schedules(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> Schedules:
        with self._step():
            return schedules.schedules(self._ns, after, _page(limit))

    # operate

    async def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        with self._step():
            return operate.cancel(self._ns, targets)

    async def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        with self._step():
            return operate.replay(self._ns, targets)

    async def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        with self._step():
            return operate.discard(self._ns, targets)

    async def prune(self, targets: Sequence[Target]) -> Sequence[Operated]:
        with self._step():
            return operate.prune(self._ns, targets)

    async def edit(self, edits: Sequence[Edit]) -> Sequence[Operated]:
        with self._step():
            return operate.edit(self._ns, edits)

    async def purge(self, queue: str, state: State, limit: int) -> Purged:
        with self._step():
            return operate.purge(self._ns, queue, state, limit)

    async def unhold(self, key: str, limit: int) -> Purged:
        with self._step():
            return operate.unhold(self._ns, key, limit)

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        with self._step():
            return operate.set_paused(self._ns, queue, lane, paused=True)

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        with self._step():
            return operate.set_paused(self._ns, queue, lane, paused=False)

    # settings

    async def declare(self, declarations: Sequence[Declaration]) -> Sequence[Changed]:
        check_items("declarations", declarations)
        with self._step():
            return settings.declare(self._ns, declarations)

    async def override(self, subject: Subject, body: Body | None, expect: int) -> Changed:
        with self._step():
            return settings.override(self._ns, subject, body, expect)

    async def documents(
        self, kind: Kind, after: Subject | None = None, limit: int = 100
    ) -> Sequence[Document]:
        with self._step():
            return settings.documents(self._ns, kind, after, _page(limit))

    # read

    async def get(self, jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
        check_items("jobs", jobs)
        with self._step():
            return reads.get(self._ns, jobs)

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        with self._step():
            return reads.list_jobs(self._ns, query, after, _page(limit))

    async def flows(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> UnfinishedFlows:
        with self._step():
            return reads.flows(self._ns, after, _page(limit))

    async def counts(self) -> Counts:
        with self._step():
            return reads.counts(self._ns)

    async def lanes(self, queue: str, after: Cursor = FIRST_PAGE, limit: int = 100) -> Lanes:
        with self._step():
            return reads.lanes(self._ns, queue, after, _page(limit))

    async def sessions(self, after: SessionId = "", limit: int = 1_000) -> Sequence[SessionView]:
        with self._step():
            return reads.sessions(self._ns, after, _page(limit))

    async def explain(self, job: JobId) -> Explanation:
        with self._step():
            return explain.explain(self._ns, job)


class _Blocking:
    def __init__(self, enqueue: Callable[[Sequence[Sequence[NewJob]]], Sequence[Sequence[Receipt]]]) -> None:
        self._enqueue = enqueue

    def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        return self._enqueue(groups)


def _page(limit: int) -> int:
    if not 1 <= limit <= PAGE_ROWS:
        raise ContractError(f"a page has 1 to {PAGE_ROWS} rows, not {limit}")
    return limit
