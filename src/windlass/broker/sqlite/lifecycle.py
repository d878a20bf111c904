"""The life of a job: the one place where states change, leases end and jobs finish."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from windlass.broker.sqlite import filing, flows, keys
from windlass.broker.sqlite.records import (
    CODES,
    DELIVERIES,
    HAS_CHILDREN,
    LOGGED,
    MEMOS,
    READY,
    RESULT,
    RUNNING,
    SAID,
    SCHEDULED,
    STATES,
    Job,
    Queue,
    delivery_record,
    pack,
    read_delivery,
)
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction, count_move
from windlass.core.event import Emit, Event, is_logged
from windlass.core.job import Delivery, Moved
from windlass.core.lease import is_live as is_live_lease
from windlass.core.outcome import Cause, Error, Outcome
from windlass.core.settlement import JobFacts, Ruling, is_crash
from windlass.core.state import TERMINAL, WAITING, Move, Reason, State, permitted
from windlass.core.units import Fence, Micros, SessionId

SQL = statements("jobs")
_UNCOUNTED = frozenset({State.DONE, State.CANCELLED})


def transition(
    tx: Transaction,
    job: Job,
    move: Move,
    after: State | None,
    reason: Reason | None = None,
    *,
    outcome: Outcome | None = None,
    runtime: Micros | None = None,
    waited: Micros | None = None,
) -> None:
    """Change the state of a job, count it and log it. Nothing else does, but `start`
    and `done.end_many` for many jobs at once.
    """
    before = job.state
    assert permitted(before, move, after), f"{before} --{move}--> {after} is not in the table"
    count_move(tx, job, job.state_code, None if after is None else CODES[after])
    if after is not None:
        job.state_code = CODES[after]
        job.reason = None if reason is None else reason.value
        tx.touch(job)
    if tx.moves is not None and before is not None and after is not None:
        tx.moves.append(_moved(tx, job, move, before, after, reason))
    if is_logged(tx.queue_of(job.q).policy.emit, before, after):
        event = _event(tx, job, move, before, after, reason, outcome=outcome, runtime=runtime, waited=waited)
        tx.log(event)


def _event(
    tx: Transaction,
    job: Job,
    move: Move,
    before: State | None,
    after: State | None,
    reason: Reason | None = None,
    *,
    outcome: Outcome | None = None,
    runtime: Micros | None = None,
    waited: Micros | None = None,
) -> Event:
    return Event(
        at=tx.now,
        job=job.id,
        task=tx.task_name(job.t),
        queue=tx.queue_of(job.q).name,
        lane=job.lane,
        move=move,
        before=before,
        after=after,
        reason=reason,
        outcome=outcome,
        attempt=job.attempt,
        fence=job.fence,
        runtime=runtime,
        waited=waited,
    )


def start(tx: Transaction, queue: Queue, jobs: Sequence[Job]) -> None:
    """Jobs of a queue have been claimed: change their states, count and log them, all at once."""
    for job in jobs:
        job.state_code = RUNNING
        job.reason = None
    tx.start(jobs)
    for t, count in Counter([job.t for job in jobs]).items():
        tx.count(queue.q, t, READY, -count)
        tx.count(queue.q, t, RUNNING, count)
    if queue.policy.emit is Emit.ALL:
        for job in jobs:
            waited = max(0, tx.now - job.due_at)
            tx.log(_event(tx, job, Move.CLAIM, State.READY, State.RUNNING, waited=waited))


def _moved(
    tx: Transaction, job: Job, move: Move, before: State, after: State, reason: Reason | None
) -> Moved:
    return Moved(
        job=job.id,
        queue=tx.queue_of(job.q).name,
        task=tx.task_name(job.t),
        lane=job.lane,
        move=move,
        before=before,
        after=after,
        reason=reason,
    )


# waiting


def make_waiting(tx: Transaction, job: Job, move: Move) -> None:
    """Let a job wait: scheduled if it is not due, else ready."""
    if job.due_at > tx.now:
        transition(tx, job, move, State.SCHEDULED)
        schedule(tx, job)
    else:
        transition(tx, job, move, State.READY)
        filing.file(tx, job)


def schedule(tx: Transaction, job: Job) -> None:
    """Number a job that has just become scheduled: jobs that are due at the same time go in this order."""
    queue = tx.queue_of(job.q)
    if queue.policy.sequence:
        filing.refresh(tx, queue, tx.lane(queue, job.lane))
    else:
        job.sequence = tx.number()
        tx.touch(job)


def leave_waiting(tx: Transaction, job: Job) -> None:
    """Take a waiting job out of its place; its state is about to change."""
    if job.state_code == READY:
        filing.unfile(tx, job)


def promote(tx: Transaction, job: Job, move: Move) -> None:
    """Make a scheduled job ready."""
    transition(tx, job, move, State.READY)
    filing.file(tx, job)


def is_expired(job: Job, now: Micros) -> bool:
    """Whether a waiting job was not started in time. Only its first start counts."""
    return job.expires_at is not None and job.expires_at <= now and not job.started


def waits_to_start(job: Job, now: Micros) -> bool:
    """Whether a job could have started by now, and never has."""
    return job.state in WAITING and not job.started and (job.due_at <= now or job.hold_key is not None)


# leases


def is_live(tx: Transaction, job: Job, fence: Fence) -> bool:
    """Whether this is the live lease of the job."""
    alive = job.session is None or tx.session(job.session)[1]
    return is_live_lease(job.state, job.fence, fence, session_alive=alive)


def facts(tx: Transaction, job: Job) -> JobFacts:
    """What the rulings need to know of a running job."""
    key = keys.held_key(tx, job)
    held = job.held
    return JobFacts(
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        crashes=job.crashes,
        cancel_requested=bool(job.cancel_requested),
        superseded=key is not None and key.follower is not None,
        holds=0 if held is None else held.times,
        held_for=0 if held is None else tx.now - held.since,
    )


def end_lease(
    tx: Transaction,
    job: Job,
    ruling: Ruling,
    session: SessionId | None,
    *,
    unstarted: bool,
    cause: Cause | None = None,
    runtime: Micros | None = None,
    error: Error | None = None,
) -> None:
    """End the lease of a running job as ruled. A settlement has no cause; everything else has one."""
    ran = runtime is not None or ruling.charged
    _deliver(
        tx,
        job,
        Delivery(
            fence=job.fence,
            attempt=job.attempt,
            session=session,
            claimed_at=job.claimed_at,
            ended_at=tx.now,
            outcome=ruling.outcome,
            settled=cause is None,
            cause=cause,
            runtime=runtime,
            error=error,
        ),
    )
    job.session = job.deadline = None
    job.started = int(job.started or ran)
    job.attempt -= not ruling.charged
    job.crashes += cause is not None and is_crash(cause, ruling)
    if error is not None:
        set_error(tx, job, error)
    if ran:
        job.held = None
    tx.touch(job)
    filing.vacate(tx, tx.queue_of(job.q), job.lane, 1, unstarted=job.claimed_at if unstarted else None)
    if ruling.state in TERMINAL:
        finish(tx, job, ruling.move, ruling.state, ruling.reason, outcome=ruling.outcome, runtime=runtime)
        return
    waited = max(0, job.claimed_at - job.due_at)
    if not ruling.keeps_place:
        job.due_at = tx.now + ruling.delay
    transition(tx, job, ruling.move, ruling.state, outcome=ruling.outcome, runtime=runtime, waited=waited)
    if job.state_code == SCHEDULED:
        schedule(tx, job)
    else:
        filing.file(tx, job, keeps_place=ruling.keeps_place)


def _deliver(tx: Transaction, job: Job, delivery: Delivery) -> None:
    tx.deliver(job.n, job.fence, delivery_record(delivery))
    job.ends += 1
    if job.ends > DELIVERIES:
        tx.run(SQL["cut_deliveries"], (job.n, DELIVERIES))


def set_error(tx: Transaction, job: Job, error: Error) -> None:
    """Keep the last error of a job."""
    tx.run(SQL["say_error"], (job.n, pack(error)))
    job.marks |= SAID
    tx.touch(job)


def forget_words(tx: Transaction, job: Job) -> None:
    """Forget the last error, progress and memos: they were about an older payload."""
    if job.marks & SAID:
        tx.run(SQL["drop_said"], (job.n,))
    if job.marks & MEMOS:
        tx.run(SQL["drop_memos"], (job.n,))
    job.marks &= ~(SAID | MEMOS)
    tx.touch(job)


# the end of a job


def finish(
    tx: Transaction,
    job: Job,
    move: Move,
    state: State,
    reason: Reason | None,
    *,
    outcome: Outcome | None = None,
    runtime: Micros | None = None,
) -> None:
    """Bring a job to a terminal state: its key, its line, its memos, and word to its dependents."""
    leave_waiting(tx, job)
    waited = max(0, job.claimed_at - job.due_at) if job.state is State.RUNNING else None
    transition(tx, job, move, state, reason, outcome=outcome, runtime=runtime, waited=waited)
    job.finished_at = tx.now
    job.cancel_requested = 0
    if job.marks & MEMOS:
        tx.run(SQL["drop_memos"], (job.n,))
        job.marks &= ~MEMOS
    if job.waiting_for:
        tx.run(SQL["close_edges_of"], (job.n,))
        job.waiting_for = 0
    tx.touch(job)
    filing.leave_line(tx, job)
    follower = keys.release(tx, job)
    if follower is not None:
        follower.waiting_for -= 1
        tx.touch(follower)
        unblock(tx, follower)
    if job.marks & HAS_CHILDREN:
        flows.tell_dependents(tx, job.id, state)
    tx.rung = True


def unblock(tx: Transaction, job: Job) -> None:
    """A job's last parent is out of its way."""
    filing.line_up(tx, job)
    make_waiting(tx, job, Move.UNBLOCK)


def set_result(tx: Transaction, job: Job, result: bytes | None) -> None:
    """Keep the result of a job that is done now."""
    if job.marks & RESULT:
        drop_result(tx, job)
    if result is not None:
        tx.run(SQL["save_result"], (job.n, job.q, tx.now, result))
        job.marks |= RESULT
        job.size += len(result)
        tx.bytes += len(result)
    tx.touch(job)


def drop_result(tx: Transaction, job: Job) -> None:
    """Forget the result of a job."""
    length = tx.value(SQL["drop_result"], (job.n,)) or 0
    job.marks &= ~RESULT
    job.size -= length
    tx.bytes -= length
    tx.touch(job)


# removal


def drop_if_unkept(tx: Transaction, job: Job) -> None:
    """A finished job of which nothing is to be kept goes at once."""
    if STATES[job.state_code] not in _UNCOUNTED or job.pruned_until is not None:
        return
    policy = tx.queue_of(job.q).policy
    if not (policy.retention or keeps_result(tx, job) or is_needed(tx, job)):
        drop(tx, job, Move.PRUNE)


def keeps_result(tx: Transaction, job: Job) -> bool:
    """Whether a job's result is still to be kept."""
    ttl = tx.queue_of(job.q).policy.result_ttl
    return bool(job.marks & RESULT) and job.finished_at is not None and job.finished_at + ttl > tx.now


def is_needed(tx: Transaction, job: Job) -> bool:
    """Whether an unfinished job, or an end that its dependents have yet to be told, depends on it."""
    return bool(job.marks & HAS_CHILDREN) and flows.is_needed(tx, job)


def drop(tx: Transaction, job: Job, move: Move) -> None:
    """Remove a finished job. How it ended is remembered for the resend window; a dead one's edges act."""
    assert job.state in TERMINAL
    assert job.finished_at is not None
    was = job.state
    if job.marks & RESULT:
        drop_result(tx, job)
    tx.bytes -= job.size
    job.size = 0
    transition(tx, job, move, None)
    until = job.finished_at + tx.options.resend_window
    if job.marks & HAS_CHILDREN:
        tx.run(flows.SQL["drop_edges_to"], (job.id,))
    if until > tx.now:
        _remember(tx, job, until)
    else:
        remove(tx, job)
    if was is State.DEAD:
        flows.tell_dependents(tx, job.id, State.CANCELLED)


def _remember(tx: Transaction, job: Job, until: Micros) -> None:
    """Keep how a job ended, for those who ask again; everything else goes."""
    job.pruned_until = until
    job.held = None
    tx.run(SQL["drop_body"], (job.n,))
    _drop_words(tx, job)
    tx.run(SQL["drop_deliveries"], (job.n, job.fence))
    if job.state is not State.DONE:  # those that are done went wrong in none of what is left
        _bare_end(tx, job)
    tx.touch(job)


def _bare_end(tx: Transaction, job: Job) -> None:
    """Of the last end keep what is told to who settles it again; not what went wrong, which may tell of a
    person.
    """
    record = tx.value(SQL["delivery"], (job.n, job.fence))
    if record is not None:
        last = msgspec.structs.replace(read_delivery(job.fence, record), cause=None, error=None)
        tx.run(SQL["save_delivery"], (job.n, job.fence, delivery_record(last)))


def remove(tx: Transaction, job: Job) -> None:
    """Remove every trace of a job but the edges to it."""
    tx.run(SQL["drop_body"], (job.n,))
    _drop_words(tx, job)
    if job.ends:
        tx.run(SQL["drop_all_deliveries"], (job.n,))
    tx.run(SQL["drop_edges_of"], (job.n,))
    tx.remove(job)


def _drop_words(tx: Transaction, job: Job) -> None:
    forget_words(tx, job)
    if job.marks & LOGGED:
        tx.run(SQL["cut_lines"], (job.n, 2**62))
        job.marks &= ~LOGGED


def cancel_waiting(tx: Transaction, job: Job, move: Move, reason: Reason) -> None:
    """Cancel a job that waits."""
    assert job.state in WAITING
    finish(tx, job, move, State.CANCELLED, reason)
    drop_if_unkept(tx, job)


def expire(tx: Transaction, job: Job) -> None:
    """A waiting job was not started in time."""
    finish(tx, job, Move.EXPIRE, State.DEAD, Reason.EXPIRED)
