"""Jobs that differ in id and body only, accepted by two statements, however many they are.

This is the second code path of enqueue, beside `enqueue.accept`. It takes what most programs send, one job or
thousands: new jobs of one task, without keys, parents and lanes. Everything else it leaves to the other.
"""

from collections.abc import Sequence
from operator import attrgetter

from windlass.broker.sqlite.records import READY, SCHEDULED, Queue, as_json, pack
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.event import Emit
from windlass.core.group import too_large
from windlass.core.job import NewJob, Receipt, Status, due_at
from windlass.core.order import band_of

SQL = statements("jobs")
_kind_of = attrgetter(
    "queue",
    "task",
    "lane",
    "key",
    "after",
    "priority",
    "delay",
    "run_at",
    "expires",
    "flow",
    "revision",
    "max_attempts",
)
"""What the jobs must have in common."""


def accept_alike(tx: Transaction, group: Sequence[NewJob]) -> tuple[Receipt, ...] | None:
    """Create the jobs of a group that may be accepted. Returns None if it needs the general code path."""
    if not group or too_large(group) or len(set(map(_kind_of, group))) > 1:
        return None
    first, queue = group[0], tx.queue(group[0].queue)
    if queue is None or not _is_plain(first, queue):
        return None
    ids = [job.id for job in group]
    if len(set(ids)) < len(ids) or tx.one(SQL["known_ids"], (as_json(ids),)) is not None:
        return None
    numbers = tx.numbers(2 * len(group))[: len(group)]
    due = due_at(first, tx.now)
    state = SCHEDULED if due > tx.now else READY
    band = band_of(first.priority, due, queue.policy.bands, queue.policy.age_step) if state == READY else 0
    t = tx.task(first.task)
    bodies = [
        (n, pack(job.headers) if job.headers else None, pack(job.tags) if job.tags else None, job.payload)
        for n, job in zip(numbers, group, strict=True)
    ]
    head = (
        as_json(ids),
        numbers[0],
        len(ids),
        queue.q,
        t,
        tx.now,
        first.flow,
        first.revision,
        first.priority,
        first.max_attempts,
        state,
        band,
        due,
        None if first.expires is None else tx.now + first.expires,
    )
    tx.many(SQL["add_plain_bodies"], bodies)
    tx.run(SQL["add_alike"], head)
    tx.look_again(ids)
    tx.bytes += sum([len(job.payload) for job in group])
    tx.count(queue.q, t, state, len(ids))
    if state == READY:
        tx.armed.add(queue.name)
    created = Status.CREATED
    return tuple([Receipt(created, job) for job in ids])


def _is_plain(job: NewJob, queue: Queue) -> bool:
    plain = job.key is None and not job.after and not job.lane and job.run_at is None
    return plain and not (queue.laned or queue.policy.sequence or queue.policy.emit is Emit.ALL)
