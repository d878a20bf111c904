"""The shortest way: one plain job, in one insert.

It writes the job's body, with its head packed beside it: one page to sync with the commit, where the table of
heads and its indexes, the counters (`number`, `bytes`, `tally`) and half a dozen statements would make seven.
Such a job is not filed yet. It stands behind the last number of the namespace; the next transaction of any
other kind files all of those (`Writing`), and so does this one when they have become many. Who only reads has
them filed before it looks for jobs (`Readers`).

What it does is what `bulk.accept` would do; whatever it does not know how to do, it leaves to that.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from windlass.broker.contract import Options
from windlass.broker.sqlite.handle import Handle, Row, Stood
from windlass.broker.sqlite.reading import seen_time
from windlass.broker.sqlite.records import READY, SCHEDULED, pack
from windlass.broker.sqlite.statements import statements
from windlass.core.event import Emit
from windlass.core.job import NewJob, Receipt, Status
from windlass.core.order import band_of
from windlass.core.units import Micros

_SQL = statements("single")
_STANDING, _UNFILED, _KNOWN, _ADD = _SQL["standing"], _SQL["unfiled"], _SQL["known"], _SQL["add"]
MOST_UNFILED: Final = 512
"""Numbers, two a job, behind the namespace's last one, up to which jobs stay unfiled: what it takes to file
them is the next caller's.
"""
MOST_BYTES: Final = 2_000
"""Of a payload: to file a job is to read its row, and larger ones have rows of several pages."""
_CREATED: Final = Status.CREATED
_ALL: Final = Emit.ALL
_head = msgspec.msgpack.Decoder(tuple[Any, ...])

Answer: TypeAlias = tuple[tuple[tuple[Receipt, ...], ...], str | None]
"""Receipts, and the queue that is to be woken."""


def alone(groups: Sequence[Sequence[NewJob]], full: str | None) -> NewJob | None:
    """The job of a call that consists of one, if it may go this way."""
    if len(groups) != 1 or len(groups[0]) != 1 or full is not None:
        return None
    job = groups[0][0]
    plain = job.key is None and not job.lane and job.run_at is None and not job.after
    return job if plain and len(job.payload) <= MOST_BYTES else None


def accept(handle: Handle, options: Options, clock: Micros, job: NewJob) -> Answer | None:
    """Create a job inside a transaction; None, and nothing is written, if it needs another way."""
    cursor, stood, t = handle.cursor, handle.stood, handle.tasks.get(job.task)
    if stood is None or stood[0] != job.queue or handle.stood_at != handle.connection.data_version():
        stood = _stood(handle, options, job.queue)  # somebody has written since the last one
    if stood is None or t is None:
        return None
    _, q, policy, mark, filed, number, numbered_at = stood
    now = clock if clock >= mark else seen_time(clock, mark, options)
    if now < numbered_at:
        return None  # the clock was set back: its place does not tell when it is due
    if number - filed > MOST_UNFILED:
        return None
    if job.id in handle.unfiled or cursor.execute(_KNOWN, (job.id,)).fetchall():
        return None
    n, due = number + 1, now + job.delay
    state = SCHEDULED if due > now else READY
    band = band_of(job.priority, due, policy.bands, policy.age_step) if state == READY else 0
    expires_at = None if job.expires is None else now + job.expires
    payload, headers, tags = job.payload, job.headers, job.tags
    head = (
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
    headers, tags = pack(headers) if headers else None, pack(tags) if tags else None
    cursor.execute(_ADD, (n, headers, tags, payload, pack(head)))
    handle.unfiled.add(job.id)
    handle.stood = job.queue, q, policy, mark, filed, n + 1, now
    return ((Receipt(_CREATED, job.id),),), job.queue if state == READY else None


def heads(handle: Handle, number: int) -> list[Row]:
    """The rows of `job` for what is not filed and stands behind a number, as `bulk.add_jobs` takes them."""
    rows = handle.cursor.execute(_UNFILED, (number,)).fetchall()
    return [(n, *_head.decode(head)) for n, head in rows]


def _stood(handle: Handle, options: Options, queue: str) -> Stood | None:
    """How things stand in the file for one more job of a queue; None if such jobs need another way."""
    rows = handle.cursor.execute(_STANDING, (queue,)).fetchall()
    if not rows:
        return None
    mark, filed, epoch, absorbed, numbered_at, q, laned = rows[0]
    handle.at(epoch)
    policy = handle.policies.get(q)
    if policy is None or policy.sequence or policy.emit is _ALL:
        return None
    if laned or absorbed or options.max_size is not None:
        return None
    if handle.unfiled_from != filed:
        handle.unfiled_from = handle.unfiled_to = filed
        handle.unfiled.clear()
    for n, job_id, _, _, accepted_at, *_ in heads(handle, handle.unfiled_to):
        handle.unfiled.add(job_id)
        handle.unfiled_to, handle.unfiled_at = n, accepted_at
    if handle.unfiled_to == filed:
        return queue, q, policy, mark, filed, filed, numbered_at
    return queue, q, policy, mark, filed, handle.unfiled_to + 1, handle.unfiled_at
