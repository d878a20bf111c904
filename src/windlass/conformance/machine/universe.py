"""The small world of the state machine: so few names that calls collide, and arguments short enough to read.

Jobs and sessions are numbers, a lease is the nth delivery of a job; what they stand for is looked up when a
step runs. So the steps that Hypothesis prints can be read, and shrink.
"""

from typing import NamedTuple

import msgspec

from windlass.core.job import Edge, Mode, NewJob, OnFailure
from windlass.core.outcome import Outcome
from windlass.core.units import HOUR, MILLISECOND, MINUTE, SECOND, JobId, Micros, SessionId

QUEUES = ("plain", "laned", "ordered")
"""No lanes; lanes with weights and limits; a layout of its own (sequence, aging or weighted bands)."""
NOWHERE = "nowhere"
"""A queue that nobody declares."""
LANES = ("", "a", "b")
TASKS = ("t", "u")
FIRST = 9
"""A priority that is higher than those of single jobs."""
KEYS = ("k1", "k2", "k3")
HOLD_KEYS = ("task:t", "task:u")
SCHEDULES = ("nightly", "hourly")
SOURCES = ("orders/0", "orders/1")
PLACES = ("1", "2", "3")
"""Offsets of a source."""
APPS = ("one", "two")
STRANGER = 99
"""The number of a job or a session that never exists."""

MOMENTS: tuple[Micros, ...] = (1, MILLISECOND, 250 * MILLISECOND, SECOND, 5 * SECOND)
STRETCHES: tuple[Micros, ...] = (31 * SECOND, 10 * MINUTE, 2 * HOUR, 8 * 24 * HOUR)


def job_id(number: int) -> JobId:
    """The id of a job, in the shape of a UUIDv7."""
    return f"01900000-0000-7000-8000-{number:012d}"


def job_number(job: JobId) -> int:
    """The number of a job's id."""
    return int(job[-12:])


def session_id(number: int) -> SessionId:
    """The id of a session."""
    return f"session-{number}"


class Wish(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A job to enqueue, in numbers."""

    job: int
    queue: str = "plain"
    task: str = "t"
    lane: str = ""
    priority: int = 0
    key: str | None = None
    mode: Mode = Mode.IGNORE
    window: Micros = 0
    delay: Micros = 0
    run_in: Micros | None = None
    """Becomes `run_at`: so long after the clock's time."""
    expires: Micros | None = None
    size: int = 0
    after: tuple[tuple[int, OnFailure], ...] = ()
    max_attempts: int = 5
    flow: str = ""

    def new_job(self, clock: Micros, call: int, nth: int = 0) -> NewJob:
        """The job as a producer hands it in, the nth of a call. All that tells those of one call apart which
        were wished alike are their ids and payloads: stores keep such jobs together.
        """
        return NewJob(
            id=job_id(self.job),
            task=self.task,
            queue=self.queue,
            lane=self.lane,
            priority=self.priority,
            key=self.key,
            mode=self.mode,
            window=self.window,
            delay=self.delay,
            run_at=None if self.run_in is None else clock + self.run_in,
            expires=self.expires,
            payload=f"{self.job}/{call}.{nth}/".encode().ljust(self.size, b"."),
            headers={"call": str(call)},
            tags=(self.task, f"call{call}"),
            after=tuple(Edge(job_id(parent), on_failure) for parent, on_failure in self.after),
            max_attempts=self.max_attempts,
            revision=call,
            flow=self.flow,
        )


class Word(NamedTuple):
    """The nth delivery of a job, from 1; 0 is one that was never made."""

    job: int
    delivery: int


class End(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A settlement, in numbers."""

    word: Word
    outcome: Outcome
    delay: Micros = 0
    ran: bool = True
    result: bool = True
    hold: str = HOLD_KEYS[0]
    spawn: tuple[Wish, ...] = ()


class Want(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What an ask of any session asks for."""

    queues: tuple[str, ...] = QUEUES
    slots: int = 3
    prefetch: int = 0
    soon: int = 0
    """So many beyond the slots, if there are so many to prefetch."""
    alone: bool = False
    max_bytes: int = 1_000
    draw: int = 0


class Round(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What a session does with the jobs that it has: all are done, except for some."""

    left: frozenset[int] = frozenset()
    """The nth of them, from 0, which it keeps."""
    odd: Outcome | None = None
    """The end of the last one, if it is another."""
    result: bool = False
    want: Want | None = None
    """What it asks for in the same step."""
