"""The short way of a claim: a queue without lanes and limits hands out its first jobs in one statement."""

from collections import Counter
from collections.abc import Iterable
from itertools import repeat

import msgspec

from windlass.broker.sqlite import lifecycle
from windlass.broker.sqlite.handle import MOST_LEASES, MOST_STRETCHES, Row
from windlass.broker.sqlite.records import (
    MEMOS,
    READY,
    RUNNING,
    Queue,
    as_json,
    read_after,
    read_headers,
    read_tags,
)
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.writing import Writing
from windlass.core.event import Emit, Event
from windlass.core.lease import Ask, Lease
from windlass.core.state import Move, State
from windlass.core.units import Fence

SQL = statements("claim")
MEMO_SQL = statements("jobs")


class Bound:
    """What one claim has handed out, and may hand out yet."""

    def __init__(self, tx: Writing, ask: Ask, left: int) -> None:
        self.ask = ask
        self.tasks = Tasks(tx)
        self.left = left
        """Due and expired jobs that it may still look after."""
        self.leases: list[Lease] = []
        self.replied: list[tuple[int, Fence]] = []
        """The numbers and fences of the leases: what the session's record keeps of the reply."""
        self.bytes = 0

    def add(self, n: int, lease: Lease) -> None:
        """Hand out a job."""
        self.leases.append(lease)
        self.replied.append((n, lease.fence))

    def admits(self, room: int, size: int) -> bool:
        """Whether one more job fits: `room` jobs may be handed out up to it, and its payload is so long."""
        if len(self.leases) >= room:
            return False
        self.bytes += size
        return not self.leases or self.bytes <= self.ask.max_bytes


def is_plain(tx: Writing, queue: Queue) -> bool:
    """Whether the order of a queue is that of its index, and nothing but a pause stands before a job."""
    return queue.unlimited and not queue.policy.bands and (queue.paused or not tx.lane(queue, "").paused)


def hand_out_plain(tx: Writing, queue: Queue, bound: Bound, s: int | None) -> bool:
    """Hand out what a plain queue has; whether a bound stopped it."""
    if queue.paused:
        return False
    while True:
        # One more than fits, so that a claim that is cut short can say so.
        wanted = bound.ask.limit - len(bound.leases) + 1
        rows = tx.each(SQL["ready_jobs"], (queue.q, wanted))
        taken, stopped, expired = choose(tx, queue, "", rows, bound, bound.ask.limit, s)
        if taken:
            queue.running += len(taken)
            if s is None or not _write_stretch(tx, queue, taken, bound, s):
                write_leases(tx, queue, taken, repeat(""), bound.ask, s)
        if expired is not None:
            lifecycle.expire(tx, tx.numbered(expired))
            bound.left -= 1
            if bound.left < 0:
                return True
            continue
        return stopped


def choose(
    tx: Writing, queue: Queue, lane: str, rows: Iterable[Row], bound: Bound, room: int, s: int | None
) -> tuple[list[Row], bool, int | None]:
    """The rows of a lane to hand out, to the first `room` that are handed out at the most; whether a bound
    stopped there; the job that stopped it by having expired.

    One long loop, because it is the longest part of a claim: with a function for each of its four subjects a
    job costs 2 µs more, which is a fifth of all that is done for it here.
    """
    now, q, queue_name, ask = tx.now, queue.q, queue.name, bound.ask
    slots, most_bytes, visibility = ask.slots, ask.max_bytes, ask.visibility
    leases, replied, remembered, tasks = bound.leases, bound.replied, tx.handle.leases, bound.tasks
    if len(remembered) > MOST_LEASES:
        remembered.clear()  # leases that others have ended; a settle of the rest goes the long way
    taken: list[Row] = []
    count, number = len(leases), tx.last_number + 1
    for row in rows:
        (
            n,
            job,
            t,
            attempt,
            max_attempts,
            crashes,
            revision,
            priority,
            last_fence,
            due_at,
            expires_at,
            started,
            flow,
            marks,
            headers,
            tags,
            after,
            payload,
        ) = row
        if expires_at is not None and expires_at <= now and not started:
            return taken, False, n
        task, timed = tasks[t]
        attempt += 1
        if count >= (room if timed and attempt < max_attempts else slots):
            return taken, True, None
        bound.bytes += len(payload)
        if count and bound.bytes > most_bytes:
            return taken, True, None
        fence = now if now > last_fence else last_fence + 1
        waited = now - due_at if now > due_at else 0
        lease = Lease(
            job=job,
            fence=fence,
            task=task,
            queue=queue_name,
            lane=lane,
            priority=priority,
            attempt=attempt,
            max_attempts=max_attempts,
            crashes=crashes,
            revision=revision,
            payload=payload,
            flow=flow,
            waited=waited,
            expires_in=None if expires_at is None or started else expires_at - now,
            visibility=visibility,
        )
        if not (headers is None and tags is None and after is None and not marks & MEMOS):
            lease = _with_extras(tx, lease, row)
        taken.append(row)
        leases.append(lease)
        replied.append((n, fence))
        if not marks:
            remembered[job] = (fence, n, q, t, attempt, now, s, lane, waited, number)
        count += 1
    return taken, False, None


class Tasks(dict[int, tuple[str, bool]]):
    """The tasks of a claim: their names, and whether they were ever timed. A claim of 1,000 jobs asks 1,000
    times.
    """

    def __init__(self, tx: Writing) -> None:
        super().__init__()
        self._tx = tx

    def __missing__(self, t: int) -> tuple[str, bool]:
        found = self[t] = (self._tx.task_name(t), self._tx.is_timed(t))
        return found


def _with_extras(tx: Writing, lease: Lease, row: Row) -> Lease:
    """A lease with what few jobs have."""
    marks, headers, tags, after = row[13:17]
    return msgspec.structs.replace(
        lease,
        headers=read_headers(headers),
        tags=read_tags(tags),
        parents=() if after is None else tuple(edge.parent for edge in read_after(after)),
        memos=dict(tx.all(MEMO_SQL["memos"], (row[0],))) if marks & MEMOS else {},
    )


FEW = 8
SPARSE = 3
"""Numbers to a job, up to which a stretch of them is looked through: a job has two, with its sequence."""


def _write_stretch(tx: Writing, queue: Queue, rows: list[Row], bound: Bound, s: int) -> bool:
    """Write the heads of what was handed out from a plain queue, if that is all that is ready between the
    first and the last of them; False, and nothing is written, if it is not.

    Each of them is ready, of this queue and of this priority. So if as many are changed, it is these.
    """
    numbers = [row[0] for row in rows]
    first, last = numbers[0], numbers[-1]
    dense = len(numbers) >= FEW and last - first < SPARSE * len(numbers)
    if not dense or numbers != sorted(numbers) or len({row[7] for row in rows}) > 1:
        return False
    tx.forget()
    lease = tx.last_number + 1
    tx.run("SAVEPOINT stretch")
    written = tx.changed(SQL["lease_stretch"], (first, last, queue.q, rows[0][7], tx.now, s, lease))
    if written != len(rows):
        tx.run("ROLLBACK TO stretch")
    tx.run("RELEASE stretch")
    if written != len(rows):
        return False
    tx.number()
    if {fence for _, fence in bound.replied[-len(rows) :]} == {tx.now}:
        stretches = tx.handle.stretches
        if len(stretches) >= MOST_STRETCHES:
            del stretches[next(iter(stretches))]
        stretches[lease] = (tx.now, numbers)
    _count_leases(tx, queue, rows, repeat(""))
    return True


def write_leases(
    tx: Writing, queue: Queue, rows: list[Row], lanes: Iterable[str], ask: Ask, s: int | None
) -> None:
    """Write the heads of what was handed out, each of the lane at its place, and count them."""
    tx.forget()
    deadline = None if ask.visibility is None else tx.now + ask.visibility
    first = tx.numbers(len(rows)).start
    tx.run(SQL["lease_jobs"], (as_json([row[0] for row in rows]), tx.now, s, deadline, first))
    _count_leases(tx, queue, rows, lanes)


def _count_leases(tx: Writing, queue: Queue, rows: list[Row], lanes: Iterable[str]) -> None:
    tx.touch_queue(queue)
    for t, count in Counter([row[2] for row in rows]).items():
        tx.count(queue.q, t, READY, -count)
        tx.count(queue.q, t, RUNNING, count)
    if queue.policy.emit is Emit.ALL:
        _log(tx, queue, rows, lanes)


def _log(tx: Writing, queue: Queue, rows: list[Row], lanes: Iterable[str]) -> None:
    for row, lane in zip(rows, lanes, strict=False):
        _, job, t, attempt, *_ = row
        fence, due_at = row[8], row[9]
        tx.log(
            Event(
                at=tx.now,
                job=job,
                task=tx.task_name(t),
                queue=queue.name,
                lane=lane,
                move=Move.CLAIM,
                before=State.READY,
                after=State.RUNNING,
                attempt=attempt + 1,
                fence=max(fence + 1, tx.now),
                waited=max(0, tx.now - due_at),
            )
        )
