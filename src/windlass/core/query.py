"""Reading: queries, pages, counts, and why a job waits."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from windlass.core.job import JobView
from windlass.core.names import check_flow, check_lane, check_schedule
from windlass.core.outcome import Error
from windlass.core.state import State
from windlass.core.units import Cursor, JobId, Micros
from windlass.errors import InvalidOption

PAGE_ROWS = 1_000
AHEAD_LIMIT = 1_000
FIRST_PAGE = Cursor("")


_HIGHEST = 2**63 - 1


def number_in(cursor: Cursor) -> int:
    """The number that a cursor is, where places in a listing are numbers; `InvalidOption` for any other."""
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 20 and int(cursor) <= _HIGHEST):
        raise not_from_here()
    return int(cursor)


def lane_in(cursor: Cursor) -> str | None:
    """The lane that a cursor stands behind; None at the beginning. A sign before it keeps the lane "" apart
    from that.
    """
    if cursor == FIRST_PAGE:
        return None
    if not cursor.startswith(">"):
        raise not_from_here()
    try:
        return check_lane(cursor[1:])
    except InvalidOption:
        raise not_from_here() from None


def schedule_in(cursor: Cursor) -> str:
    """The name of the schedule that a cursor stands behind; empty at the beginning."""
    try:
        return cursor if cursor == FIRST_PAGE else check_schedule(cursor)
    except InvalidOption:
        raise not_from_here() from None


def flow_in(cursor: Cursor) -> str:
    """The flow that a cursor stands behind; empty at the beginning."""
    try:
        return cursor if cursor == FIRST_PAGE else check_flow(cursor)
    except InvalidOption:
        raise not_from_here() from None


def not_from_here() -> InvalidOption:
    """The error for a cursor that no page of a listing came with. It does not repeat the cursor."""
    return InvalidOption("this cursor is not from this listing; begin without one")


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The filters that every store applies to the rows it examines; it has an index for `flow`. All else
    filters pages of these, in `admin/`.
    """

    queue: str | None = None
    states: frozenset[State] = frozenset(State)
    task: str | None = None
    lane: str | None = None
    flow: str | None = None

    def matches(self, job: JobView) -> bool:
        """Whether a job is asked for."""
        return (
            job.state in self.states
            and self.queue in (None, job.queue)
            and self.task in (None, job.task)
            and self.lane in (None, job.lane)
            and self.flow in (None, job.flow)
        )


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a listing. Bounded by rows examined: it may be short, even empty, and still have a cursor."""

    jobs: tuple[JobView, ...] = ()
    cursor: Cursor | None = None
    """Where to go on; None at the end."""


class UnfinishedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with an unfinished job, and what stands in its way."""

    flow: str
    moving: bool
    """A job of it is ready, running, or scheduled and not held: it goes on by itself."""
    held: bool
    """A job of it is held: no worker can run it."""
    dead: bool
    """A job of it is a dead letter."""

    @property
    def stuck(self) -> bool:
        """Whether it needs somebody: nothing of it goes on by itself, and a dead letter or a hold is why."""
        return not self.moving and (self.held or self.dead)


class UnfinishedFlows(msgspec.Struct, frozen=True, kw_only=True):
    """A page of flows, in order of their names."""

    flows: tuple[UnfinishedFlow, ...] = ()
    cursor: Cursor | None = None


class Count(msgspec.Struct, frozen=True):
    """How many jobs of a task are in a state of a queue. For done and cancelled: how many ever got there."""

    queue: str
    task: str
    state: State
    count: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The size of everything."""

    rows: tuple[Count, ...] = ()
    oldest: Mapping[str, Micros] = {}
    """By queue: for how long its longest-waiting ready job has been due."""
    paused: tuple[str, ...] = ()
    """The queues that are paused, by name."""


class Parked(StrEnum):
    """Why a lane with ready jobs is out of the ring."""

    PAUSED = "paused"
    CONCURRENCY = "concurrency"
    RATE = "rate"


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """A lane that has ready or running jobs, settings, or is paused."""

    queue: str
    lane: str
    weight: int
    ready: int
    running: int
    lag: int
    """How far its clock is ahead of the ring's: what it has had in advance (the largest over its bands)."""
    concurrency: int | None
    tokens: int | None
    """Whole tokens at hand; None without a rate."""
    parked: Parked | None
    paused: bool


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """A page of lanes, in order of their names."""

    lanes: tuple[LaneView, ...] = ()
    cursor: Cursor | None = None


NO_RECORD: Final = (
    "it finished longer ago than jobs are kept (see retention), somebody discarded it, it never existed, or "
    "the store has lost it (restored from a backup, flushed)"
)
"""What it can mean that a store has no record of a job: it cannot tell which."""


class Why(StrEnum):
    """Why a job is not running, the first that applies."""

    UNKNOWN = "no such job"
    FINISHED = "it has finished"
    RUNNING = "it is running"
    PARENT_DEAD = "a parent is dead: replay or discard it"
    PARENTS = "its parents are not done"
    FOLLOWS = "the job before it under its key is running"
    HELD = "no worker can run it"
    RETRYING = "it failed and waits for its next attempt"
    NOT_DUE = "it is not due"
    QUEUE_PAUSED = "its queue is paused"
    LANE_PAUSED = "its lane is paused"
    SEQUENCE = "an earlier job of its lane is not finished"
    QUEUE_CONCURRENCY = "its queue is at its concurrency limit"
    QUEUE_RATE = "its queue is at its rate"
    LANE_CONCURRENCY = "its lane is at its concurrency limit"
    LANE_RATE = "its lane is at its rate"
    NO_WORKER = "no live worker serves its queue"
    SUSPECT = "it crashed its workers and waits to run alone"
    AHEAD = "jobs ahead of it in its lane go first"
    NEXT = "it is first in its lane"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job waits, for `windlass explain`."""

    job: JobId
    state: State | None
    why: Why
    detail: str = ""
    ahead: int = 0
    """Ready jobs of its lane that go first; counted up to 1,000."""
    next_in: Micros | None = None
    """When the reason passes by itself, where that is known."""
    error: Error | None = None
