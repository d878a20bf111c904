"""The life of a job: the one place where states change, leases end and jobs finish."""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from windlass.broker.memory import filing
from windlass.broker.memory.namespace import Fate, Job, Namespace, Remembered
from windlass.core.dedup import held_until
from windlass.core.edge import EdgeRuling, rule_edge
from windlass.core.event import Event, is_logged
from windlass.core.group import key_place
from windlass.core.job import Delivery, Moved, NewJob, OnFailure
from windlass.core.outcome import Cause, Error, Outcome
from windlass.core.settlement import Ruling, is_crash
from windlass.core.state import TERMINAL, UNFINISHED, WAITING, Move, Reason, State, permitted
from windlass.core.units import JobId, Micros

_COUNTED_ONCE = frozenset({State.DONE, State.CANCELLED})


def transition(
    ns: Namespace,
    job: Job,
    move: Move,
    after: State | None,
    reason: Reason | None = None,
    *,
    outcome: Outcome | None = None,
    runtime: Micros | None = None,
    waited: Micros | None = None,
) -> None:
    """Change the state of a job, count it and log it. Nothing else does."""
    before = job.state
    assert permitted(before, move, after), f"{before} --{move}--> {after} is not in the table"
    job.state, job.reason = after, reason
    if before is not None and before not in _COUNTED_ONCE:
        _count(ns, job, before, -1)
    if after is not None and (after not in _COUNTED_ONCE or before is not after):
        _count(ns, job, after, 1)
    if ns.moves is not None and before is not None and after is not None:
        ns.moves.append(
            Moved(
                job=job.id,
                queue=job.asked.queue,
                task=job.asked.task,
                lane=job.asked.lane,
                move=move,
                before=before,
                after=after,
                reason=reason,
            )
        )
    if is_logged(ns.queues[job.asked.queue].policy.emit, before, after):
        _log(
            ns,
            Event(
                at=ns.now(),
                job=job.id,
                task=job.asked.task,
                queue=job.asked.queue,
                lane=job.asked.lane,
                move=move,
                before=before,
                after=after,
                reason=reason,
                outcome=outcome,
                attempt=job.attempt,
                fence=job.fence,
                runtime=runtime,
                waited=waited,
            ),
        )


def _count(ns: Namespace, job: Job, state: State, by: int) -> None:
    place = (job.asked.queue, job.asked.task, state)
    ns.counts[place] = ns.counts.get(place, 0) + by


def _log(ns: Namespace, event: Event) -> None:
    ns.log.append(event)
    ns.log_end += 1
    if len(ns.log) > ns.options.events_kept:
        ns.log.popleft()
    ns.bells.ring()


@contextmanager
def recorded(ns: Namespace) -> Generator[list[Moved]]:
    """Collect every transition of a step."""
    ns.moves = []
    try:
        yield ns.moves
    finally:
        ns.moves = None


# waiting


def make_waiting(ns: Namespace, job: Job, move: Move) -> None:
    """Let a job wait: scheduled if it is not due, else ready."""
    if job.due_at > ns.now():
        transition(ns, job, move, State.SCHEDULED)
        schedule(ns, job)
    else:
        transition(ns, job, move, State.READY)
        filing.file(ns, job)


def schedule(ns: Namespace, job: Job) -> None:
    """Number a job that has just become scheduled: jobs that are due at the same time go in this order."""
    if not ns.queues[job.asked.queue].policy.sequence:
        job.sequence = ns.number()


def leave_waiting(ns: Namespace, job: Job) -> None:
    """Take a waiting job out of its place; its state is about to change."""
    if job.state is State.READY:
        filing.unfile(ns, job)


def promote_due(ns: Namespace, limit: int, queues: frozenset[str] | None = None) -> int:
    """Make due jobs ready, in order of their due times, and say how many."""
    now = ns.now()
    due = sorted(
        (job.due_at, job.sequence, job.id)
        for job in ns.jobs.values()
        if job.state is State.SCHEDULED
        and job.due_at <= now
        and (queues is None or job.asked.queue in queues)
    )
    for _, _, job_id in due[:limit]:
        promote(ns, ns.jobs[job_id], Move.DUE)
    return len(due[:limit])


def promote(ns: Namespace, job: Job, move: Move) -> None:
    """Make a scheduled job ready."""
    transition(ns, job, move, State.READY)
    filing.file(ns, job)


def is_expired(job: Job, now: Micros) -> bool:
    """Whether a waiting job was not started in time. Only its first start counts."""
    return job.expires_at is not None and job.expires_at <= now and not job.started


def waits_to_start(job: Job, now: Micros) -> bool:
    """Whether a job could have started by now, and never has."""
    return job.state in WAITING and not job.started and (job.due_at <= now or job.held is not None)


# the end of a lease


def end_lease(
    ns: Namespace,
    job: Job,
    ruling: Ruling,
    *,
    unstarted: bool,
    cause: Cause | None = None,
    runtime: Micros | None = None,
    error: Error | None = None,
) -> None:
    """End the lease of a running job as ruled. A settlement has no cause; everything else has one."""
    now = ns.now()
    ran = runtime is not None or ruling.charged
    job.deliveries.append(
        Delivery(
            fence=job.fence,
            attempt=job.attempt,
            session=job.session,
            claimed_at=job.claimed_at,
            ended_at=now,
            outcome=ruling.outcome,
            settled=cause is None,
            cause=cause,
            runtime=runtime,
            error=error,
        )
    )
    if job.session is not None:
        del ns.sessions[job.session].leases[job.id]
    job.session = job.deadline = None
    job.started = job.started or ran
    job.attempt -= not ruling.charged
    job.crashes += cause is not None and is_crash(cause, ruling)
    if error is not None:
        job.error = error
    if ran:
        job.held = None
    filing.vacate(ns, job, unstarted=unstarted)
    if ruling.state in TERMINAL:
        finish(ns, job, ruling.move, ruling.state, ruling.reason, outcome=ruling.outcome, runtime=runtime)
        return
    waited = max(0, job.claimed_at - job.due_at)
    if not ruling.keeps_place:
        job.due_at = now + ruling.delay
    transition(ns, job, ruling.move, ruling.state, outcome=ruling.outcome, runtime=runtime, waited=waited)
    if ruling.state is State.SCHEDULED:
        schedule(ns, job)
    else:
        filing.file(ns, job, keeps_place=ruling.keeps_place)


# the end of a job


def finish(
    ns: Namespace,
    job: Job,
    move: Move,
    state: State,
    reason: Reason | None,
    *,
    outcome: Outcome | None = None,
    runtime: Micros | None = None,
) -> None:
    """Bring a job to a terminal state: its key, its line, its memos, and word to its dependents."""
    now = ns.now()
    leave_waiting(ns, job)
    waited = max(0, job.claimed_at - job.due_at) if job.state is State.RUNNING else None
    transition(ns, job, move, state, reason, outcome=outcome, runtime=runtime, waited=waited)
    job.finished_at = now
    job.cancel_requested = False
    job.memos.clear()
    for parent in job.waiting_for:
        ns.edges.get(parent, {}).pop(job.id, None)
    job.waiting_for.clear()
    filing.leave_line(ns, job)
    release_key(ns, job)
    tell_dependents(ns, job.id, state)
    ns.bells.ring()


def release_key(ns: Namespace, job: Job) -> None:
    """Let go of a key: to the follower, or once the window is over."""
    place = key_place(job.asked)
    key = None if place is None else ns.keys.get(place)
    if place is None or key is None or job.finished_at is None:
        return
    if key.follower == job.id:
        key.follower = None
    elif key.holder == job.id and key.follower is not None:
        follower = ns.jobs[key.follower]
        key.holder, key.follower = follower.id, None
        key.mode, key.window, key.accepted_at = (
            follower.asked.mode,
            follower.asked.window,
            follower.accepted_at,
        )
        follower.waiting_for.discard(job.id)
        unblock(ns, follower)
    elif key.holder == job.id:
        key.until = held_until(key.mode, key.window, key.accepted_at, job.finished_at)
        if key.until <= ns.now():
            del ns.keys[place]


# flows


def unblock(ns: Namespace, job: Job) -> None:
    """A job's last parent is out of its way."""
    filing.line_up(ns, job)
    make_waiting(ns, job, Move.UNBLOCK)


def tell_dependents(ns: Namespace, parent: JobId, state: State) -> None:
    """Resolve the edges to a parent that has ended, a bounded number of them now and the rest by sweep.

    An end can cascade (a cancelled dependent has dependents): the work is a queue, not a recursion, and the
    bound is on the whole of it.
    """
    if not ns.edges.get(parent):
        return
    if ns.telling is not None:
        ns.telling.append(Fate(parent, state))
        return
    fates = deque([Fate(parent, state)])
    ns.fan_out_left -= resolve_fates(ns, fates, ns.fan_out_left)
    ns.fates.extend(fates)


def resolve_fates(ns: Namespace, fates: deque[Fate], limit: int) -> int:
    """Resolve up to so many edges, oldest end first; what is not done stays in `fates`."""
    told = 0
    outer, ns.telling = ns.telling, fates
    while fates and told < limit:
        fate = fates[0]
        child_id = _next_edge(ns, fate)
        if child_id is None:
            fates.popleft()
            continue
        edge = ns.edges[fate.parent].pop(child_id)
        told += 1
        _resolve(ns, ns.jobs[child_id], fate, edge.on_failure)
    ns.telling = outer
    return told


def _next_edge(ns: Namespace, fate: Fate) -> JobId | None:
    if fate.state is not State.DEAD:
        return next(iter(ns.edges.get(fate.parent, {})), None)
    parent = ns.jobs.get(fate.parent)
    if parent is not None and parent.state is not State.DEAD:
        return None  # replayed meanwhile: its death is void for those who were not told
    edges = ns.edges.get(fate.parent, {})
    return next((child for child, edge in edges.items() if edge.on_failure is OnFailure.RUN), None)


def _resolve(ns: Namespace, child: Job, fate: Fate, on_failure: OnFailure) -> None:
    if rule_edge(on_failure, fate.state) is EdgeRuling.CANCEL:
        finish(ns, child, Move.PARENT_FAILED, State.CANCELLED, Reason.PARENT_FAILED)
        drop_if_unkept(ns, child)
        return
    child.waiting_for.discard(fate.parent)
    if not child.waiting_for:
        unblock(ns, child)


def need(ns: Namespace, parent: JobId, job: Job) -> None:
    """Keep a parent until a job has ended. One that is gone ties nobody, should its id come again."""
    if parent in ns.jobs:
        ns.dependents.setdefault(parent, []).append(job.id)


def is_needed(ns: Namespace, job: Job) -> bool:
    """Whether an unfinished job, or an end that its dependents have yet to be told, depends on it.

    Those that wait for a dead parent have no claim on it: when it goes, their edges act.
    """
    dependents = ns.dependents.get(job.id, ())
    if dependents and any(fate.parent == job.id for fate in ns.fates):
        return True
    for child in (ns.jobs.get(child_id) for child_id in dependents):
        if child is None or child.state not in UNFINISHED:
            continue
        waits_in_vain = job.state is State.DEAD and job.id in child.waiting_for
        # A dependent that is gone and forgotten may have left its id to a job that depends on nobody.
        if not waits_in_vain and any(edge.parent == job.id for edge in child.asked.after):
            return True
    return False


# removal


def drop_if_unkept(ns: Namespace, job: Job) -> None:
    """A finished job of which nothing is to be kept goes at once."""
    policy = ns.queues[job.asked.queue].policy
    keep = policy.retention or keeps_result(ns, job) or is_needed(ns, job)
    if job.state in _COUNTED_ONCE and not keep:
        drop(ns, job, Move.PRUNE)


def keeps_result(ns: Namespace, job: Job) -> bool:
    """Whether a job's result is still to be kept."""
    ttl = ns.queues[job.asked.queue].policy.result_ttl
    return job.result is not None and job.finished_at is not None and job.finished_at + ttl > ns.now()


def drop(ns: Namespace, job: Job, move: Move) -> None:
    """Remove a finished job. How it ended is remembered for the resend window; a dead one's edges act."""
    assert job.state in TERMINAL
    assert job.finished_at is not None
    was, why = job.state, job.reason
    last = job.deliveries[-1] if job.deliveries else None
    until = job.finished_at + ns.options.resend_window
    if until > ns.now():
        ns.remembered[job.id] = Remembered(job, last.outcome if last and last.settled else None, until)
    transition(ns, job, move, None)
    job.state, job.reason = was, why  # for those who still ask how it ended
    job.asked = NewJob(id=job.id, task=job.asked.task, queue=job.asked.queue, lane=job.asked.lane)
    job.held = job.progress = job.result = job.error = None
    job.deliveries.clear()
    job.logs.clear()
    del ns.jobs[job.id]
    ns.dependents.pop(job.id, None)
    if was is State.DEAD:
        tell_dependents(ns, job.id, State.CANCELLED)


def cancel_waiting(ns: Namespace, job: Job, move: Move, reason: Reason) -> None:
    """Cancel a job that waits."""
    assert job.state in WAITING
    finish(ns, job, move, State.CANCELLED, reason)
    drop_if_unkept(ns, job)


def expire(ns: Namespace, job: Job) -> None:
    """A waiting job was not started in time."""
    finish(ns, job, Move.EXPIRE, State.DEAD, Reason.EXPIRED)
