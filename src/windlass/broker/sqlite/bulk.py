"""The short way for what most calls are: jobs without keys and parents, in statements over the whole group.

What it does is what `enqueue.accept` would do job by job; anything it does not know how to do it leaves to
that.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import apsw

from windlass.broker.sqlite.records import READY, SCHEDULED, Queue, as_json, pack
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.writing import Writing
from windlass.core.event import Emit
from windlass.core.job import GROUP_BYTES, GROUP_JOBS, NewJob, Receipt, Status
from windlass.core.order import band_of

SQL = statements("bulk")

_Kind: TypeAlias = tuple[Any, ...]
"""What jobs may have in common, and what is worked out once for all of them."""
_kind_of = attrgetter(
    "queue",
    "task",
    "priority",
    "delay",
    "expires",
    "flow",
    "revision",
    "max_attempts",
    "lane",
    "key",
    "run_at",
)
_after_of = attrgetter("after")

_Place: TypeAlias = tuple[Any, ...]
"""Where the jobs of a kind stand: q, t, now, flow, revision, priority, max_attempts, state, band, due_at,
expires_at.
"""


def accept(tx: Writing, group: Sequence[NewJob]) -> tuple[Receipt, ...] | None:
    """Create the jobs of a group, or say that it needs the long way."""
    if len(group) > GROUP_JOBS or any(map(_after_of, group)) or tx.now < tx.numbered_at:
        return None
    kinds = list(map(_kind_of, group))
    different = set(kinds)
    queues = _queues(tx, different)
    if queues is None or _remembered(tx, group):
        return None
    size = sum([len(job.payload) for job in group])
    limit = tx.options.max_size
    if size > GROUP_BYTES or (limit is not None and tx.bytes + size > limit):
        return None
    places = {kind: _place(tx, queues[kind[0]], kind) for kind in different}
    tx.flush()
    if not _inserted(tx, group, kinds, places):
        return None
    tx.bytes += size
    for kind, count in Counter(kinds).items():
        q, t, _, _, _, _, _, state, *_ = places[kind]
        tx.count(q, t, state, count)
        if state == READY:
            tx.armed.add(kind[0])
    return tuple([Receipt(_CREATED, job.id) for job in group])


_CREATED = Status.CREATED


def _inserted(
    tx: Writing, group: Sequence[NewJob], kinds: Sequence[_Kind], places: Mapping[_Kind, _Place]
) -> bool:
    """Write heads and bodies; False, and none is written, if one of the ids is known."""
    cursor, several = tx.handle.cursor, len(group) > 1
    numbers = tx.numbers(2 * len(group))[::2]
    bodies = [
        (n, pack(job.headers) if job.headers else None, pack(job.tags) if job.tags else None, job.payload)
        for n, job in zip(numbers, group, strict=True)
    ]
    if several:
        cursor.execute("SAVEPOINT bulk")
    try:
        if several and len(places) == 1:
            # One step for all of them: 3 µs a job less than to bind and insert each.
            cursor.executemany(SQL["add_bodies"], bodies)
            ids = as_json([job.id for job in group])
            cursor.execute(SQL["add_alike"], (ids, numbers[0], *places[kinds[0]]))
        else:
            heads = [
                (n, job.id, *places[kind], n + 1, len(job.payload))
                for n, job, kind in zip(numbers, group, kinds, strict=True)
            ]
            cursor.executemany(SQL["add_jobs"], heads)
            cursor.executemany(SQL["add_bodies"], bodies)
    except apsw.ConstraintError:
        if several:
            cursor.execute("ROLLBACK TO bulk")
            cursor.execute("RELEASE bulk")
        tx.last_number -= 2 * len(group)
        return False
    # Whatever else is wrong ends the verb; on a full disk SQLite itself has taken back the transaction.
    if several:
        cursor.execute("RELEASE bulk")
    return True


def _remembered(tx: Writing, group: Sequence[NewJob]) -> bool:
    """Whether a key absorbed one of these calls before."""
    if not tx.absorbed:
        return False
    return tx.one(SQL["remembered"], (as_json([job.id for job in group]),)) is not None


def _queues(tx: Writing, kinds: Collection[_Kind]) -> dict[str, Queue] | None:
    """The queues of a group, if every job of it can go the short way."""
    queues: dict[str, Queue] = {}
    for name, *_, lane, key, run_at in kinds:
        if key is not None or lane or run_at is not None:
            return None
        if name not in queues:
            queue = tx.queue(name)
            if queue is None or queue.laned or queue.policy.sequence or queue.policy.emit is Emit.ALL:
                return None
            queues[name] = queue
    return queues


def _place(tx: Writing, queue: Queue, kind: _Kind) -> _Place:
    _, task, priority, delay, expires, flow, revision, max_attempts, *_ = kind
    now, due, policy = tx.now, tx.now + delay, queue.policy
    state = SCHEDULED if due > now else READY
    band = band_of(priority, due, policy.bands, policy.age_step) if state == READY else 0
    expires_at = None if expires is None else now + expires
    t = tx.task(task)
    return (queue.q, t, now, flow, revision, priority, max_attempts, state, band, due, expires_at)
