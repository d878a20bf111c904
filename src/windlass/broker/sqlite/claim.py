"""Claim: who gets what next."""

from collections.abc import Sequence

import msgspec

from windlass.broker.sqlite import filing, lifecycle
from windlass.broker.sqlite.records import MEMOS, RUNNING, Job, Queue, pack
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.lease import Ask, Asker, Claimed, Lease, check_ask
from windlass.core.order import next_draw, turn_of
from windlass.core.state import Move, State
from windlass.core.units import Fence, Micros

SQL = statements("claim")
MEMO_SQL = statements("jobs")
PROMOTE = 100
"""Due jobs, and expired ones, that one claim looks after."""
SUSPECTS_COUNTED = 100

_replied = msgspec.msgpack.Decoder(list[tuple[int, Fence]])


class Bound:
    """What one claim has handed out, and may hand out yet."""

    def __init__(self, ask: Ask, left: int) -> None:
        self.ask = ask
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


def claim(tx: Transaction, ask: Ask) -> Claimed:
    """Answer an ask."""
    check_ask(ask)
    queues = _asked(tx, ask)
    if ask.session is None:
        bound, more = _hand_out(tx, ask, queues, None)
        return _answer(tx, ask, queues, bound.leases, more=more)
    row = tx.one(SQL["session"], (ask.session,))
    if row is None or row[3] is not None:
        return Claimed(session=Asker.LOST)
    s, seq, replied, _ = row
    assert ask.seq is not None
    if ask.seq < seq:
        return Claimed(session=Asker.OUTDATED)
    if ask.seq > seq + 1:
        return Claimed(session=Asker.LOST)  # the file is older than the session: it was restored
    if ask.seq == seq:
        return _answer(tx, ask, queues, _again(tx, s, replied), more=False)
    bound, more = _hand_out(tx, ask, queues, s)
    tx.run(SQL["reply"], (s, ask.seq, pack(bound.replied)))
    return _answer(tx, ask, queues, bound.leases, more=more)


def _again(tx: Transaction, s: int, replied: bytes | None) -> list[Lease]:
    """What the last reply handed out, as far as it is still held under the same fence."""
    leases: list[Lease] = []
    for n, fence in [] if replied is None else _replied.decode(replied):
        job = tx.find(n)
        if job is not None and job.state_code == RUNNING and job.session == s and job.fence == fence:
            leases.append(lease_of(tx, job))
    return leases


def _answer(
    tx: Transaction, ask: Ask, queues: Sequence[Queue], leases: list[Lease], *, more: bool
) -> Claimed:
    suspects = 0
    waits: list[Micros] = []
    for queue in queues:
        # Only what this kind of asker could have: a waiting suspect would wake the fleet for ever.
        claimable = filing.next_suspect(tx, queue) is not None if ask.alone else filing.has_next(tx, queue)
        if claimable:
            tx.armed.add(queue.name)
        suspects += tx.value(filing.SQL["count_suspects"], (queue.q, SUSPECTS_COUNTED))
        waits += _waits(tx, queue, ask, claimable=claimable)
    return Claimed(
        leases=tuple(leases),
        more=more,
        next_in=min(waits, default=None),
        suspects=min(suspects, SUSPECTS_COUNTED),
    )


def _asked(tx: Transaction, ask: Ask) -> list[Queue]:
    found = (tx.queue(name) for name in dict.fromkeys(ask.queues))
    return [queue for queue in found if queue is not None]


def _hand_out(tx: Transaction, ask: Ask, queues: Sequence[Queue], s: int | None) -> tuple[Bound, bool]:
    """New leases, and whether a bound stopped the claim."""
    bound = Bound(ask, PROMOTE - promote_due(tx, queues, PROMOTE))
    for queue in queues:
        filing.refresh_due(tx, queue, stepped_back=tx.now < tx.mark)
        stopped = _hand_out_one_by_one(tx, queue, bound, s)
        if stopped:
            return bound, True
    return bound, bound.left == 0 and any(_has_due(tx, queue) for queue in queues)


def _hand_out_one_by_one(tx: Transaction, queue: Queue, bound: Bound, s: int | None) -> bool:
    """Hand out what a queue has, each time asking anew who is next; whether a bound stopped it."""
    ask = bound.ask
    turns = filing.Turns(turn_of(ask.slots, ask.soon))
    while (job := _next(tx, queue, ask, len(bound.leases), turns)) is not None:
        if queue.laned and filing.lacks_token(tx, queue, job.lane):
            filing.refresh(tx, queue, tx.lane(queue, job.lane))
            continue
        if lifecycle.is_expired(job, tx.now):
            lifecycle.expire(tx, job)
            turns.end()
            bound.left -= 1
            if bound.left < 0:
                return True
            continue
        payload = tx.body(job).payload
        room = _room(tx, queue, job, ask)
        if not bound.admits(room, len(payload)):
            return True
        bound.add(job.n, _start(tx, job, ask, s, turns))
    return False


def _next(tx: Transaction, queue: Queue, ask: Ask, handed_out: int, turns: filing.Turns) -> Job | None:
    if ask.alone:
        return filing.next_suspect(tx, queue)
    return filing.next_job(tx, queue, next_draw(ask.draw, handed_out), turns)


def _room(tx: Transaction, queue: Queue, job: Job, ask: Ask) -> int:
    """How many jobs may be handed out before this one."""
    if ask.alone:
        return min(1, ask.slots)
    lane = tx.lane(queue, job.lane).policy
    limits = (queue.policy.concurrency, queue.policy.rate, lane.concurrency, lane.rate)
    limited = any(limit is not None for limit in limits)
    if job.attempt + 1 >= job.max_attempts or not tx.is_timed(job.t):
        return ask.slots
    return max(ask.slots, ask.soon) if limited else ask.limit


def _start(tx: Transaction, job: Job, ask: Ask, s: int | None, turns: filing.Turns) -> Lease:
    filing.occupy(tx, job, turns)
    job.fence = max(job.fence + 1, tx.now)
    job.attempt += 1
    job.claimed_at = tx.now
    job.session, job.lease = s, tx.number()
    job.deadline = None if ask.visibility is None else tx.now + ask.visibility
    lifecycle.transition(tx, job, Move.CLAIM, State.RUNNING, waited=max(0, tx.now - job.due_at))
    filing.occupied(tx, job)
    return lease_of(tx, job)


def lease_of(tx: Transaction, job: Job) -> Lease:
    """A running job as its holder is told of it."""
    body = tx.body(job)
    return Lease(
        job=job.id,
        fence=job.fence,
        task=tx.task_name(job.t),
        queue=tx.queue_of(job.q).name,
        lane=job.lane,
        priority=job.priority,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        crashes=job.crashes,
        revision=job.revision,
        payload=body.payload,
        headers=body.headers,
        tags=body.tags,
        flow=job.flow,
        parents=tuple(edge.parent for edge in body.after),
        memos=dict(tx.all(MEMO_SQL["memos"], (job.n,))) if job.marks & MEMOS else {},
        waited=max(0, job.claimed_at - job.due_at),
        expires_in=None if job.expires_at is None or job.started else job.expires_at - tx.now,
        visibility=None if job.deadline is None else job.deadline - tx.now,
    )


# due jobs


def promote_due(tx: Transaction, queues: Sequence[Queue], limit: int) -> int:
    """Make due jobs ready, in order of their due times, and say how many."""
    due = sorted(row for queue in queues for row in tx.all(SQL["due"], (queue.q, tx.now, limit)))
    for _, _, n in due[:limit]:
        lifecycle.promote(tx, tx.numbered(n), Move.DUE)
    return len(due[:limit])


def _has_due(tx: Transaction, queue: Queue) -> bool:
    due_at = tx.value(SQL["next_due"], (queue.q,))
    return due_at is not None and due_at <= tx.now


def _waits(tx: Transaction, queue: Queue, ask: Ask, *, claimable: bool) -> list[Micros]:
    """How long until time alone may make something of a queue claimable, for this kind of asker."""
    if queue.paused:
        return []
    waits: list[Micros] = []
    due_at = tx.value(SQL["next_suspect_due" if ask.alone else "next_due"], (queue.q,))
    if due_at is not None:
        waits.append(max(0, due_at - tx.now))
    if claimable:
        waits.append(0)
    elif not queue.unlimited and (token := _next_token(tx, queue, ask)):
        waits.append(token)
    return waits


def _next_token(tx: Transaction, queue: Queue, ask: Ask) -> Micros | None:
    """How long until the queue, or the first of its lanes, has a token for what waits."""
    if tx.one(filing.SQL["any_suspect" if ask.alone else "any_ready"], (queue.q,)) is None:
        return None
    token = filing.wait_for_token(queue, queue.policy.rate, tx.now)
    if not queue.laned:
        lane = tx.lane(queue, "")
        return max(token, filing.wait_for_token(lane, lane.policy.rate, tx.now))
    lane_token = filing.next_lane_token(tx, queue)
    return min(token or lane_token, lane_token or token)
