"""The shortest way: one plain job, in two inserts.

It writes none of the counters. What a namespace counts (`number`, `bytes`, `tally`) would be two more pages
to sync with every commit, and half a dozen statements; instead the jobs behind the last number of the
namespace count as not yet counted. Whoever reads counters adds them (`Reading.uncounted`), and the next
transaction of any other kind, or this one when they have become many, writes them down.

What it does is what `bulk.accept` would do; whatever it does not know how to do, it leaves to that.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import apsw

from windlass.broker.contract import Options
from windlass.broker.sqlite.handle import Handle, Stood
from windlass.broker.sqlite.reading import seen_time
from windlass.broker.sqlite.records import READY, SCHEDULED, pack
from windlass.broker.sqlite.statements import statements
from windlass.core.event import Emit
from windlass.core.job import GROUP_BYTES, NewJob, Receipt, Status
from windlass.core.order import band_of
from windlass.core.units import Micros

_SQL = statements("bulk")
_STANDING, _ADD_JOB, _ADD_BODY = _SQL["standing"], _SQL["add_jobs"], _SQL["add_bodies"]
MOST_UNCOUNTED: Final = 1_024
"""Numbers, two a job, behind the namespace's last one, up to which jobs stay uncounted: what it takes to
count them is the next caller's.
"""
_CREATED: Final = Status.CREATED
_ALL: Final = Emit.ALL

Answer: TypeAlias = tuple[tuple[tuple[Receipt, ...], ...], str | None]
"""Receipts, and the queue that is to be woken."""


def alone(groups: Sequence[Sequence[NewJob]], full: str | None) -> NewJob | None:
    """The job of a call that consists of one, if it may go this way."""
    if len(groups) != 1 or len(groups[0]) != 1 or full is not None:
        return None
    job = groups[0][0]
    plain = job.key is None and not job.lane and job.run_at is None and not job.after
    return job if plain and len(job.payload) <= GROUP_BYTES else None


def accept(handle: Handle, options: Options, clock: Micros, job: NewJob) -> Answer | None:
    """Create a job inside a transaction; None, and nothing is written, if it needs another way."""
    cursor, stood, t = handle.cursor, handle.stood, handle.tasks.get(job.task)
    if stood is None or stood[0] != job.queue or handle.stood_at != handle.connection.data_version():
        stood = _stood(handle, options, job.queue)  # somebody has written since the last one
    if stood is None or t is None:
        return None
    _, q, policy, mark, counted, number, numbered_at = stood
    now = seen_time(clock, mark, options)
    if now < numbered_at:
        return None  # the clock was set back: its place does not tell when it is due
    if number - counted > MOST_UNCOUNTED:
        return None
    n, due = number + 1, now + job.delay
    state = SCHEDULED if due > now else READY
    band = band_of(job.priority, due, policy.bands, policy.age_step) if state == READY else 0
    expires_at = None if job.expires is None else now + job.expires
    payload, headers, tags = job.payload, job.headers, job.tags
    head = (
        n,
        job.id,
        q,
        t,
        now,
        job.flow,
        job.revision,
        job.priority,
        job.max_attempts,
        state,
        band,
        due,
        expires_at,
        n + 1,
        len(payload),
    )
    try:
        cursor.execute(_ADD_JOB, head)
    except apsw.ConstraintError:
        return None  # the id is known
    cursor.execute(_ADD_BODY, (n, pack(headers) if headers else None, pack(tags) if tags else None, payload))
    handle.stood = job.queue, q, policy, mark, counted, n + 1, now
    return ((Receipt(_CREATED, job.id),),), job.queue if state == READY else None


def _stood(handle: Handle, options: Options, queue: str) -> Stood | None:
    """How things stand in the file for one more job of a queue; None if such jobs need another way."""
    rows = handle.cursor.execute(_STANDING, (queue,)).fetchall()
    if not rows:
        return None
    mark, counted, epoch, absorbed, numbered_at, newest, newest_at, q, laned = rows[0]
    handle.at(epoch)
    policy = handle.policies.get(q)
    if policy is None or policy.sequence or policy.emit is _ALL:
        return None
    if laned or absorbed or options.max_size is not None:
        return None
    if newest is None:
        return queue, q, policy, mark, counted, counted, numbered_at
    return queue, q, policy, mark, counted, newest + 1, newest_at
