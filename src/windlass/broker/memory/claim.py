"""Claim: who gets what next."""

from collections.abc import Iterable

from windlass.broker.memory import filing, lifecycle
from windlass.broker.memory.namespace import Job, Namespace, Queue, Session
from windlass.core.lease import Ask, Asker, Claimed, Lease, check_ask, new_fence, room_for, rule_ask
from windlass.core.order import Turns, next_draw, turn_of
from windlass.core.query import Parked
from windlass.core.session import SessionState
from windlass.core.state import Move, State
from windlass.core.units import Micros

PROMOTE = 100
"""Due jobs, and expired ones, that one claim looks after."""
SUSPECTS_COUNTED = 100


def claim(ns: Namespace, ask: Ask) -> Claimed:
    """Answer an ask."""
    check_ask(ask)
    if ask.session is None:
        leases, more = _hand_out(ns, ask)
        return _answer(ns, ask, leases, more=more)
    session = ns.sessions.get(ask.session)
    if session is None:
        return Claimed(session=Asker.LOST)
    assert ask.seq is not None
    asker = rule_ask(alive=session.state is SessionState.ALIVE, seq=ask.seq, answered=session.seq)
    if asker is not Asker.ALIVE:
        return Claimed(session=asker)
    if ask.seq == session.seq:
        return _answer(ns, ask, _again(ns, session), more=False)
    leases, more = _hand_out(ns, ask)
    session.seq = ask.seq
    session.replied = tuple((lease.job, lease.fence) for lease in leases)
    return _answer(ns, ask, leases, more=more)


def _again(ns: Namespace, session: Session) -> list[Lease]:
    """What the last reply handed out, as far as it is still held under the same fence."""
    return [_lease(ns, ns.jobs[job]) for job, fence in session.replied if session.leases.get(job) == fence]


def _answer(ns: Namespace, ask: Ask, leases: list[Lease], *, more: bool) -> Claimed:
    queues = list(_asked(ns, ask))
    for queue in queues:
        # Only what this kind of asker could have: a waiting suspect would wake the fleet for ever.
        if _next(ns, queue, ask, 0, Turns(1)) is not None:
            ns.bells.arm(queue.name)
    suspects = sum(len(lane.suspects) for queue in queues for lane in queue.lanes.values())
    return Claimed(
        leases=tuple(leases),
        more=more,
        next_in=_next_in(ns, queues, ask),
        suspects=min(suspects, SUSPECTS_COUNTED),
    )


def _asked(ns: Namespace, ask: Ask) -> Iterable[Queue]:
    return (ns.queues[name] for name in dict.fromkeys(ask.queues) if name in ns.queues)


def _hand_out(ns: Namespace, ask: Ask) -> tuple[list[Lease], bool]:
    """New leases, and whether a bound stopped the claim."""
    queues = list(_asked(ns, ask))
    bound = PROMOTE - lifecycle.promote_due(ns, PROMOTE, frozenset(queue.name for queue in queues))
    leases: list[Lease] = []
    payload = 0
    for queue in queues:
        filing.refresh_all(ns, queue)
        turns = Turns(turn_of(ask.slots, ask.soon))
        while (job := _next(ns, queue, ask, len(leases), turns)) is not None:
            if lifecycle.is_expired(job, ns.now()):
                lifecycle.expire(ns, job)
                turns.end()
                bound -= 1
                if bound < 0:
                    return leases, True
                continue
            if len(leases) >= _room(ns, queue, job, ask):
                return leases, True
            payload += len(job.asked.payload)
            if leases and payload > ask.max_bytes:
                return leases, True
            leases.append(_start(ns, job, ask, turns))
    return leases, bound == 0 and _has_due(ns, queues)


def _has_due(ns: Namespace, queues: list[Queue]) -> bool:
    now, names = ns.now(), {queue.name for queue in queues}
    return any(
        job.state is State.SCHEDULED and job.due_at <= now and job.asked.queue in names
        for job in ns.jobs.values()
    )


def _next(ns: Namespace, queue: Queue, ask: Ask, handed_out: int, turns: Turns) -> Job | None:
    if ask.alone:
        return filing.next_suspect(ns, queue)
    return filing.next_job(ns, queue, next_draw(ask.draw, handed_out), turns)


def _room(ns: Namespace, queue: Queue, job: Job, ask: Ask) -> int:
    """How many jobs may be handed out before this one."""
    lane = queue.lanes[job.asked.lane].policy
    limits = (queue.policy.concurrency, queue.policy.rate, lane.concurrency, lane.rate)
    return room_for(
        ask,
        last_attempt=job.attempt + 1 >= job.asked.max_attempts,
        timed=job.asked.task in ns.timed,
        limited=any(limit is not None for limit in limits),
    )


def _start(ns: Namespace, job: Job, ask: Ask, turns: Turns) -> Lease:
    now = ns.now()
    filing.occupy(ns, job, turns)
    job.fence = new_fence(job.fence, now)
    job.attempt += 1
    job.claimed_at = now
    job.session = ask.session
    job.deadline = None if ask.visibility is None else now + ask.visibility
    if ask.session is not None:
        ns.sessions[ask.session].leases[job.id] = job.fence
    lifecycle.transition(ns, job, Move.CLAIM, State.RUNNING, waited=max(0, now - job.due_at))
    return _lease(ns, job)


def _lease(ns: Namespace, job: Job) -> Lease:
    now, asked = ns.now(), job.asked
    expires_in = None if job.expires_at is None or job.started else job.expires_at - now
    return Lease(
        job=job.id,
        fence=job.fence,
        task=asked.task,
        queue=asked.queue,
        lane=asked.lane,
        priority=asked.priority,
        attempt=job.attempt,
        max_attempts=asked.max_attempts,
        crashes=job.crashes,
        revision=asked.revision,
        payload=asked.payload,
        headers=dict(asked.headers),
        tags=asked.tags,
        flow=asked.flow,
        parents=tuple(edge.parent for edge in asked.after),
        memos=dict(job.memos),
        waited=max(0, job.claimed_at - job.due_at),
        expires_in=expires_in,
        visibility=None if job.deadline is None else job.deadline - now,
    )


def _next_in(ns: Namespace, queues: list[Queue], ask: Ask) -> Micros | None:
    """How long until time alone may make something claimable, for this kind of asker."""
    now = ns.now()
    waits: list[Micros] = []
    for queue in queues:
        if queue.paused:
            continue
        waits += [
            max(0, job.due_at - now)
            for job in ns.jobs.values()
            if job.state is State.SCHEDULED and job.asked.queue == queue.name and job.suspect == ask.alone
        ]
        if _next(ns, queue, ask, 0, Turns(1)) is not None:
            waits.append(0)
        for lane in queue.lanes.values():
            if filing.parked(lane, now) not in (None, Parked.RATE):
                continue  # a lease that ends, or a resume, rings; time alone changes nothing
            if lane.suspects if ask.alone else lane.ready:
                token = max(
                    filing.wait_for_token(queue, queue.policy.rate, now),
                    filing.wait_for_token(lane, lane.policy.rate, now),
                )
                waits += [token] if token else []
    return min(waits, default=None)
