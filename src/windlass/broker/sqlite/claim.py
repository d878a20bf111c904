"""Claim: who gets what next."""

from collections.abc import Sequence

import msgspec

from windlass.broker.sqlite import filing, lifecycle
from windlass.broker.sqlite.candidates import Candidates, Suspects
from windlass.broker.sqlite.records import MEMOS, Job, Queue, pack
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.lease import Ask, Asker, Claimed, Lease, check_ask, new_fence, room_for, rule_ask
from windlass.core.state import Move
from windlass.core.units import Fence, Micros

SQL = statements("claim")
MEMO_SQL = statements("jobs")
PROMOTE = 100
"""Due jobs, and expired ones, that one claim looks after."""
SUSPECTS_COUNTED = 100
_UNLIMITED = (None, None, None, None)

_replied = msgspec.msgpack.Decoder(list[tuple[int, Fence]])


def claim(tx: Transaction, ask: Ask) -> Claimed:
    """Answer an ask."""
    check_ask(ask)
    queues = _asked(tx, ask)
    if ask.session is None:
        jobs, more = _hand_out(tx, ask, queues, None)
        return _answer(tx, ask, queues, jobs, more=more)
    row = tx.one(SQL["session"], (ask.session,))
    if row is None:
        return Claimed(session=Asker.LOST)
    s, seq, replied, ended_at = row
    assert ask.seq is not None
    asker = rule_ask(alive=ended_at is None, seq=ask.seq, answered=seq)
    if asker is not Asker.ALIVE:
        return Claimed(session=asker)
    if ask.seq == seq:
        return _answer(tx, ask, queues, _again(tx, s, replied), more=False)
    jobs, more = _hand_out(tx, ask, queues, s)
    tx.run(SQL["reply"], (s, ask.seq, pack([(job.n, job.fence) for job in jobs])))
    return _answer(tx, ask, queues, jobs, more=more)


def _again(tx: Transaction, s: int, replied: bytes | None) -> list[Job]:
    """What the last reply handed out, as far as it is still held under the same fence."""
    found = [] if replied is None else [(tx.find(n), fence) for n, fence in _replied.decode(replied)]
    return [job for job, fence in found if job and job.session == s and lifecycle.is_live(tx, job, fence)]


def _answer(
    tx: Transaction, ask: Ask, queues: Sequence[Queue], jobs: Sequence[Job], *, more: bool
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
        leases=tuple(_leases(tx, jobs)),
        more=more,
        next_in=min(waits, default=None),
        suspects=min(suspects, SUSPECTS_COUNTED),
    )


def _asked(tx: Transaction, ask: Ask) -> list[Queue]:
    found = (tx.queue(name) for name in dict.fromkeys(ask.queues))
    return [queue for queue in found if queue is not None]


def _hand_out(tx: Transaction, ask: Ask, queues: Sequence[Queue], s: int | None) -> tuple[list[Job], bool]:
    """Start jobs, as many as fit. Returns them, and whether a bound stopped the claim."""
    started: list[Job] = []
    left = PROMOTE - promote_due(tx, queues, PROMOTE)
    size = 0
    for queue in queues:
        filing.refresh_due(tx, queue, stepped_back=tx.now < tx.mark)
        candidates = _candidates(tx, queue, ask)
        while (job := candidates.next(len(started))) is not None:
            if lifecycle.is_expired(job, tx.now):
                candidates.write()
                lifecycle.expire(tx, job)
                candidates = _candidates(tx, queue, ask)
                left -= 1
                if left < 0:
                    return started, True
                continue
            size += job.size
            if len(started) >= _room(tx, queue, job, ask) or (started and size > ask.max_bytes):
                candidates.write()
                return started, True
            _start(tx, job, ask, s)
            candidates.take(job)
            started.append(job)
        candidates.write()
    return started, left == 0 and any(_has_due(tx, queue) for queue in queues)


def _candidates(tx: Transaction, queue: Queue, ask: Ask) -> Candidates | Suspects:
    return Suspects(tx, queue) if ask.alone else Candidates(tx, queue, ask)


def _room(tx: Transaction, queue: Queue, job: Job, ask: Ask) -> int:
    """How many leases the answer may have with this job as its last."""
    lane = tx.lane(queue, job.lane).policy
    limits = (queue.policy.concurrency, queue.policy.rate, lane.concurrency, lane.rate)
    return room_for(
        ask,
        last_attempt=job.attempt + 1 >= job.max_attempts,
        timed=tx.is_timed(job.t),
        limited=limits != _UNLIMITED,
    )


def _start(tx: Transaction, job: Job, ask: Ask, s: int | None) -> None:
    """Make a job a lease: a new fence, one more attempt."""
    job.fence = new_fence(job.fence, tx.now)
    job.attempt += 1
    job.claimed_at = tx.now
    job.session, job.lease = s, tx.number()
    job.deadline = None if ask.visibility is None else tx.now + ask.visibility


def _leases(tx: Transaction, jobs: Sequence[Job]) -> list[Lease]:
    """Running jobs as their holder is told of them."""
    tx.load_bodies(jobs)
    return [lease_of(tx, job) for job in jobs]


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
