"""The SQLite broker: every verb of the contract, each the step of its module in one transaction.

A loop hands its steps to the writer's thread and waits (`submit`); blocking code runs them in its own thread
(`call`). Verbs that come at the same time share a transaction.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from windlass.broker.contract import Capabilities, Options, Pacing, Settled, Transact
from windlass.broker.sqlite import (
    claim,
    enqueue,
    explain,
    lanes,
    offsets,
    operate,
    queries,
    schedules,
    sessions,
    settings,
    settle,
    sweep,
)
from windlass.broker.sqlite.identity import FileId
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.store import LOCK_TIMEOUT, Store
from windlass.broker.sqlite.transaction import Transaction
from windlass.clock import Clock, SystemClock
from windlass.core.bounds import check_items
from windlass.core.event import Events
from windlass.core.job import Finished, JobDetail, NewJob, Receipt
from windlass.core.lease import Ask, Claimed, check_ask
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
from windlass.core.settings import Body, Changed, Declaration, Document, Kind, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.take import Offset, Take, Taken, jobs_of
from windlass.core.timetable import Fire, Fired, NewSchedule, Schedules
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId
from windlass.errors import ContractError
from windlass.forks import renew_after_fork

_P = ParamSpec("_P")
_T = TypeVar("_T")

CAPABILITIES = Capabilities(
    store="sqlite",
    durability="in the file, synced to disk: it survives a power cut (WAL, synchronous=FULL)",
    durable=True,
    shared=True,
    transactional_enqueue=False,
    transactional_completion=False,
    # Jobs of different lanes stand on different pages, which an exchange writes once: by 500 jobs it takes a
    # fifth less of each than by 250.
    pacing=Pacing(soon=500),
)


class SqliteBroker:
    """A broker whose store is a file. Any thread may call it, and any child of a fork: it opens the file for
    itself.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        options: Options | None = None,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        self._path = path.absolute()  # it stays where it was when the process goes to another folder
        self._clock = clock or SystemClock()
        self._options = options or Options()
        self._lock_timeout = lock_timeout
        self._opening = threading.Lock()
        self._expected: FileId | None = None
        """In a child of a fork: the file that its parent had open."""
        self._opened: Store | None = self._open()
        renew_after_fork(self)
        self.blocking = BlockingEnqueue(self._here)
        """For code that blocks: an enqueue in the caller's thread."""

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        clock: Clock | None = None,
        options: Options | None = None,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> "SqliteBroker":
        """Open a file without blocking the loop."""
        return await asyncio.to_thread(cls, path, clock=clock, options=options, lock_timeout=lock_timeout)

    def _open(self, expected: FileId | None = None) -> Store:
        return Store(self._path, self._options, self._clock, self._lock_timeout, expected)

    @property
    def store(self) -> Store:
        """What this process has open of the file."""
        return self._here()

    def _here(self) -> Store:
        if (opened := self._opened) is not None:
            return opened
        with self._opening:
            if self._opened is None:
                self._opened = self._open(self._expected)
            return self._opened

    def renew(self) -> None:
        """In a child of a fork: open the same file anew when it is first needed."""
        self._opening = threading.Lock()
        if self._opened is not None:
            self._expected, self._opened = self._opened.identity.file, None

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
        """Wake all waiters, and close the file."""
        await asyncio.to_thread(self.store.close)

    async def _write(
        self, step: Callable[Concatenate[Transaction, _P], _T], *given: _P.args, **named: _P.kwargs
    ) -> _T:
        """Run a verb that changes the store, together with those that come at the same time."""
        return await self.store.writer.submit(lambda tx: step(tx, *given, **named))

    async def _read(
        self, query: Callable[Concatenate[Snapshot, _P], _T], *given: _P.args, **named: _P.kwargs
    ) -> _T:
        """Run a verb that only reads, on a snapshot of its own."""
        return await self.store.readers.aread(lambda tx: query(tx, *given, **named))

    # produce

    async def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        return await self.store.writer.submit(enqueue_step(self.store, groups))

    # consume

    async def claim(self, ask: Ask) -> Claimed:
        return await self._write(claim.claim, check_ask(ask))

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        settle.check(items, ask)
        return await self._write(settle.settle, items, ask)

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        check_items("beats", beats)
        return await self._write(sessions.beat, beats)

    async def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        return await self._write(sessions.end_session, session, cause, started)

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        check_items("notes", notes)
        return await self._write(settle.annotate, notes)

    async def sweep(self, *, limit: int, every: Micros = 0, keep_dead: bool = False) -> Swept:
        # Most janitors come early: they must not stand in line with those who write.
        early = await self._read(sweep.comes_early, every) if every else None
        return early or await self._write(sweep.sweep, limit, every, keep_dead)

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        await self.store.bells.wait(queues, timeout)

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        check_items("jobs", jobs)
        bells, end = self.store.bells, time.monotonic() + timeout
        listener = bells.listen()
        try:
            while not (found := await self._read(queries.finished, jobs)) and not bells.closed:
                if not await listener.heard(end):
                    break
        finally:
            bells.leave(listener)
        return found

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events:
        bells, end = self.store.bells, time.monotonic() + timeout
        listener = bells.listen()
        try:
            page = await self._read(queries.events, after, _page(limit))
            while not (page.items or page.gap or bells.closed) and await listener.heard(end):
                page = await self._read(queries.events, page.cursor, limit)
        finally:
            bells.leave(listener)
        return page

    # intakes

    async def take(self, take: Take) -> Taken:
        return await self._write(offsets.take, take, jobs_of(take), full=self.store.space.shortage())

    async def offsets(self, after: str = "", limit: int = 100) -> Sequence[Offset]:
        return await self._read(offsets.offsets, after, _page(limit))

    # schedules

    async def declare_schedule(self, schedule: NewSchedule) -> Changed:
        return await self._write(schedules.declare_schedule, schedule)

    async def override_schedule(
        self, name: str, spec: bytes | None, next_at: Micros | None, expect: int
    ) -> Changed:
        return await self._write(schedules.override_schedule, name, spec, next_at, expect)

    async def delete_schedule(self, name: str) -> bool:
        return await self._write(schedules.delete_schedule, name)

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return await self._write(schedules.pause_schedule, name, paused=paused)

    async def fire(self, fire: Fire) -> Fired:
        return await self._write(schedules.fire, fire, full=self.store.space.shortage())

    async def schedules(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> Schedules:
        return await self._read(schedules.schedules, after, _page(limit))

    # operate

    async def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        check_items("jobs", targets)
        return await self._write(operate.cancel, targets)

    async def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        check_items("jobs", targets)
        return await self._write(operate.replay, targets)

    async def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        check_items("jobs", targets)
        return await self._write(operate.discard, targets)

    async def prune(self, targets: Sequence[Target]) -> Sequence[Operated]:
        check_items("jobs", targets)
        return await self._write(operate.prune, targets)

    async def edit(self, edits: Sequence[Edit]) -> Sequence[Operated]:
        check_items("jobs", edits)
        return await self._write(operate.edit, edits)

    async def purge(self, queue: str, state: State, limit: int) -> Purged:
        if state is State.RUNNING:
            raise ContractError("running jobs are not purged; cancel them")
        return await self._write(operate.purge, queue, state, limit)

    async def unhold(self, key: str, limit: int) -> Purged:
        return await self._write(operate.unhold, key, limit)

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        return await self._write(operate.set_paused, queue, lane, paused=True)

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        return await self._write(operate.set_paused, queue, lane, paused=False)

    # settings

    async def declare(self, declarations: Sequence[Declaration]) -> Sequence[Changed]:
        check_items("declarations", declarations)
        return await self._write(settings.declare, declarations)

    async def override(self, subject: Subject, body: Body | None, expect: int) -> Changed:
        return await self._write(settings.override, subject, body, expect)

    async def documents(
        self, kind: Kind, after: Subject | None = None, limit: int = 100
    ) -> Sequence[Document]:
        return await self._read(settings.documents, kind, after, _page(limit))

    # read

    async def get(self, jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
        check_items("jobs", jobs)
        return await self._read(queries.get, jobs)

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        return await self._read(queries.list_jobs, query, after, _page(limit))

    async def flows(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> UnfinishedFlows:
        return await self._read(queries.unfinished_flows, after, _page(limit))

    async def counts(self) -> Counts:
        return await self._read(queries.counts)

    async def lanes(self, queue: str, after: Cursor = FIRST_PAGE, limit: int = 100) -> Lanes:
        return await self._read(lanes.lanes, queue, after, _page(limit))

    async def sessions(self, after: SessionId = "", limit: int = 1_000) -> Sequence[SessionView]:
        return await self._read(queries.sessions, after, _page(limit))

    async def explain(self, job: JobId) -> Explanation:
        return await self._read(explain.explain, job)


class BlockingEnqueue:
    """What blocking code calls, in its own thread."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        store = self._store()
        return store.writer.call(enqueue_step(store, groups))


def enqueue_step(
    store: Store, groups: Sequence[Sequence[NewJob]]
) -> Callable[[Transaction], Sequence[Sequence[Receipt]]]:
    """An enqueue, for the loop's carrier and the blocking one."""
    check_items("groups", groups)
    full = store.space.shortage()
    return lambda tx: enqueue.enqueue(tx, groups, full=full)


def _page(limit: int) -> int:
    if not 1 <= limit <= PAGE_ROWS:
        raise ContractError(f"a page has 1 to {PAGE_ROWS} rows, not {limit}")
    return limit
