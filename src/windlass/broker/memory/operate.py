"""What operators do to jobs, queues and lanes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from windlass.broker.memory import filing, lifecycle
from windlass.broker.memory.namespace import Job, Key, Namespace
from windlass.core.bounds import CALL_ITEMS, check_items
from windlass.core.group import key_place
from windlass.core.operate import Edit, Effect, Operated, Purged, Target
from windlass.core.state import TERMINAL, WAITING, Move, Reason, State
from windlass.errors import ContractError

_T = TypeVar("_T", Target, Edit)


def cancel(ns: Namespace, targets: Sequence[Target]) -> tuple[Operated, ...]:
    """Cancel waiting jobs, flag running ones."""
    return _each(ns, targets, _cancel)


def replay(ns: Namespace, targets: Sequence[Target]) -> tuple[Operated, ...]:
    """Send dead letters back."""
    return _each(ns, targets, _replay)


def discard(ns: Namespace, targets: Sequence[Target]) -> tuple[Operated, ...]:
    """Remove dead letters."""
    return _each(ns, targets, _discard)


def prune(ns: Namespace, targets: Sequence[Target]) -> tuple[Operated, ...]:
    """Remove finished jobs that nothing needs."""
    return _each(ns, targets, _prune)


def edit(ns: Namespace, edits: Sequence[Edit]) -> tuple[Operated, ...]:
    """Change waiting or dead jobs."""
    return _each(ns, edits, _edit)


def _each(
    ns: Namespace, items: Sequence[_T], operation: Callable[[Namespace, Job, _T], Operated]
) -> tuple[Operated, ...]:
    """Do one thing to each job that is in the expected state."""
    check_items("jobs", items)
    answers: list[Operated] = []
    for item in items:
        job = ns.jobs.get(item.job)
        if job is None:
            answers.append(Operated(item.job, Effect.NOT_FOUND))
        elif item.expect not in (None, job.state):
            answers.append(Operated(item.job, Effect.WRONG_STATE, job.state))
        else:
            answers.append(operation(ns, job, item))
    return tuple(answers)


def _cancel(ns: Namespace, job: Job, _: Target) -> Operated:
    if job.state in TERMINAL:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    if job.state is State.RUNNING:
        job.cancel_requested = True
        return Operated(job.id, Effect.FLAGGED, job.state)
    lifecycle.cancel_waiting(ns, job, Move.CANCEL, Reason.CANCELLED)
    return Operated(job.id, Effect.APPLIED, job.state)


def _replay(ns: Namespace, job: Job, _: Target) -> Operated:
    if job.state is not State.DEAD:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    place = key_place(job.asked)
    if place is not None:
        key = ns.keys.get(place)
        if key is not None and key.holder != job.id and _still_holds(ns, key):
            return Operated(job.id, Effect.CONFLICT, job.state, key.holder)
        ns.keys[place] = Key(job.id, job.asked.mode, job.asked.window, job.accepted_at)
    job.attempt = job.crashes = 0
    job.replays += 1
    job.held = job.expires_at = job.finished_at = job.progress = None
    job.due_at = ns.now()
    for edge in job.asked.after:
        lifecycle.need(ns, edge.parent, job)
    filing.line_up(ns, job)
    lifecycle.make_waiting(ns, job, Move.REPLAY)
    return Operated(job.id, Effect.APPLIED, job.state)


def _still_holds(ns: Namespace, key: Key) -> bool:
    return key.until is None or ns.now() < key.until


def _discard(ns: Namespace, job: Job, _: Target) -> Operated:
    if job.state is not State.DEAD:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    lifecycle.drop(ns, job, Move.DISCARD)
    return Operated(job.id, Effect.APPLIED)


def _prune(ns: Namespace, job: Job, _: Target) -> Operated:
    if job.state not in TERMINAL:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    if job.state is not State.DEAD and lifecycle.is_needed(ns, job):
        return Operated(job.id, Effect.CONFLICT, job.state)
    lifecycle.drop(ns, job, Move.PRUNE)
    return Operated(job.id, Effect.APPLIED)


def _edit(ns: Namespace, job: Job, change: Edit) -> Operated:
    if job.state not in WAITING | {State.DEAD}:
        return Operated(job.id, Effect.WRONG_STATE, job.state)
    fields = ("payload", "headers", "tags", "priority", "max_attempts")
    said = {name: value for name in fields if (value := getattr(change, name)) is not None}
    if job.state is State.READY:
        filing.unfile(ns, job)
    job.asked = msgspec.structs.replace(job.asked, **said)
    lifecycle.transition(ns, job, Move.EDIT, job.state, job.reason)
    if job.state is State.READY:
        if change.priority is not None:
            filing.set_band(ns, job)
        filing.file(ns, job, keeps_place=True)
    return Operated(job.id, Effect.APPLIED, job.state)


def purge(ns: Namespace, queue: str, state: State, limit: int) -> Purged:
    """Cancel waiting jobs, remove finished ones, oldest first."""
    if state is State.RUNNING:
        raise ContractError("running jobs are not purged; cancel them")
    jobs = [job for job in ns.jobs.values() if job.asked.queue == queue and job.state is state]
    if state in TERMINAL:
        jobs = [job for job in jobs if not lifecycle.is_needed(ns, job) or state is State.DEAD]
    limit = min(limit, CALL_ITEMS)
    purged = 0
    for job in jobs[:limit]:
        if job.state is not state:
            continue  # the end of one before it has moved it
        purged += 1
        if state in WAITING:
            lifecycle.cancel_waiting(ns, job, Move.PURGE, Reason.PURGED)
        else:
            lifecycle.drop(ns, job, Move.PURGE)
    return Purged(purged, len(jobs) > limit)


def unhold(ns: Namespace, key: str, limit: int) -> Purged:
    """Make held jobs of this key ready."""
    held = [
        job
        for job in ns.jobs.values()
        if job.state is State.SCHEDULED and job.held is not None and job.held.key == key
    ]
    held.sort(key=lambda job: (job.due_at, job.sequence))
    limit = min(limit, CALL_ITEMS)
    for job in held[:limit]:
        job.due_at = ns.now()
        lifecycle.promote(ns, job, Move.UNHOLD)
    return Purged(len(held[:limit]), len(held) > limit)


def set_paused(ns: Namespace, queue_name: str, lane_name: str | None, *, paused: bool) -> bool:
    """Pause or resume a queue or a lane; whether the queue exists."""
    queue = ns.queues.get(queue_name)
    if queue is None:
        return False
    if lane_name is None:
        queue.paused = paused
    else:
        lane = filing.lane_of(ns, queue, lane_name)
        lane.paused = paused
        filing.refresh(ns, queue, lane)
    filing.wake_if_claimable(ns, queue)
    return True
