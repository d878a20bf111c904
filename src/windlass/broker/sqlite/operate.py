"""What operators do to jobs, queues and lanes."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from windlass.broker.sqlite import filing, flows, keys, lifecycle
from windlass.broker.sqlite.keys import Key
from windlass.broker.sqlite.records import CODES, HAS_PARENTS, READY, RUNNING, SAID, Job
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.bounds import CALL_ITEMS
from windlass.core.operate import Edit, Effect, Operated, Purged, Target
from windlass.core.state import TERMINAL, WAITING, Move, Reason, State

SQL = statements("operate")
JOBS = statements("jobs")
LOOKED_AT = 2_000
"""Waiting jobs among which a purge finds the oldest."""
_T = TypeVar("_T", Target, Edit)


def cancel(tx: Transaction, targets: Sequence[Target]) -> tuple[Operated, ...]:
    """Cancel waiting jobs, flag running ones."""
    with _overwriting(tx):  # where nothing is kept, they go at once
        return _each(tx, targets, _cancel)


def replay(tx: Transaction, targets: Sequence[Target]) -> tuple[Operated, ...]:
    """Send dead letters back."""
    return _each(tx, targets, _replay)


def discard(tx: Transaction, targets: Sequence[Target]) -> tuple[Operated, ...]:
    """Remove dead letters."""
    return _each(tx, targets, _discard)


def prune(tx: Transaction, targets: Sequence[Target]) -> tuple[Operated, ...]:
    """Remove finished jobs that nothing needs."""
    with _overwriting(tx):
        return _each(tx, targets, _prune)


def edit(tx: Transaction, edits: Sequence[Edit]) -> tuple[Operated, ...]:
    """Change waiting or dead jobs."""
    return _each(tx, edits, _edit)


@contextmanager
def _overwriting(tx: Transaction) -> Generator[None]:
    """Overwrite pages that jobs leave, since a person may have asked for it. Sweep spares itself this: to
    free a gigabyte it would write one.
    """
    tx.run("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        tx.run("PRAGMA secure_delete = FAST")


def _each(
    tx: Transaction, items: Sequence[_T], operation: Callable[[Transaction, Job, _T], Operated]
) -> tuple[Operated, ...]:
    """Do one thing to each job that is in the expected state."""
    answers: list[Operated] = []
    for item in items:
        job = tx.job(item.job)
        if job is None:
            answers.append(Operated(item.job, Effect.NOT_FOUND))
        elif item.expect not in (None, job.state):
            answers.append(Operated(item.job, Effect.WRONG_STATE, job.state))
        else:
            answers.append(operation(tx, job, item))
    return tuple(answers)


def _cancel(tx: Transaction, job: Job, _: Target) -> Operated:
    if job.state in TERMINAL:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    if job.state_code == RUNNING:
        job.cancel_requested = 1
        tx.touch(job)
        return Operated(job.id, Effect.FLAGGED, job.state)
    lifecycle.cancel_waiting(tx, job, Move.CANCEL, Reason.CANCELLED)
    return Operated(job.id, Effect.APPLIED, job.state)


def _replay(tx: Transaction, job: Job, _: Target) -> Operated:
    if job.state is not State.DEAD:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    place = keys.place_of(tx, job)
    if place is not None:
        key = keys.key_at(tx, place)
        if key is not None and key.holder != job.id and (key.until is None or tx.now < key.until):
            return Operated(job.id, Effect.CONFLICT, job.state, key.holder)
        body = tx.body(job)
        keys.save_key(tx, place, Key(job.id, body.mode, body.window, job.accepted_at))
    job.attempt = job.crashes = 0
    job.replays += 1
    job.held = None
    job.expires_at = job.finished_at = None
    if job.marks & SAID:
        tx.run(JOBS["say_progress"], (job.n, None, None))
    job.due_at = tx.now
    if job.marks & HAS_PARENTS:
        for edge in tx.body(job).after:
            flows.tie(tx, job, edge, waits=False)
    tx.touch(job)
    filing.line_up(tx, job)
    lifecycle.make_waiting(tx, job, Move.REPLAY)
    return Operated(job.id, Effect.APPLIED, job.state)


def _discard(tx: Transaction, job: Job, _: Target) -> Operated:
    if job.state is not State.DEAD:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    lifecycle.drop(tx, job, Move.DISCARD)
    return Operated(job.id, Effect.APPLIED)


def _prune(tx: Transaction, job: Job, _: Target) -> Operated:
    if job.state not in TERMINAL:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    if job.state is not State.DEAD and lifecycle.is_needed(tx, job):
        return Operated(job.id, Effect.CONFLICT, job.state)
    lifecycle.drop(tx, job, Move.PRUNE)
    return Operated(job.id, Effect.APPLIED)


def _edit(tx: Transaction, job: Job, change: Edit) -> Operated:
    state = job.state
    if state is None or state not in WAITING | {State.DEAD}:
        return Operated(job.id, Effect.WRONG_STATE, state)
    if job.state_code == READY:
        filing.unfile(tx, job)
    _change(tx, job, change)
    reason = None if job.reason is None else Reason(job.reason)
    lifecycle.transition(tx, job, Move.EDIT, state, reason)
    if job.state_code == READY:
        if change.priority is not None:
            filing.set_band(job, tx.queue_of(job.q))
        filing.file(tx, job, keeps_place=True)
    return Operated(job.id, Effect.APPLIED, state)


def _change(tx: Transaction, job: Job, change: Edit) -> None:
    body = tx.body(job)
    if change.payload is not None:
        tx.bytes += len(change.payload) - len(body.payload)
        job.size += len(change.payload) - len(body.payload)
        body.payload = change.payload
    if change.headers is not None:
        body.headers = dict(change.headers)
    if change.tags is not None:
        body.tags = change.tags
    if change.priority is not None:
        job.priority = change.priority
    if change.max_attempts is not None:
        job.max_attempts = change.max_attempts
    tx.save_body(job, body)
    tx.touch(job)


def purge(tx: Transaction, queue_name: str, state: State, limit: int) -> Purged:
    """Cancel waiting jobs, remove finished ones, oldest first.

    Of ready and scheduled jobs it finds the oldest among so many that have been due for longest: an index by
    age would cost every enqueue.
    """
    queue = tx.queue(queue_name)
    if queue is None:
        return Purged(0, more=False)
    purged, limit = 0, min(limit, CALL_ITEMS)
    if state in (State.READY, State.SCHEDULED):
        rows = sorted(tx.all(SQL[state.value], (queue.q, max(LOOKED_AT, limit + 1))))
    elif state in WAITING:
        rows = tx.all(SQL[state.value], (queue.q, limit + 1))
    else:
        rows = tx.all(SQL["finished"], (queue.q, limit + 1, CODES[state]))
    for (n,) in sorted(rows[:limit]):
        job = tx.find(n)
        if job is None or job.state is not state or job.pruned_until is not None:
            continue  # the end of one before it has moved it
        if state in WAITING:
            lifecycle.cancel_waiting(tx, job, Move.PURGE, Reason.PURGED)
        else:
            lifecycle.drop(tx, job, Move.PURGE)
        purged += 1
    return Purged(purged, len(rows) > limit)


def unhold(tx: Transaction, key: str, limit: int) -> Purged:
    """Make held jobs of this key ready."""
    limit = min(limit, CALL_ITEMS)
    rows = tx.all(SQL["held"], (key, limit + 1))
    for (n,) in rows[:limit]:
        job = tx.numbered(n)
        job.due_at = tx.now
        tx.touch(job)
        lifecycle.promote(tx, job, Move.UNHOLD)
    return Purged(len(rows[:limit]), len(rows) > limit)


def set_paused(tx: Transaction, queue_name: str, lane_name: str | None, *, paused: bool) -> bool:
    """Pause or resume a queue or a lane. Returns whether the queue exists."""
    queue = tx.queue(queue_name)
    if queue is None:
        return False
    if lane_name is None:
        queue.paused = paused
        tx.touch_queue(queue)
    else:
        lane = tx.lane(queue, lane_name)
        lane.paused = paused
        tx.touch_lane(lane)
        filing.refresh(tx, queue, lane)
    filing.wake_if_claimable(tx, queue)
    return True
