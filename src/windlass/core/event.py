"""Events: small records of transitions, kept in a capped log for readers with a cursor."""

from enum import StrEnum

import msgspec

from windlass.core.outcome import Outcome
from windlass.core.state import TERMINAL, Move, Reason, State
from windlass.core.units import Cursor, Fence, JobId, Micros

FROM_START = Cursor("start")
"""The oldest event that is kept."""
FROM_NOW = Cursor("now")
"""After the newest event."""


class Emit(StrEnum):
    """What a queue writes to the event log."""

    NONE = "none"
    FINAL = "final"
    """Every end of a lease, and every terminal state."""
    ALL = "all"
    """Every transition."""


def is_logged(emit: Emit, before: State | None, after: State | None) -> bool:
    """Whether a queue logs a transition."""
    is_end = before is State.RUNNING or (after in TERMINAL and before not in TERMINAL)
    return emit is Emit.ALL or (emit is Emit.FINAL and is_end)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One transition of one job. It carries no payload, no error text and no result."""

    at: Micros
    job: JobId
    task: str
    queue: str
    lane: str
    move: Move
    before: State | None
    after: State | None
    reason: Reason | None = None
    outcome: Outcome | None = None
    attempt: int = 0
    fence: Fence = 0
    runtime: Micros | None = None
    """At the end of a lease: how long the task's code ran, if its holder said so."""
    waited: Micros | None = None
    """At a claim, and again at the end of the lease: from due to handed out."""


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the log."""

    items: tuple[Event, ...] = ()
    cursor: Cursor
    """Where to go on."""
    gap: bool = False
    """Events after the given cursor were dropped before they were read; the page starts at the oldest kept.
    """
