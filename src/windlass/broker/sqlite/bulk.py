"""The short way for what most calls are: jobs without keys and parents, in statements over the whole group.

What it does is what `enqueue.accept` would do job by job; anything it does not know how to do it leaves to
that.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from windlass.broker.sqlite.records import READY, SCHEDULED, Queue, pack
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.writing import Writing
from windlass.core.event import Emit
from windlass.core.job import GROUP_BYTES, GROUP_JOBS, NewJob, Receipt, Status
from windlass.core.order import band_of

SQL = statements("bulk")


def accept(tx: Writing, group: Sequence[NewJob]) -> tuple[Receipt, ...] | None:
    """Create the jobs of a group, or say that it needs the long way."""
    queues = _queues(tx, group)
    if queues is None or _remembered(tx, group):
        return None
    size = sum(len(job.payload) for job in group)
    limit = tx.options.max_size
    if size > GROUP_BYTES or (limit is not None and tx.bytes + size > limit):
        return None
    heads, bodies, filed, counts = _rows(tx, group, queues)
    tx.flush()
    if not _inserted(tx, heads):
        tx.last_number -= 2 * len(group)
        return None
    tx.handle.cursor.executemany(SQL["add_bodies"], bodies)
    tx.bytes += size
    for place, by in counts.items():
        tx.count(*place, by)
    tx.armed |= filed
    return tuple([Receipt(Status.CREATED, job.id) for job in group])


def _inserted(tx: Writing, heads: list[tuple[Any, ...]]) -> bool:
    """Write the heads; False, and none is written, if one of their ids is known."""
    cursor = tx.handle.cursor
    several = len(heads) > 1
    if several:
        cursor.execute("SAVEPOINT bulk")
    try:
        cursor.executemany(SQL["add_jobs"], heads)
    except apsw.ConstraintError:
        if several:
            cursor.execute("ROLLBACK TO bulk")
        return False
    finally:
        if several:
            cursor.execute("RELEASE bulk")
    return True


def _remembered(tx: Writing, group: Sequence[NewJob]) -> bool:
    """Whether a key absorbed one of these calls before, or somebody waits for one of these ids."""
    if not tx.absorbed and not tx.edges:
        return False
    return tx.one(SQL["remembered"], (json.dumps([job.id for job in group]),)) is not None


def _queues(tx: Writing, group: Sequence[NewJob]) -> dict[str, Queue] | None:
    """The queues of a group, if every job of it can go the short way."""
    if len(group) > GROUP_JOBS:
        return None
    queues: dict[str, Queue] = {}
    for job in group:
        if job.key is not None or job.after or job.lane or job.run_at is not None:
            return None
        if job.queue not in queues:
            queue = tx.queue(job.queue)
            if queue is None or queue.laned or queue.policy.sequence or queue.policy.emit is Emit.ALL:
                return None
            queues[job.queue] = queue
    return queues


def _rows(
    tx: Writing, group: Sequence[NewJob], queues: dict[str, Queue]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], set[str], Mapping[tuple[int, int, int], int]]:
    """Rows of heads and bodies, the queues in which something became ready, and how many are where."""
    now = tx.now
    heads: list[tuple[Any, ...]] = []
    bodies: list[tuple[Any, ...]] = []
    filed: set[str] = set()
    counts: Counter[tuple[int, int, int]] = Counter()
    numbers = iter(tx.numbers(2 * len(group)))
    kind: tuple[Any, ...] = ()
    q = t = due = state = band = 0
    expires_at: int | None = None
    alike = 0
    """Jobs in a row that differ in id and body alone: what they have in common is worked out once."""
    for job, n, sequence in zip(group, numbers, numbers, strict=False):
        asked = (job.queue, job.task, job.priority, job.delay, job.expires)
        if asked != kind:
            counts[q, t, state] += alike
            kind, alike = asked, 0
            queue = queues[job.queue]
            q, t, due = queue.q, tx.task(job.task), now + job.delay
            state = SCHEDULED if due > now else READY
            band = 0
            if state == READY:
                band = band_of(job.priority, due, queue.policy.bands, queue.policy.age_step)
                filed.add(job.queue)
            expires_at = None if job.expires is None else now + job.expires
        alike += 1
        payload, headers, tags = job.payload, job.headers, job.tags
        heads.append(
            (
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
                sequence,
                due,
                expires_at,
                len(payload),
            )
        )
        bodies.append((n, pack(headers) if headers else None, pack(tags) if tags else None, payload))
    counts[q, t, state] += alike
    return heads, bodies, filed, +counts
