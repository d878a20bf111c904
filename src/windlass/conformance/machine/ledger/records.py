"""What the ledger keeps: jobs that were accepted, leases that were given, sessions that were opened."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from windlass.broker.contract import Options
from windlass.clock import Clock
from windlass.conformance.machine.ledger.rates import Rates
from windlass.conformance.machine.ledger.settings import Settings
from windlass.conformance.machine.ledger.time import Timekeeper
from windlass.conformance.machine.snapshot import Snapshot
from windlass.conformance.machine.violated import require
from windlass.core.job import JobDetail, NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Cause, Error, Outcome
from windlass.core.state import State
from windlass.core.take import Offset
from windlass.core.units import Fence, JobId, Micros, SessionId


class Lent(msgspec.Struct, kw_only=True, eq=False):
    """A lease that was given, and how it ended."""

    job: JobId
    fence: Fence
    session: SessionId | None
    deadline: Micros | None
    claimed_at: Micros
    queue: str
    lane: str
    pristine: bool = False
    """Nothing had happened to its job before."""
    outcome: Outcome | None = None
    """How it ended; None while it is live."""
    settled: bool = False
    """Its holder said so."""
    had_started: bool = False
    revoked: bool = False
    """Its session has ended, but not yet the lease: a bounded sweep left it for the next."""


class Tie(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A parent, as it was when its child was accepted."""

    parent: "Entry"
    """That job, whatever may come under its id later."""
    replays: int
    """How often it had been replayed by then."""
    known: bool
    """It was there, or the memory of its end; of one that a key still names nothing need be left."""


class Entry(msgspec.Struct, kw_only=True, eq=False):
    """A job that was accepted, as it must be now."""

    job: NewJob
    accepted_at: Micros
    due: Micros
    expires_at: Micros | None
    order: int
    """Accepted as the nth."""
    parent: JobId | None = None
    ties: dict[JobId, Tie] = {}
    """By the parents of its edges."""
    lent: list[Lent] = []
    attempt: int = 0
    crashes: int = 0
    flagged: bool = False
    """Cancel was asked for while it ran."""
    started: bool = False
    """Its first start is behind it, so that it cannot expire any more."""
    first_held: Micros | None = None
    results: dict[Fence, bytes | None] = {}
    """By the fence that was done."""
    memos: dict[str, bytes] = {}
    unfit: Error | None = None
    """It was born dead, for this."""
    final: State | None = None
    """The terminal state it is in, or was in when its record went."""
    pristine: bool = True
    """Nothing happened to it since it was accepted, so that its place is its order."""
    placed: bool = True
    """It has the place that it took when it was accepted: what counts in a queue with `sequence`."""
    keeps_key: bool = True
    """It holds its key as it was enqueued: it was neither replaced nor replayed."""
    overspent: bool = False
    """An operator lowered its attempts to fewer than it had used."""

    @property
    def id(self) -> JobId:
        """The job's id."""
        return self.job.id

    @property
    def live(self) -> Lent | None:
        """The lease under which it runs."""
        return self.lent[-1] if self.lent and self.lent[-1].outcome is None else None

    def find(self, fence: Fence) -> Lent | None:
        """The delivery with this fence."""
        return next((lent for lent in self.lent if lent.fence == fence), None)


class Absorbed(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a key absorbed: by which job, and until when that must be remembered."""

    of: JobId
    until: Micros
    sure: bool = True
    """That time has not come yet. Once it has, a clock that goes back may bring the memory up again."""


class Seat(msgspec.Struct, kw_only=True, eq=False):
    """A session that was opened."""

    id: SessionId
    ttl: Micros
    stamp: Micros
    """The liveness clock at its last beat."""
    opened_at: Micros
    ended_at: Micros | None = None
    cause: Cause | None = None
    ask: Ask | None = None
    """The last one that was answered."""
    reply: list[Lent] = []

    @property
    def alive(self) -> bool:
        """Whether it can hold leases."""
        return self.ended_at is None

    @property
    def seq(self) -> int:
        """The count of its last ask."""
        return 0 if self.ask is None or self.ask.seq is None else self.ask.seq


class Ledger:
    """Everything that was accepted, given out and said."""

    def __init__(self, clock: Clock, options: Options) -> None:
        assert options.retention is not None, "a store's own defaults would differ from the model's"
        self.options = options
        self.time = Timekeeper(clock, options.session_ttl)
        self.settings = Settings(options.retention)
        self.rates = Rates()
        self.entries: dict[JobId, Entry] = {}
        self.fences: dict[JobId, list[Fence]] = defaultdict(list)
        """Every fence ever given, also of an earlier job under the same id."""
        self.earlier_keys: dict[JobId, set[object]] = defaultdict(set)
        """Keys of earlier jobs under the same id: they may outlive those jobs, for their windows."""
        self.absorbed: dict[JobId, Absorbed] = {}
        """Calls that a key absorbed."""
        self.seats: dict[SessionId, Seat] = {}
        self.timed: set[str] = set()
        self.ends: Counter[tuple[str, str, State]] = Counter()
        """Transitions to done and to cancelled."""
        self.offsets: dict[str, Offset] = {}
        """By the name of the source."""
        self.ticks: set[tuple[str, int, Micros]] = set()
        self.created: set[JobId] = set()
        """Jobs that came into being in this step."""
        self.tentative: set[JobId] = set()
        """Children that a key may have absorbed."""
        self.removed: set[JobId] = set()
        """Jobs whose record an operator removed in this step."""
        self.touched: set[JobId] = set()
        """Jobs that the verbs of this step named and changed."""
        self.restated: set[str] = set()
        """Queues whose settings changed in this step."""
        self.lent_now: list[Lent] = []
        """Leases that this step gave."""
        self.finished_at: dict[JobId, Micros] = {}
        self.last = Snapshot()
        self._orders = 0

    def begin_step(self) -> None:
        """Forget what concerned the step before alone."""
        for noted in (self.created, self.tentative, self.removed, self.touched, self.restated, self.lent_now):
            noted.clear()

    def next_order(self) -> int:
        """Count an acceptance."""
        self._orders += 1
        return self._orders

    def view(self, job: JobId) -> JobDetail | None:
        """A job as it could be read after the last step."""
        return self.last.jobs.get(job)

    def kept(self, job: JobId) -> bool:
        """Whether the job's record was there after the last step (more than the memory of how it ended)."""
        view = self.view(job)
        return view is not None and not view.pruned

    def entry(self, job: JobId) -> Entry:
        """A job that must have been accepted."""
        require("nothing runs that was not enqueued", job in self.entries, job)
        return self.entries[job]

    def live(self, queue: str | None = None, lane: str | None = None) -> Iterator[Lent]:
        """The live leases, of a queue or of one of its lanes."""
        for entry in self.entries.values():
            lent = entry.live
            if lent is not None and queue in (None, lent.queue) and lane in (None, lent.lane):
                yield lent

    def held_by(self, session: SessionId) -> list[Lent]:
        """The live leases of a session."""
        return [lent for lent in self.live() if lent.session == session]

    def follower(self, entry: Entry) -> Entry | None:
        """The newest call under the key of a running job, which waits for it to end."""
        if entry.job.key is None:
            return None
        for other in self.entries.values():
            view = self.view(other.id)
            follows = view is not None and view.state is State.BLOCKED and not other.job.after
            if follows and other is not entry and key_of(other.job) == key_of(entry.job):
                return other
        return None


def key_of(job: NewJob) -> tuple[str, str, str, str | None]:
    """What a key is unique in."""
    return (job.queue, job.lane, job.task, job.key)
