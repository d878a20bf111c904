"""Schedules as a store keeps them: a specification it does not read, and the next time it is due.

The worker or server that fires computes the next tick (`windlass.core.schedule`). The store only compares and
sets it, together with the jobs of the tick. So any number of workers may fire, and no leader is needed.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from windlass.core.job import NewJob, Receipt
from windlass.core.units import Cursor, JobId, Micros

FIRES_KEPT = 20


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as code declares it, or an operator writes it."""

    name: str
    spec: bytes
    next_at: Micros | None
    """The first tick under this specification; None: it never fires."""
    app: str = ""
    revision: int = 0


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """The wish to fire: moves `next_at` from `expect` to `then` and enqueues `jobs` as one group, or does
    nothing.
    """

    name: str
    version: int
    """Of the specification that the tick was computed from."""
    expect: Micros
    then: Micros | None
    jobs: tuple[NewJob, ...] = ()
    """One for each tick that makes a job."""
    missed: int = 0
    """How many ticks make no job, whatever the store finds."""
    unless_waiting: bool = False
    """Make no job while an earlier job of this schedule is due and has never started."""


class FireStatus(StrEnum):
    """What became of a wish to fire."""

    FIRED = "fired"
    MISSED = "missed"
    """The tick was taken and made no job: an earlier job of the schedule has never started."""
    RACED = "raced"
    """Another fired this tick, or the schedule was changed: read it again."""
    NOT_DUE = "not due"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    """Enqueue refused the jobs; the tick was not taken."""


class Fired(msgspec.Struct, frozen=True):
    """The answer to a wish to fire."""

    status: FireStatus
    receipts: tuple[Receipt, ...] = ()


class FireRecord(msgspec.Struct, frozen=True):
    """One fire in a schedule's history, or a run of fires that made no job."""

    tick: Micros
    """The first, if there were several."""
    at: Micros
    """When the store took the tick; the last, if there were several."""
    jobs: tuple[JobId, ...]
    missed: int = 0
    """How many ticks made no job."""


def with_fire(fires: Sequence[FireRecord], new: FireRecord) -> tuple[FireRecord, ...]:
    """The latest fires with one more. A run of fires without a job is one record.

    With a record for each, twenty of them would push out the fire whose job has not started, or still runs,
    and the next tick would make another job.
    """
    last = fires[-1] if fires else None
    if last is None or last.jobs or new.jobs:
        return (*fires, new)[-FIRES_KEPT:]
    return (*fires[:-1], FireRecord(last.tick, new.at, (), last.missed + new.missed))


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with both its layers. The override wins until it is reset."""

    name: str
    declared: bytes | None
    override: bytes | None
    version: int
    """Grows when the specification in force changes; not when it fires."""
    next_at: Micros | None
    paused: bool
    app: str
    revision: int
    fires: tuple[FireRecord, ...] = ()
    """The latest, newest last."""

    @property
    def spec(self) -> bytes:
        """The specification in force."""
        return (self.declared or b"") if self.override is None else self.override


class Schedules(msgspec.Struct, frozen=True, kw_only=True):
    """A page of schedules, in order of their names, with the store's time to compare their ticks with."""

    now: Micros
    schedules: tuple[ScheduleView, ...] = ()
    cursor: Cursor | None = None
