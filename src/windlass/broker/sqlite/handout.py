"""The short way of a claim: a queue without lanes and limits hands out its first jobs in one statement."""

import json
from collections.abc import Iterator

from windlass.broker.sqlite import lifecycle
from windlass.broker.sqlite.handle import Row
from windlass.broker.sqlite.records import MEMOS, READY, RUNNING, Queue, read_after, read_headers, read_tags
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

    def __init__(self, ask: Ask, left: int) -> None:
        self.ask = ask
        self.left = left
        """Due and expired jobs that it may still look after."""
        self.leases: list[Lease] = []
        self.replied: list[tuple[int, Fence]] = []
        """The numbers and fences of the leases: what the session's record keeps of the reply."""
        self._bytes = 0

    def add(self, n: int, lease: Lease) -> None:
        """Hand out a job."""
        self.leases.append(lease)
        self.replied.append((n, lease.fence))

    def admits(self, room: int, size: int) -> bool:
        """Whether one more job fits: `room` jobs may be handed out up to it, and its payload is so long."""
        if len(self.leases) >= room:
            return False
        self._bytes += size
        return not self.leases or self._bytes <= self.ask.max_bytes


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
        taken, stopped, expired = _choose(tx, queue, rows, bound)
        if taken:
            _lease(tx, queue, taken, bound.ask, s)
        if expired is not None:
            lifecycle.expire(tx, tx.numbered(expired))
            bound.left -= 1
            if bound.left < 0:
                return True
            continue
        return stopped


def _choose(
    tx: Writing, queue: Queue, rows: Iterator[Row], bound: Bound
) -> tuple[list[Row], bool, int | None]:
    """The rows to hand out; whether a bound stopped there; the job that stopped it by having expired."""
    taken: list[Row] = []
    ask, now = bound.ask, tx.now
    for row in rows:
        n, _, t, attempt, max_attempts, *_, expires_at, started, _, _, _, _, _, payload = row
        if expires_at is not None and expires_at <= now and not started:
            return taken, False, n
        prefetched = attempt + 1 < max_attempts and tx.is_timed(t)
        if not bound.admits(ask.limit if prefetched else ask.slots, len(payload)):
            return taken, True, None
        taken.append(row)
        bound.add(n, _lease_of(tx, queue, row, ask))
    return taken, False, None


def _lease_of(tx: Writing, queue: Queue, row: Row, ask: Ask) -> Lease:
    (
        n,
        job,
        t,
        attempt,
        max_attempts,
        crashes,
        revision,
        priority,
        fence,
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
    now = tx.now
    return Lease(
        job=job,
        fence=max(fence + 1, now),
        task=tx.task_name(t),
        queue=queue.name,
        lane="",
        priority=priority,
        attempt=attempt + 1,
        max_attempts=max_attempts,
        crashes=crashes,
        revision=revision,
        payload=payload,
        headers=read_headers(headers),
        tags=read_tags(tags),
        flow=flow,
        parents=() if after is None else tuple(edge.parent for edge in read_after(after)),
        memos=dict(tx.all(MEMO_SQL["memos"], (n,))) if marks & MEMOS else {},
        waited=max(0, now - due_at),
        expires_in=None if expires_at is None or started else expires_at - now,
        visibility=ask.visibility,
    )


def _lease(tx: Writing, queue: Queue, rows: list[Row], ask: Ask, s: int | None) -> None:
    """Write what was handed out."""
    tx.forget()
    deadline = None if ask.visibility is None else tx.now + ask.visibility
    first = tx.numbers(len(rows)).start
    tx.run(SQL["lease_jobs"], (json.dumps([row[0] for row in rows]), tx.now, s, deadline, first))
    queue.running += len(rows)
    tx.touch_queue(queue)
    for row in rows:
        tx.count(queue.q, row[2], READY, -1)
        tx.count(queue.q, row[2], RUNNING, 1)
    if queue.policy.emit is Emit.ALL:
        _log(tx, queue, rows)


def _log(tx: Writing, queue: Queue, rows: list[Row]) -> None:
    for row in rows:
        _, job, t, attempt, *_ = row
        fence, due_at = row[8], row[9]
        tx.log(
            Event(
                at=tx.now,
                job=job,
                task=tx.task_name(t),
                queue=queue.name,
                lane="",
                move=Move.CLAIM,
                before=State.READY,
                after=State.RUNNING,
                attempt=attempt + 1,
                fence=max(fence + 1, tx.now),
                waited=max(0, tx.now - due_at),
            )
        )
