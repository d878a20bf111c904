"""Sweep: what only time brings about, in bounded steps."""

from typing import TypeVar

from windlass.broker.memory import filing, lifecycle
from windlass.broker.memory.namespace import Job, Namespace, Queue
from windlass.broker.memory.sessions import mark_ended, return_leases
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import ENDED_KEPT, OVERDUE, SessionState, Swept, is_early
from windlass.core.settlement import rule_deadline
from windlass.core.state import WAITING, Move, State
from windlass.core.units import SECOND, JobId, Micros, SessionId

_T = TypeVar("_T")


def sweep(ns: Namespace, limit: int, every: Micros, *, keep_dead: bool = False) -> Swept:
    """One pass: at most `limit` items."""
    elapsed = None if ns.swept_at is None else ns.now() - ns.swept_at
    since = max(0, elapsed or 0)
    if is_early(elapsed, every, left_work=ns.sweep_left_work):
        return Swept(early=True, since=since)
    stepped_back = _move_clocks(ns)
    budget = _Budget(limit)
    # Ends that this pass brings about are told within its limit, not each with a fan-out of its own.
    ns.telling = ns.fates
    with lifecycle.recorded(ns) as moves:
        reaped = _reap(ns, budget)
        _end_deadlines(ns, budget)
        promoted = budget.spend(lifecycle.promote_due(ns, budget.left))
        _expire(ns, budget)
        budget.spend(lifecycle.resolve_fates(ns, ns.fates, budget.left))
        pruned, overdue = _prune(ns, budget, keep_dead=keep_dead)
    ns.telling = None
    _forget(ns, budget)
    for queue in ns.queues.values():
        filing.refresh_all(ns, queue)
        filing.forget_idle(ns, queue)
    ns.sweep_left_work = budget.left == 0 or bool(ns.fates)
    return Swept(
        promoted=promoted,
        reaped=tuple(reaped),
        moved=tuple(moved for moved in moves if moved.move is not Move.DUE),
        pruned=pruned,
        overdue=overdue,
        more=ns.sweep_left_work,
        schedules_due=_schedules_due(ns),
        since=since,
        stepped_back=stepped_back,
    )


class _Budget:
    """Items that this pass may still work on. A pass that used all of it may have left some."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, items: int) -> int:
        self.left -= items
        return items

    def cut(self, items: list[_T]) -> list[_T]:
        """As many as fit."""
        chosen = items[: self.left]
        self.left -= len(chosen)
        return chosen


def _move_clocks(ns: Namespace) -> Micros:
    """Write the mark, move the liveness clock. Returns how far the clock was set back, if it is followed."""
    now = ns.now()
    stepped_back = max(0, ns.mark - now)
    ns.live = ns.liveness()
    ns.mark = ns.swept_at = now
    return stepped_back


def _reap(ns: Namespace, budget: _Budget) -> list[SessionId]:
    """End silent sessions as lost, and go on returning the leases of ended ones."""
    reaped: list[SessionId] = []
    for session_id, session in ns.sessions.items():
        silent = ns.live - session.seen
        if session.state is SessionState.ALIVE and silent > session.info.ttl and budget.left:
            mark_ended(ns, session, Cause(CauseKind.LOST, f"silent for {silent // SECOND} s"))
            reaped.append(session_id)
            budget.spend(1)
        if session.state is SessionState.ENDED and session.leases:
            budget.spend(return_leases(ns, session, budget.left))
    return reaped


def _end_deadlines(ns: Namespace, budget: _Budget) -> None:
    now = ns.now()
    late = [
        job
        for job in ns.jobs.values()
        if job.state is State.RUNNING and job.deadline is not None and job.deadline <= now
    ]
    late.sort(key=lambda job: (job.deadline or 0, job.arrival))
    for job in budget.cut(late):
        cause = Cause(CauseKind.DEADLINE, "not extended in time")
        lifecycle.end_lease(ns, job, rule_deadline(ns.facts(job)), unstarted=False, cause=cause)
        lifecycle.drop_if_unkept(ns, job)


def _expire(ns: Namespace, budget: _Budget) -> None:
    now = ns.now()
    expired = [job for job in ns.jobs.values() if job.state in WAITING and lifecycle.is_expired(job, now)]
    # Where not all fit, those that expired first; in the order of their arrival.
    chosen = {job.id for job in budget.cut(sorted(expired, key=lambda job: job.expires_at or 0))}
    for job in expired:
        if job.id in chosen:
            lifecycle.expire(ns, job)


def _prune(ns: Namespace, budget: _Budget, *, keep_dead: bool) -> tuple[int, tuple[JobId, ...]]:
    """Remove finished jobs that are to be kept no longer, and results before them. Returns how many, and the
    dead letters that were to be left.
    """
    finished = [job for job in ns.jobs.values() if job.finished_at is not None]
    finished.sort(key=lambda job: (job.finished_at or 0, job.arrival))
    gone: list[Job] = []
    left: list[JobId] = []
    for queue in ns.queues.values():
        over = _overdue(ns, queue, [job for job in finished if job.asked.queue == queue.name])
        over = [job for job in over if not lifecycle.is_needed(ns, job)]
        dead = [job.id for job in over if keep_dead and job.state is State.DEAD]
        left += dead[:OVERDUE]
        gone += [job for job in over if job.id not in dead]
    gone = budget.cut(gone)
    for job in gone:
        lifecycle.drop(ns, job, Move.PRUNE)
    outdated = [job for job in finished if job.result is not None and not lifecycle.keeps_result(ns, job)]
    for job in budget.cut(
        [job for job in outdated if job.id in ns.jobs and not lifecycle.is_needed(ns, job)]
    ):
        job.result = None
    return len(gone), tuple(left)


def _overdue(ns: Namespace, queue: Queue, finished: list[Job]) -> list[Job]:
    """Of a queue's finished jobs, oldest first, those that are to go."""
    now, policy = ns.now(), queue.policy
    kept = [job for job in finished if job.state is not State.DEAD and not lifecycle.is_needed(ns, job)]
    over = 0 if policy.retention_count is None else max(0, len(kept) - policy.retention_count)
    gone = kept[:over]
    for job in finished:
        assert job.finished_at is not None
        retention = policy.dead_retention if job.state is State.DEAD else policy.retention
        if job.finished_at + retention <= now and not lifecycle.keeps_result(ns, job) and job not in gone:
            gone.append(job)
    return gone


def _forget(ns: Namespace, budget: _Budget) -> None:
    """Drop small records whose time is over: keys, ids, ended sessions."""
    now = ns.now()
    for place in budget.cut([p for p, key in ns.keys.items() if key.until is not None and key.until <= now]):
        del ns.keys[place]
    for job in budget.cut([job for job, kept in ns.remembered.items() if kept.until <= now]):
        del ns.remembered[job]
    for job in budget.cut([job for job, kept in ns.absorbed.items() if kept.until <= now]):
        del ns.absorbed[job]
    ended = [
        session_id
        for session_id, session in ns.sessions.items()
        if session.state is SessionState.ENDED and not session.leases and session.ended_at + ENDED_KEPT <= now
    ]
    for session_id in budget.cut(ended):
        del ns.sessions[session_id]


def _schedules_due(ns: Namespace) -> bool:
    now = ns.now()
    return any(
        schedule.next_at is not None and schedule.next_at <= now and not schedule.paused
        for schedule in ns.schedules.values()
    )
