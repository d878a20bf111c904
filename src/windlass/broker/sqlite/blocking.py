"""The blocking twin of the broker: the same verbs, for threads. A verb that finds nobody writing runs in its
caller's.
"""

import time
from collections.abc import Callable, Collection, Sequence

from windlass.broker.contract import Settled
from windlass.broker.sqlite import verbs
from windlass.broker.sqlite.store import Store
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


class Blocking:
    """Every verb of the contract, without a loop."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def close(self) -> None:
        """Let everybody who waits go, and let go of the file."""
        self._store().close()

    def _full(self) -> str | None:
        return self._store().space.shortage()

    # produce

    def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        store = self._store()
        return store.writer.call(*verbs.do_enqueue(groups, store.space.shortage()))

    # consume

    def claim(self, ask: Ask) -> Claimed:
        return self._store().writer.call(verbs.do_claim(ask))

    def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        return self._store().writer.call(verbs.do_settle(items, ask))

    def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        return self._store().writer.call(verbs.do_beat(beats))

    def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        return self._store().writer.call(verbs.do_end_session(session, cause, started))

    def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        return self._store().writer.call(verbs.do_annotate(notes))

    def sweep(self, *, limit: int, every: Micros = 0) -> Swept:
        return self._store().writer.call(verbs.do_sweep(limit, every))

    def wait(self, queues: Sequence[str], timeout: float) -> None:
        self._store().bells.wait_blocking(queues, timeout)

    def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        verbs.check_watch(jobs)
        store, query, end = self._store(), verbs.read_finished(jobs), time.monotonic() + timeout
        listener = store.bells.listen()
        try:
            while not (found := store.readers.read(query)) and not store.bells.closed:
                if not listener.heard_blocking(end):
                    break
        finally:
            store.bells.leave(listener)
        return found

    def events(self, after: Cursor, limit: int, timeout: float) -> Events:
        store, end = self._store(), time.monotonic() + timeout
        listener = store.bells.listen()
        try:
            page = store.readers.read(verbs.read_events(after, limit))
            while not (page.items or page.gap or store.bells.closed) and listener.heard_blocking(end):
                page = store.readers.read(verbs.read_events(page.cursor, limit))
        finally:
            store.bells.leave(listener)
        return page

    # schedules

    def declare_schedule(self, schedule: NewSchedule) -> Changed:
        return self._store().writer.call(verbs.do_declare_schedule(schedule))

    def override_schedule(
        self, name: str, spec: bytes | None, next_at: Micros | None, expect: int
    ) -> Changed:
        return self._store().writer.call(verbs.do_override_schedule(name, spec, next_at, expect))

    def delete_schedule(self, name: str) -> bool:
        return self._store().writer.call(verbs.do_delete_schedule(name))

    def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return self._store().writer.call(verbs.do_pause_schedule(name, paused=paused))

    def fire(self, fire: Fire) -> Fired:
        return self._store().writer.call(verbs.do_fire(fire, self._full()))

    def schedules(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> Schedules:
        return self._store().readers.read(verbs.read_schedules(after, limit))

    # operate

    def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return self._store().writer.call(verbs.do_cancel(targets))

    def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return self._store().writer.call(verbs.do_replay(targets))

    def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return self._store().writer.call(verbs.do_discard(targets))

    def edit(self, edits: Sequence[Edit]) -> Sequence[Operated]:
        return self._store().writer.call(verbs.do_edit(edits))

    def purge(self, queue: str, state: State, limit: int) -> Purged:
        return self._store().writer.call(verbs.do_purge(queue, state, limit))

    def unhold(self, key: str, limit: int) -> Purged:
        return self._store().writer.call(verbs.do_unhold(key, limit))

    def pause(self, queue: str, lane: str | None = None) -> bool:
        return self._store().writer.call(verbs.do_set_paused(queue, lane, paused=True))

    def resume(self, queue: str, lane: str | None = None) -> bool:
        return self._store().writer.call(verbs.do_set_paused(queue, lane, paused=False))

    # settings

    def declare(self, declarations: Sequence[Declaration]) -> Sequence[Changed]:
        return self._store().writer.call(verbs.do_declare(declarations))

    def override(self, subject: Subject, body: Body | None, expect: int) -> Changed:
        return self._store().writer.call(verbs.do_override(subject, body, expect))

    def documents(self, kind: Kind, after: Subject | None = None, limit: int = 100) -> Sequence[Document]:
        return self._store().readers.read(verbs.read_documents(kind, after, limit))

    # read

    def get(self, jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
        return self._store().readers.read(verbs.read_get(jobs))

    def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        return self._store().readers.read(verbs.read_list(query, after, limit))

    def flows(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> UnfinishedFlows:
        return self._store().readers.read(verbs.read_flows(after, limit))

    def counts(self) -> Counts:
        return self._store().readers.read(verbs.read_counts())

    def lanes(self, queue: str, after: Cursor = FIRST_PAGE, limit: int = 100) -> Lanes:
        return self._store().readers.read(verbs.read_lanes(queue, after, limit))

    def sessions(self, after: SessionId = "", limit: int = 1_000) -> Sequence[SessionView]:
        return self._store().readers.read(verbs.read_sessions(after, limit))

    def explain(self, job: JobId) -> Explanation:
        return self._store().readers.read(verbs.read_explain(job))
