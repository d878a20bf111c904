"""Sessions: one boot of one worker process, alive while it beats."""

from enum import StrEnum

import msgspec

from windlass.core.job import Moved
from windlass.core.outcome import Cause
from windlass.core.units import HOUR, SECOND, Fence, JobId, Micros, SessionId

SESSION_TTL: Micros = 30 * SECOND
OUTAGE_STEP: Micros = SECOND
"""What the first sweep after an outage moves the liveness clock by."""
OUTAGE_SHARE = 5
"""A gap between two sweeps is an outage if it is longer than this part of the TTL."""


def store_time(clock: Micros, mark: Micros, ttl: Micros) -> Micros:
    """The time that a verb sees: never before `mark`, the time of the last sweep. But a clock that was set
    back by more than a TTL is followed.
    """
    return clock if clock + ttl < mark else max(clock, mark)


def is_early(elapsed: Micros | None, every: Micros, *, left_work: bool) -> bool:
    """Whether a sweep comes too soon after the last one to do anything. `elapsed`: None before the first."""
    return elapsed is not None and 0 <= elapsed < every and not left_work


def liveness_move(elapsed: Micros, ttl: Micros) -> Micros:
    """How far a sweep moves the liveness clock, so long after the sweep before it.

    By all of that time while sweeps follow each other closely. In a longer gap nobody swept: the store was
    away, and sessions could not beat either. It counts as a second, so that it reaps nobody.
    """
    return max(0, elapsed) if elapsed <= max(OUTAGE_STEP, ttl // OUTAGE_SHARE) else OUTAGE_STEP


ENDED_KEPT: Micros = HOUR
"""How long an ended session is remembered, so that it cannot be opened again and operators can read its
cause.
"""
END_LEASES = 1_000
"""Leases that one `end_session` or sweep step returns."""


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who a session is, told once when it opens."""

    host: str = ""
    boot: str = ""
    """Boot id of the machine: with pid namespace, pid and start time it names a process for good."""
    pid_namespace: str = ""
    pid: int = 0
    process_started: int = 0
    supervisor: str = ""
    app: str = ""
    version: str = ""
    queues: tuple[str, ...] = ()
    slots: int = 0
    ttl: Micros = SESSION_TTL


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life. With `open` it creates the session; nothing else does."""

    session: SessionId
    open: SessionInfo | None = None
    memory: int = 0
    """Resident bytes, for operators."""


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a beat."""

    session: SessionId
    alive: bool
    cancel: tuple[tuple[JobId, Fence], ...] = ()
    """Leases of this session that are to be cancelled (up to 1,000)."""
    settings: int = 0
    """The version of the namespace's settings: when it changes, read strikes and limits again."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What ending a session did."""

    known: bool
    moved: tuple[Moved, ...] = ()
    """Every transition of the step: its leases, and what their ends brought about."""
    more: bool = False
    """Leases are left; call again or let sweep go on. Cause and started jobs are remembered from the first
    call.
    """


class SessionState(StrEnum):
    """Whether a session can hold leases."""

    ALIVE = "alive"
    ENDED = "ended"


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session as operators see it ("worker" in API and dashboard)."""

    id: SessionId
    info: SessionInfo
    state: SessionState
    opened_at: Micros
    silent_for: Micros
    """On the liveness clock: what counts against its TTL."""
    leases: int
    memory: int
    cause: Cause | None = None


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something a running job says about itself; kept only if `(job, fence)` is its live lease."""

    job: JobId
    fence: Fence
    extend: Micros | None = None
    """Deadline leases: let it run out this long from now. A session lease has no deadline: nothing to do."""
    permille: int | None = None
    message: str = ""
    logs: tuple[str, ...] = ()
    memo: tuple[str, bytes] | None = None


OVERDUE = 100
"""Dead letters of a queue that one sweep names as overdue."""
LOG_LINES = 100
LOG_LINE_CHARS = 2_000
MEMOS = 100
MEMO_BYTES = 1024 * 1024


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What one sweep did."""

    promoted: int = 0
    reaped: tuple[SessionId, ...] = ()
    moved: tuple[Moved, ...] = ()
    """Every transition of the pass but those of due jobs, which are only counted."""
    pruned: int = 0
    overdue: tuple[JobId, ...] = ()
    """Dead letters whose time is over, and which were to be left: who archives them discards them."""
    more: bool = False
    schedules_due: bool = False
    early: bool = False
    """It came within `every` of the last pass and did nothing."""
    since: Micros = 0
    """The time since the last pass: janitors pace themselves by it."""
    stepped_back: Micros = 0
    """The store's clock was found so far behind its mark that it is followed: log it."""
