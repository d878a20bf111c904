"""Everything that the model keeps, as plain records."""

from collections import deque
from dataclasses import dataclass, field

from windlass.broker.contract import Options
from windlass.broker.memory.bells import Bells
from windlass.clock import Clock
from windlass.core.bounds import FAN_OUT
from windlass.core.event import Event
from windlass.core.group import key_place
from windlass.core.job import Delivery, Edge, Held, Mode, Moved, NewJob, Progress, Receipt
from windlass.core.lease import is_live
from windlass.core.limits import Bucket
from windlass.core.order import Ring
from windlass.core.outcome import Cause, Error, Outcome
from windlass.core.session import SessionInfo, SessionState, liveness_move, store_time
from windlass.core.settings import Body, LanePolicy, QueuePolicy, Retention, Subject
from windlass.core.settlement import SUSPECT_AFTER, JobFacts
from windlass.core.state import Reason, State
from windlass.core.take import Offset
from windlass.core.timetable import FireRecord
from windlass.core.units import Fence, JobId, Micros, SessionId


@dataclass(slots=True)
class Job:
    """A job: what was asked for, and what has happened to it."""

    asked: NewJob
    accepted_at: Micros
    arrival: int
    due_at: Micros
    parent: JobId | None = None
    state: State | None = None
    reason: Reason | None = None
    band: int = 0
    sequence: int = 0
    attempt: int = 0
    crashes: int = 0
    fence: Fence = 0
    started: bool = False
    expires_at: Micros | None = None
    session: SessionId | None = None
    deadline: Micros | None = None
    claimed_at: Micros = 0
    finished_at: Micros | None = None
    cancel_requested: bool = False
    held: Held | None = None
    waiting_for: set[JobId] = field(default_factory=set[JobId])
    replays: int = 0
    progress: Progress | None = None
    logs: deque[str] = field(default_factory=deque[str])
    memos: dict[str, bytes] = field(default_factory=dict[str, bytes])
    result: bytes | None = None
    error: Error | None = None
    deliveries: deque[Delivery] = field(default_factory=lambda: deque[Delivery](maxlen=10))

    @property
    def id(self) -> JobId:
        """Its id."""
        return self.asked.id

    @property
    def suspect(self) -> bool:
        """Whether it runs alone."""
        return self.crashes >= SUSPECT_AFTER

    @property
    def size(self) -> int:
        """What counts against `max_size`."""
        return len(self.asked.payload) + len(self.result or b"")


@dataclass(slots=True)
class Lane:
    """A lane: the jobs that wait in it, how many of it run, its tokens."""

    name: str
    policy: LanePolicy
    ready: list[tuple[int, int, JobId]] = field(default_factory=list[tuple[int, int, JobId]])
    """(band, sequence, job) in order, without suspects."""
    line: list[tuple[int, JobId]] = field(default_factory=list[tuple[int, JobId]])
    """With `sequence`: (sequence, job) of everything in the lane, waiting or running."""
    suspects: list[tuple[int, JobId]] = field(default_factory=list[tuple[int, JobId]])
    running: int = 0
    bucket: Bucket | None = None
    paused: bool = False


@dataclass(slots=True)
class Queue:
    """A declared queue."""

    name: str
    policy: QueuePolicy
    lanes: dict[str, Lane] = field(default_factory=dict[str, Lane])
    rings: dict[int | None, Ring] = field(default_factory=dict[int | None, Ring])
    """By band; with lanes before bands there is one, under None."""
    laned: bool = False
    """It has had a lane: claims advance clocks."""
    running: int = 0
    bucket: Bucket | None = None
    paused: bool = False


@dataclass(slots=True)
class Session:
    """A session: when it was last heard of on the liveness clock, what it holds, its last ask."""

    info: SessionInfo
    opened_at: Micros
    seen: Micros
    state: SessionState = SessionState.ALIVE
    memory: int = 0
    leases: dict[JobId, Fence] = field(default_factory=dict[JobId, Fence])
    seq: int = 0
    replied: tuple[tuple[JobId, Fence], ...] = ()
    """What the last ask handed out, to answer it again."""
    cause: Cause | None = None
    started: frozenset[tuple[JobId, Fence]] = frozenset()
    ended_at: Micros = 0
    silent_for: Micros = 0


@dataclass(slots=True)
class Key:
    """A unique key: the job that holds it and, while that runs, the one that follows it."""

    holder: JobId
    mode: Mode
    window: Micros
    accepted_at: Micros
    follower: JobId | None = None
    until: Micros | None = None
    """Once its holder has finished: when it is free."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is left of a job that is not kept, for the resend window."""

    job: Job
    outcome: Outcome | None
    until: Micros


@dataclass(frozen=True, slots=True)
class Absorbed:
    """A call that a key answered, to answer it again."""

    receipt: Receipt
    until: Micros


@dataclass(slots=True)
class Layers:
    """A settings document."""

    declared: Body | None = None
    override: Body | None = None
    app: str = ""
    revision: int = 0
    version: int = 0


@dataclass(slots=True)
class Schedule:
    """A schedule."""

    declared: bytes | None = None
    override: bytes | None = None
    app: str = ""
    revision: int = 0
    version: int = 0
    next_at: Micros | None = None
    paused: bool = False
    fires: tuple[FireRecord, ...] = ()


@dataclass(slots=True)
class Fate:
    """A parent whose end its dependents have yet to be told."""

    parent: JobId
    state: State
    """done, dead (only `run` edges act) or cancelled (nothing more will come of it)."""


class Namespace:
    """The whole state of one namespace."""

    def __init__(self, clock: Clock, options: Options, retention: Retention) -> None:
        self.clock = clock
        self.options = options
        self.retention = retention
        self.bells = Bells()

        self.jobs: dict[JobId, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.keys: dict[tuple[str, str, str, str], Key] = {}
        self.remembered: dict[JobId, Remembered] = {}
        self.absorbed: dict[JobId, Absorbed] = {}
        self.edges: dict[JobId, dict[JobId, Edge]] = {}
        """Unresolved edges: parent to dependent."""
        self.dependents: dict[JobId, list[JobId]] = {}
        """Every dependent a parent ever had, resolved or not: it is kept while one of them is unfinished."""
        self.fates: deque[Fate] = deque()
        """Ends that sweep is to tell dependents."""
        self.telling: deque[Fate] | None = None
        """Where an end that comes about while dependents are told is put, instead of being told at once."""
        self.fan_out_left = 0
        """Dependents that the step under way may still be told."""
        self.sessions: dict[SessionId, Session] = {}
        self.layers: dict[Subject, Layers] = {}
        self.schedules: dict[str, Schedule] = {}
        self.offsets: dict[str, Offset] = {}
        """By the name of the source."""
        self.timed: set[str] = set()
        """Tasks of which a run was timed."""
        self.counts: dict[tuple[str, str, State], int] = {}

        self.moves: list[Moved] | None = None
        """The transitions of the step under way, for verbs that return them."""
        self.log: deque[Event] = deque()
        self.log_end = 0
        """The number of the next event."""

        self.mark: Micros = 0
        self.live: Micros = 0
        """The liveness clock."""
        self.swept_at: Micros | None = None
        self.sweep_left_work = False
        self._last_number = 0
        self.version = 0
        """Of all settings."""

    def begin_step(self) -> None:
        """A verb begins."""
        self.fan_out_left = FAN_OUT

    def now(self) -> Micros:
        """The time that every verb sees."""
        return store_time(self.clock.now(), self.mark, self.options.session_ttl)

    def liveness(self) -> Micros:
        """The liveness clock as of now: where a sweep would move it."""
        if self.swept_at is None:
            return self.live
        return self.live + liveness_move(self.now() - self.swept_at, self.options.session_ttl)

    def number(self) -> int:
        """The next number of the store's sequence."""
        self._last_number += 1
        return self._last_number

    def new_version(self) -> int:
        """A version that no document ever had."""
        self.version += 1
        return self.version

    def held_key(self, job: Job) -> Key | None:
        """The record of the key that a job holds; None if it has none, or another holds it."""
        place = key_place(job.asked)
        key = None if place is None else self.keys.get(place)
        return key if key is not None and key.holder == job.id else None

    def facts(self, job: Job) -> JobFacts:
        """What the rulings need to know of a running job."""
        key = self.held_key(job)
        return JobFacts(
            attempt=job.attempt,
            max_attempts=job.asked.max_attempts,
            crashes=job.crashes,
            cancel_requested=job.cancel_requested,
            superseded=key is not None and key.follower is not None,
            holds=0 if job.held is None else job.held.times,
            held_for=0 if job.held is None else self.now() - job.held.since,
        )

    def is_live(self, job: Job, fence: Fence) -> bool:
        """Whether this is the live lease of the job: the fence check on which everything rests."""
        alive = job.session is None or self.sessions[job.session].state is SessionState.ALIVE
        return is_live(job.state, job.fence, fence, session_alive=alive)

    def oldest_event(self) -> int:
        """The number of the oldest event that is kept."""
        return self.log_end - len(self.log)
