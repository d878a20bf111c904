"""The face of the SQLite broker: the contract's verbs, each one transaction, shared with those that come with
it.
"""

import asyncio
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from windlass.broker.contract import Capabilities, Options, Pacing, Settled, Transact
from windlass.broker.sqlite import verbs
from windlass.broker.sqlite.blocking import Blocking
from windlass.broker.sqlite.identity import FileId
from windlass.broker.sqlite.store import LOCK_TIMEOUT, Store
from windlass.clock import Clock, SystemClock
from windlass.core.event import Events
from windlass.core.job import Finished, JobDetail, NewJob, Receipt
from windlass.core.lease import Ask, Claimed
from windlass.core.operate import Edit, Operated, Purged, Target
from windlass.core.outcome import Cause, Verdict
from windlass.core.query import FIRST_PAGE, Counts, Explanation, JobQuery, Lanes, Page, UnfinishedFlows
from windlass.core.session import Beat, Ended, Note, Pulse, SessionView, Swept
from windlass.core.settings import Body, Changed, Declaration, Document, Kind, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.timetable import Fire, Fired, NewSchedule, Schedules
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId
from windlass.forks import renew_after_fork

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
        self.blocking = Blocking(self._here)
        """The same verbs for code that blocks: alone, a verb runs in the caller's thread."""

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
        """It has no transactions of its callers."""
        return None

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of this store."""
        return ()

    async def close(self) -> None:
        """Let everybody who waits go, and let go of the file."""
        await asyncio.to_thread(self.store.close)

    def _full(self) -> str | None:
        return self.store.space.shortage()

    # produce

    async def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        store = self.store
        return await store.writer.submit(*verbs.do_enqueue(groups, store.space.shortage()))

    # consume

    async def claim(self, ask: Ask) -> Claimed:
        return await self.store.writer.submit(verbs.do_claim(ask))

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        return await self.store.writer.submit(verbs.do_settle(items, ask))

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        return await self.store.writer.submit(verbs.do_beat(beats))

    async def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        return await self.store.writer.submit(verbs.do_end_session(session, cause, started))

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        return await self.store.writer.submit(verbs.do_annotate(notes))

    async def sweep(self, *, limit: int, every: Micros = 0) -> Swept:
        store = self.store
        # One of many janitors comes early nearly always: it must not stand in line with those who write.
        early = await store.readers.aread(verbs.read_early_sweep(every)) if every else None
        return early or await store.writer.submit(verbs.do_sweep(limit, every))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        await self.store.bells.wait(queues, timeout)

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        verbs.check_watch(jobs)
        store, query, end = self.store, verbs.read_finished(jobs), time.monotonic() + timeout
        listener = store.bells.listen()
        try:
            while not (found := await store.readers.aread(query)) and not store.bells.closed:
                if not await listener.heard(end):
                    break
        finally:
            store.bells.leave(listener)
        return found

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events:
        store, end = self.store, time.monotonic() + timeout
        listener = store.bells.listen()
        try:
            page = await store.readers.aread(verbs.read_events(after, limit))
            while not (page.items or page.gap or store.bells.closed) and await listener.heard(end):
                page = await store.readers.aread(verbs.read_events(page.cursor, limit))
        finally:
            store.bells.leave(listener)
        return page

    # schedules

    async def declare_schedule(self, schedule: NewSchedule) -> Changed:
        return await self.store.writer.submit(verbs.do_declare_schedule(schedule))

    async def override_schedule(
        self, name: str, spec: bytes | None, next_at: Micros | None, expect: int
    ) -> Changed:
        return await self.store.writer.submit(verbs.do_override_schedule(name, spec, next_at, expect))

    async def delete_schedule(self, name: str) -> bool:
        return await self.store.writer.submit(verbs.do_delete_schedule(name))

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return await self.store.writer.submit(verbs.do_pause_schedule(name, paused=paused))

    async def fire(self, fire: Fire) -> Fired:
        return await self.store.writer.submit(verbs.do_fire(fire, self._full()))

    async def schedules(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> Schedules:
        return await self.store.readers.aread(verbs.read_schedules(after, limit))

    # operate

    async def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self.store.writer.submit(verbs.do_cancel(targets))

    async def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self.store.writer.submit(verbs.do_replay(targets))

    async def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self.store.writer.submit(verbs.do_discard(targets))

    async def edit(self, edits: Sequence[Edit]) -> Sequence[Operated]:
        return await self.store.writer.submit(verbs.do_edit(edits))

    async def purge(self, queue: str, state: State, limit: int) -> Purged:
        return await self.store.writer.submit(verbs.do_purge(queue, state, limit))

    async def unhold(self, key: str, limit: int) -> Purged:
        return await self.store.writer.submit(verbs.do_unhold(key, limit))

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        return await self.store.writer.submit(verbs.do_set_paused(queue, lane, paused=True))

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        return await self.store.writer.submit(verbs.do_set_paused(queue, lane, paused=False))

    # settings

    async def declare(self, declarations: Sequence[Declaration]) -> Sequence[Changed]:
        return await self.store.writer.submit(verbs.do_declare(declarations))

    async def override(self, subject: Subject, body: Body | None, expect: int) -> Changed:
        return await self.store.writer.submit(verbs.do_override(subject, body, expect))

    async def documents(
        self, kind: Kind, after: Subject | None = None, limit: int = 100
    ) -> Sequence[Document]:
        return await self.store.readers.aread(verbs.read_documents(kind, after, limit))

    # read

    async def get(self, jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
        return await self.store.readers.aread(verbs.read_get(jobs))

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        return await self.store.readers.aread(verbs.read_list(query, after, limit))

    async def flows(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> UnfinishedFlows:
        return await self.store.readers.aread(verbs.read_flows(after, limit))

    async def counts(self) -> Counts:
        return await self.store.readers.aread(verbs.read_counts())

    async def lanes(self, queue: str, after: Cursor = FIRST_PAGE, limit: int = 100) -> Lanes:
        return await self.store.readers.aread(verbs.read_lanes(queue, after, limit))

    async def sessions(self, after: SessionId = "", limit: int = 1_000) -> Sequence[SessionView]:
        return await self.store.readers.aread(verbs.read_sessions(after, limit))

    async def explain(self, job: JobId) -> Explanation:
        return await self.store.readers.aread(verbs.read_explain(job))
