"""A write transaction: several verbs, one after the other, each whole or not at all, and one commit for them
all.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from windlass.broker.contract import Options
from windlass.broker.sqlite.handle import Handle, Row
from windlass.broker.sqlite.records import (
    CODES,
    UNPLACED,
    Body,
    Job,
    Lane,
    Queue,
    as_json,
    bucket_columns,
    pack,
    read_body,
)
from windlass.broker.sqlite.snapshot import SQL, Counters, Snapshot
from windlass.core.event import Event
from windlass.core.job import Moved
from windlass.core.session import liveness_move
from windlass.core.state import State
from windlass.core.units import Fence, JobId, Micros, SessionId

FAN_OUT = 100
"""Dependents that one verb tells of the ends it brings about; sweep tells the rest."""


class Fate(msgspec.Struct):
    """A parent whose end its dependents have yet to be told."""

    parent: JobId
    state: State
    """done, dead (only `run` edges act) or cancelled (nothing more will come of it)."""


class _Saved(NamedTuple):
    """What a verb that fails takes back, besides what SQLite does."""

    counters: Counters
    tally: dict[tuple[int, int, int], int]
    armed: set[str]
    rung: bool


class Transaction(Snapshot):
    """A transaction. Records that a step changed are written before the next statement and at the end of a
    verb.
    """

    def __init__(self, handle: Handle, options: Options, clock: Micros) -> None:
        super().__init__(handle, options, clock)
        (
            _,
            self.live,
            self.swept_at,
            self.left_work,
            self.last_number,
            self.version,
            self.epoch,
            self.bytes,
            self.event_end,
            self.edges,
            self.absorbed,
        ) = self.stored
        self.armed: set[str] = set()
        """Queues whose wake is armed once this is committed."""
        self.rung = False
        """Whether something finished or was logged: those who watch are told once this is committed."""
        self.moves: list[Moved] | None = None
        """The transitions of the step under way, for verbs that return them."""
        self.fan_out_left = FAN_OUT
        self.telling: deque[Fate] | None = None
        """Where an end that comes about while dependents are told is put, instead of being told at once."""
        self.tally: dict[tuple[int, int, int], int] = {}
        self._unwritten = False
        """Whether something has changed that the next statement has to see."""
        self._added: list[tuple[Job, Body]] = []
        self._changed: dict[int, Job] = {}
        self._deliveries: list[tuple[int, Fence, bytes]] = []
        self._sessions: dict[int, tuple[SessionId, bool]] = {}
        self._changed_lanes: dict[tuple[int, str], Lane] = {}
        self._changed_queues: dict[int, Queue] = {}
        self._bodies: dict[int, Body] = {}
        self._events: list[bytes] = []

    def liveness(self) -> Micros:
        """The liveness clock as of now: where a sweep would move it."""
        if self.swept_at is None:
            return self.live
        return self.live + liveness_move(self.now - self.swept_at, self.options.session_ttl)

    # a verb

    def begin_verb(self, clock: Micros) -> None:
        """The next verb begins."""
        self.clock = clock
        self.now = self.time(clock)
        self.fan_out_left = FAN_OUT
        self.telling = None
        self.moves = None

    def end_verb(self) -> None:
        """Write what the verb changed."""
        self.flush()
        if self._events:
            first = self.event_end
            self._cursor.executemany(SQL["add_event"], enumerate(self._events, first))
            self.event_end += len(self._events)
            self._events.clear()
            self._cursor.execute(SQL["cap_events"], (self.event_end - self.options.events_kept,))

    def saved(self) -> _Saved:
        """What `restore` needs."""
        return _Saved(self._counters(), dict(self.tally), set(self.armed), self.rung)

    def restore(self, saved: _Saved) -> None:
        """A verb failed and was rolled back: forget what it did."""
        (
            self.mark,
            self.live,
            self.swept_at,
            self.left_work,
            self.last_number,
            self.version,
            self.epoch,
            self.bytes,
            self.event_end,
            self.edges,
            self.absorbed,
        ) = saved.counters
        self.tally, self.armed, self.rung = saved.tally, saved.armed, saved.rung
        self._events.clear()
        self._added.clear()
        self._changed.clear()
        self._deliveries.clear()
        self._changed_lanes.clear()
        self._changed_queues.clear()
        self._unwritten = False
        self._sessions.clear()
        self._jobs.clear()
        self._numbers.clear()
        self._bodies.clear()
        self._queues.clear()
        self._queue_numbers.clear()
        self._lanes.clear()
        self.handle.forget()

    def finish(self) -> None:
        """Write what is kept for the whole transaction: counters and counts."""
        self.flush_tally()
        counters = self._counters()
        if counters != self.stored:
            self._cursor.execute(SQL["save_namespace"], counters)
        self.handle.epoch = self.epoch

    def _counters(self) -> Counters:
        return Counters(
            self.mark,
            self.live,
            self.swept_at,
            self.left_work,
            self.last_number,
            self.version,
            self.epoch,
            self.bytes,
            self.event_end,
            self.edges,
            self.absorbed,
        )

    # statements

    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Every row of a statement, which sees all changes so far."""
        if self._unwritten:
            self.flush()
        return self._cursor.execute(sql, parameters).fetchall()

    def all_settled(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Every row of a statement that nothing unwritten concerns, so that many changes are written at
        once.
        """
        return self._cursor.execute(sql, parameters).fetchall()

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """A statement without rows."""
        self.all(sql, parameters)

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """A statement for each of many rows of parameters."""
        self.flush()
        self._cursor.executemany(sql, rows)

    def flush(self) -> None:
        """Write the records that were added or changed, each kind by one statement."""
        self._unwritten = False
        many = self._cursor.executemany
        if self._added:
            added, self._added = self._added, []
            for job, _ in added:
                self._changed.pop(job.n, None)
            many(SQL["add_job"], [job.columns for job, _ in added])
            many(SQL["save_body"], [(job.n, *body.columns) for job, body in added])
        if self._changed:
            changed, self._changed = self._changed, {}
            many(SQL["save_job"], [(*job.mutable, job.n) for job in changed.values()])
        if self._deliveries:
            deliveries, self._deliveries = self._deliveries, []
            many(SQL["add_delivery"], deliveries)
        if self._changed_lanes:
            lanes, self._changed_lanes = self._changed_lanes, {}
            many(SQL["save_lane"], [_lane_row(lane) for lane in lanes.values()])
        if self._changed_queues:
            queues, self._changed_queues = self._changed_queues, {}
            many(SQL["save_queue"], [_queue_row(queue) for queue in queues.values()])

    def flush_tally(self) -> None:
        """Write the counts."""
        rows = [(*place, by) for place, by in self.tally.items() if by]
        if rows:
            self._cursor.executemany(SQL["tally"], rows)
        self.tally.clear()

    # records

    def touch(self, job: Job) -> None:
        """A job was changed."""
        self._changed[job.n] = job
        self._unwritten = True

    def touch_lane(self, lane: Lane) -> None:
        """A lane was changed."""
        lane.kept = True
        self._changed_lanes[lane.q, lane.name] = lane
        self._unwritten = True

    def touch_queue(self, queue: Queue) -> None:
        """What a queue counts was changed."""
        self._changed_queues[queue.q] = queue
        self._unwritten = True

    def renew_lanes(self, queue: Queue) -> None:
        """Settings have changed: read the lanes of a queue anew when they are needed."""
        self.flush()
        for place in [place for place in self._lanes if place[0] == queue.q]:
            del self._lanes[place]

    def add(self, job: Job, body: Body) -> Job:
        """A new job."""
        self._added.append((job, body))
        self._jobs[job.n], self._numbers[job.id], self._bodies[job.n] = job, job.n, body
        self._unwritten = True
        return job

    def deliver(self, n: int, fence: Fence, record: bytes) -> None:
        """A lease of a job has ended."""
        self._deliveries.append((n, fence, record))
        self._unwritten = True

    def start(self, jobs: Sequence[Job]) -> None:
        """Write what a claim has changed of jobs: half of what it takes to write all of them."""
        self.many(SQL["start_job"], [job.running for job in jobs])

    def reread(self, n: int, job: JobId) -> None:
        """A statement has changed the row of a job: its record, if there is one, is out of date."""
        self._jobs.pop(n, None)
        self._numbers.pop(job, None)

    def look_again(self, jobs: Iterable[JobId]) -> None:
        """A statement has made jobs of these ids: what was known of them before does not count."""
        for job in jobs:
            self._numbers.pop(job, None)

    def remove(self, job: Job) -> None:
        """Remove the row of a job."""
        self.run(SQL["remove_job"], (job.n,))
        self._jobs.pop(job.n, None)
        self._bodies.pop(job.n, None)
        self._numbers.pop(job.id, None)

    def body(self, job: Job) -> Body:
        """What was asked for, read once."""
        body = self._bodies.get(job.n)
        if body is None:
            body = self._bodies[job.n] = super().body(job)
        return body

    def save_body(self, job: Job, body: Body) -> None:
        """Write what was asked for."""
        self._bodies[job.n] = body
        self.run(SQL["save_body"], (job.n, *body.columns))

    def load_bodies(self, jobs: Sequence[Job]) -> None:
        """Read what was asked for of jobs that are to be handed out, in one statement."""
        unread = [job.n for job in jobs if job.n not in self._bodies]
        if unread:
            for n, *row in self.all_settled(SQL["bodies"], (as_json(unread),)):
                self._bodies[n] = read_body(row)

    def session(self, s: int) -> tuple[SessionId, bool]:
        """The id of a session that holds leases, and whether it is alive; read once."""
        found = self._sessions.get(s)
        if found is None:
            session, ended_at = self.all_settled(SQL["session_by_number"], (s,))[0]
            found = self._sessions[s] = (session, ended_at is None)
        return found

    def session_changed(self, s: int) -> None:
        """A session has ended."""
        self._sessions.pop(s, None)

    def task(self, name: str) -> int:
        """The number of a task, given when it is first needed."""
        t = self.known_task(name)
        if t is None:
            t = self.value(SQL["add_task"], (name,))
            self._learn(t, name, 0)
        return t

    def time_task(self, t: int) -> None:
        """A run of a task was timed."""
        if not self.is_timed(t):
            self.run(SQL["time_task"], (t,))
            self.handle.timed.add(t)

    # counters

    def number(self) -> int:
        """The next number of the store's sequence."""
        self.last_number += 1
        return self.last_number

    def numbers(self, count: int) -> range:
        """The next numbers of the store's sequence."""
        first = self.last_number + 1
        self.last_number += count
        return range(first, first + count)

    def new_version(self) -> int:
        """A version that no document ever had."""
        self.version += 1
        self.stale()
        return self.version

    def stale(self) -> None:
        """What processes keep in memory of queues and lanes has changed."""
        self.epoch += 1
        self.handle.policies.clear()
        self.handle.lane_policies.clear()

    def count(self, q: int, t: int, state: int, by: int) -> None:
        """Count jobs in a state."""
        place = (q, t, state)
        self.tally[place] = self.tally.get(place, 0) + by

    def counted(self, queue: Queue, state: State) -> int:
        """How many jobs of a queue are in a state."""
        self.flush_tally()
        return super().counted(queue, state)

    def log(self, event: Event) -> None:
        """Write to the event log."""
        self._events.append(pack(event))
        self.rung = True

    @contextmanager
    def recorded(self) -> Generator[list[Moved]]:
        """Collect every transition of a step."""
        self.moves = []
        try:
            yield self.moves
        finally:
            self.moves = None


Verb = Callable[[Transaction], Any]


def count_move(tx: Transaction, job: Job, before: int, after: int | None) -> None:
    """Count a transition: done and cancelled are counted when they are reached, and never taken back."""
    if before not in _COUNTED_ONCE:
        tx.count(job.q, job.t, before, -1)
    if after is not None and (after not in _COUNTED_ONCE or before != after):
        tx.count(job.q, job.t, after, 1)


_COUNTED_ONCE = frozenset({UNPLACED, CODES[State.DONE], CODES[State.CANCELLED]})


def _lane_row(lane: Lane) -> tuple[Any, ...]:
    bucket = bucket_columns(lane.bucket)
    return (lane.q, lane.name, lane.ready, lane.running, int(lane.paused), *bucket, lane.wake_at)


def _queue_row(queue: Queue) -> tuple[Any, ...]:
    return (queue.q, int(queue.laned), int(queue.paused), queue.running, *bucket_columns(queue.bucket))
