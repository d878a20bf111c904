"""A snapshot of the file: the time, queues, lanes, tasks and jobs as one step sees them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from windlass.broker.contract import Options
from windlass.broker.sqlite.handle import Handle, Row
from windlass.broker.sqlite.records import (
    CODES,
    NO_BODY,
    Body,
    Job,
    Lane,
    Queue,
    as_json,
    read_body,
    read_bucket,
)
from windlass.broker.sqlite.statements import statements
from windlass.core.session import store_time
from windlass.core.settings import (
    Kind,
    LaneSettings,
    QueueSettings,
    Retention,
    lane_policy,
    overlay,
    queue_policy,
)
from windlass.core.state import State
from windlass.core.units import JobId, Micros

SQL = statements("store")
_queue_settings = msgspec.msgpack.Decoder(QueueSettings)
_lane_settings = msgspec.msgpack.Decoder(LaneSettings)
_NO_LANE = (0, 0, 0, None, None, None, None)


class Counters(NamedTuple):
    """The row of `namespace`."""

    mark: Micros
    live: Micros
    swept_at: Micros | None
    left_work: int
    number: int
    version: int
    epoch: int
    bytes: int
    event_end: int
    edges: int
    absorbed: int


class Snapshot:
    """What a step can read. Records are made once per step, so that two parts of it never hold two of one
    job.
    """

    def __init__(self, handle: Handle, options: Options, clock: Micros) -> None:
        self.handle = handle
        self.options = options
        self._cursor = handle.cursor
        self.stored = Counters(*self._cursor.execute(SQL["namespace"]).fetchall()[0])
        handle.at(self.stored.epoch)
        self.mark: Micros = self.stored.mark
        self.clock = clock
        self.now = self.time(clock)
        self._jobs: dict[int, Job] = {}
        self._numbers: dict[JobId, int | None] = {}
        """The numbers of ids that were looked for; None: there is no such job."""
        self._queues: dict[int, Queue] = {}
        self._queue_numbers: dict[str, int] = {}
        self._lanes: dict[tuple[int, str], Lane] = {}

    def time(self, clock: Micros) -> Micros:
        """The time that every verb sees."""
        return store_time(clock, self.mark, self.options.session_ttl)

    @property
    def retention(self) -> Retention:
        """How long finished jobs are kept where a queue says nothing."""
        return self.options.retention or Retention()

    # statements

    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Every row of a statement."""
        return self._cursor.execute(sql, parameters).fetchall()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a statement."""
        rows = self.all(sql, parameters)
        return rows[0] if rows else None

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row; None if there is none."""
        rows = self.all(sql, parameters)
        return rows[0][0] if rows else None

    # jobs

    def record(self, job: JobId) -> Job | None:
        """The row of a job, be it kept or only remembered."""
        if job not in self._numbers:
            self.load([job])
        n = self._numbers[job]
        return None if n is None else self._jobs[n]

    def load(self, jobs: Iterable[JobId]) -> None:
        """Read the rows of jobs that a verb is about, in one statement."""
        unknown = [job for job in jobs if job not in self._numbers]
        if unknown:
            self._numbers.update(dict.fromkeys(unknown))
            for row in self.all(SQL["jobs_by_id"], (as_json(unknown),)):
                self.keep(row)

    def job(self, job: JobId) -> Job | None:
        """A job that is kept."""
        found = self.record(job)
        return found if found is not None and found.pruned_until is None else None

    def remembered(self, job: JobId) -> Job | None:
        """A job that is not kept, of which it is known how it ended."""
        found = self.record(job)
        remembers = found is not None and found.pruned_until is not None and self.now < found.pruned_until
        return found if remembers else None

    def find(self, n: int) -> Job | None:
        """The row of a job by the number of its arrival."""
        if n in self._jobs:
            return self._jobs[n]
        row = self.one(SQL["job_by_number"], (n,))
        return None if row is None else self.keep(row)

    def numbered(self, n: int) -> Job:
        """A job by the number of its arrival, which must be there."""
        job = self.find(n)
        assert job is not None, f"no job {n}"
        return job

    def keep(self, row: Row) -> Job:
        """The record of a row of `job`; the one that is known already, if there is one."""
        job = self._jobs.get(row[0])
        if job is None:
            job = self._jobs[row[0]] = Job(*row)
            self._numbers[job.id] = job.n
        return job

    def body(self, job: Job) -> Body:
        """What was asked for."""
        row = self.one(SQL["body"], (job.n,))
        return NO_BODY if row is None else read_body(row)

    def bare_body(self, job: Job) -> Body:
        """What was asked for, without the payload and its overflow pages."""
        row = self.one(SQL["bare_body"], (job.n,))
        return NO_BODY if row is None else read_body((*row, b""))

    # queues, lanes, tasks

    def queue(self, name: str) -> Queue | None:
        """A declared queue."""
        q = self._queue_numbers.get(name)
        if q is not None:
            return self._queues[q]
        row = self.one(SQL["queue_by_name"], (name,))
        return None if row is None else self._queue(row)

    def queue_of(self, q: int) -> Queue:
        """A queue by its number."""
        if q in self._queues:
            return self._queues[q]
        row = self.one(SQL["queue_by_number"], (q,))
        assert row is not None, f"no queue {q}"
        return self._queue(row)

    def queues(self) -> list[Queue]:
        """Every queue, in the order of declaration."""
        rows = self.all(SQL["queues"])
        return [self._queues.get(row[0]) or self._queue(row) for row in rows]

    def _queue(self, row: Row) -> Queue:
        q, name, laned, paused, running, *bucket = row
        queue = Queue(
            q, name, bool(laned), bool(paused), running, read_bucket(*bucket), self.policy_of(q, name)
        )
        self._queues[q] = queue
        self._queue_numbers[name] = q
        return queue

    def policy_of(self, q: int, name: str) -> Any:
        """The policy of a queue, kept in memory for as long as the file says that nothing changed."""
        policy = self.handle.policies.get(q)
        if policy is None:
            row = self.one(SQL["document"], (Kind.QUEUE.value, name, "")) or (None, None)
            layers = [None if layer is None else _queue_settings.decode(layer) for layer in row]
            policy = queue_policy(overlay(*layers), self.retention)
            self.handle.policies[q] = policy
        return policy

    def lane(self, queue: Queue, name: str) -> Lane:
        """A lane; with nothing in it if it was never used."""
        found = self._lanes.get((queue.q, name))
        if found is None:
            row = self.one(SQL["lane"], (queue.q, name))
            found = self.lane_of_row(queue, name, row or _NO_LANE)
            found.kept = row is not None
        return found

    def lane_of_row(self, queue: Queue, name: str, row: Sequence[Any]) -> Lane:
        """A lane of which a statement has brought the row, unless it is known already."""
        found = self._lanes.get((queue.q, name))
        if found is None:
            ready, running, paused, level, level_at, level_per, wake_at = row
            policy = self.lane_policy_of(queue, name)
            bucket = read_bucket(level, level_at, level_per)
            found = Lane(queue.q, name, ready, running, bool(paused), bucket, wake_at, policy, kept=True)
            self._lanes[queue.q, name] = found
        return found

    def lane_policy_of(self, queue: Queue, name: str) -> Any:
        """The policy of a lane, kept in memory like that of a queue."""
        policy = self.handle.lane_policies.get((queue.q, name))
        if policy is None:
            row = self.one(SQL["document"], (Kind.LANE.value, queue.name, name)) or (None, None)
            layers = [None if layer is None else _lane_settings.decode(layer) for layer in row]
            policy = lane_policy(overlay(*layers), queue.policy)
            self.handle.lane_policies[queue.q, name] = policy
        return policy

    def running_in(self, queue: Queue, lane: Lane) -> int:
        """Live leases of a lane. A queue that never had a lane keeps one count for both."""
        if queue.laned:
            return lane.running
        return queue.running if lane.name == "" else 0

    def counted(self, queue: Queue, state: State) -> int:
        """How many jobs of a queue are in a state."""
        return self.value(SQL["tally_of_queue"], (queue.q, CODES[state]))

    def known_task(self, name: str) -> int | None:
        """The number of a task that was ever enqueued."""
        t = self.handle.tasks.get(name)
        if t is None and (row := self.one(SQL["task_by_name"], (name,))) is not None:
            t, timed = row
            self._learn(t, name, timed)
        return t

    def task_name(self, t: int) -> str:
        """The name of a task."""
        name = self.handle.task_names.get(t)
        if name is None:
            row = self.one(SQL["task_by_number"], (t,))
            assert row is not None, f"no task {t}"
            name, timed = row
            self._learn(t, name, timed)
        return self.handle.task_names[t]

    def is_timed(self, t: int) -> bool:
        """Whether a run of a task was ever timed. It stays so, hence memory is right once it says yes."""
        if t not in self.handle.timed:
            row = self.one(SQL["task_by_number"], (t,))
            if row is not None and row[1]:
                self.handle.timed.add(t)
        return t in self.handle.timed

    def _learn(self, t: int, name: str, timed: int) -> None:
        self.handle.tasks[name] = t
        self.handle.task_names[t] = name
        if timed:
            self.handle.timed.add(t)
