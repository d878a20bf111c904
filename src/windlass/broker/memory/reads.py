"""Reads: jobs, listings, counts, lanes, sessions, events."""

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.broker.memory import filing
from windlass.broker.memory.namespace import Job, Lane, Namespace, Queue
from windlass.core.event import FROM_NOW, FROM_START, Events
from windlass.core.job import FORGOTTEN, Finished, JobDetail, JobView
from windlass.core.limits import tokens
from windlass.core.query import (
    PAGE_ROWS,
    Count,
    Counts,
    JobQuery,
    Lanes,
    LaneView,
    Page,
    UnfinishedFlow,
    UnfinishedFlows,
    flow_in,
    lane_in,
    number_in,
)
from windlass.core.session import SessionState, SessionView
from windlass.core.settings import Kind, Subject
from windlass.core.state import TERMINAL, UNFINISHED, Reason, State
from windlass.core.units import Cursor, JobId, SessionId


def get(ns: Namespace, jobs: Sequence[JobId]) -> tuple[JobDetail | None, ...]:
    """Jobs by id."""
    return tuple(_get_one(ns, job) for job in jobs)


def _get_one(ns: Namespace, job_id: JobId) -> JobDetail | None:
    job = ns.jobs.get(job_id)
    if job is not None:
        view = _view(job)
        if has_dead_parent(ns, job):
            view["reason"] = Reason.PARENT_DEAD
        return JobDetail(
            **view,
            payload=job.asked.payload,
            headers=dict(job.asked.headers),
            after=job.asked.after,
            result=job.result,
            error=job.error,
            deliveries=tuple(job.deliveries),
            logs=tuple(job.logs),
            memos=tuple(sorted(job.memos)),
        )
    remembered = ns.remembered.get(job_id)
    if remembered is None or ns.now() >= remembered.until:
        return None
    job = remembered.job
    return msgspec.structs.replace(
        FORGOTTEN, id=job.id, state=job.state, reason=job.reason, fence=job.fence, finished_at=job.finished_at
    )


def _view(job: Job) -> dict[str, Any]:
    asked = job.asked
    return {
        "id": job.id,
        "task": asked.task,
        "queue": asked.queue,
        "lane": asked.lane,
        "priority": asked.priority,
        "state": job.state,
        "reason": job.reason,
        "attempt": job.attempt,
        "max_attempts": asked.max_attempts,
        "crashes": job.crashes,
        "fence": job.fence,
        "key": asked.key,
        "tags": asked.tags,
        "flow": asked.flow,
        "parent": job.parent,
        "revision": asked.revision,
        "accepted_at": job.accepted_at,
        "due_at": job.due_at,
        "expires_at": job.expires_at,
        "finished_at": job.finished_at,
        "session": job.session,
        "cancel_requested": job.cancel_requested,
        "held": job.held,
        "waiting_for": len(job.waiting_for),
        "replays": job.replays,
        "progress": job.progress,
    }


def has_dead_parent(ns: Namespace, job: Job) -> bool:
    """Whether a blocked job waits for a dead parent."""
    parents = (ns.jobs.get(parent) for parent in job.waiting_for)
    return any(parent is not None and parent.state is State.DEAD for parent in parents)


def list_jobs(ns: Namespace, query: JobQuery, after: Cursor, limit: int) -> Page:
    """Jobs that match, newest accepted first; a page examines a bounded number of rows."""
    last = number_in(after) if after else None
    rows = [job for job in reversed(ns.jobs.values()) if last is None or job.arrival < last]
    if query.flow:
        rows = [job for job in rows if job.asked.flow == query.flow]
    found: list[JobView] = []
    for examined, job in enumerate(rows):
        if len(found) == limit or examined == PAGE_ROWS:
            return Page(jobs=tuple(found), cursor=Cursor(str(rows[examined - 1].arrival)))
        view = JobView(**_view(job))
        if query.matches(view):
            found.append(view)
    return Page(jobs=tuple(found))


def flows(ns: Namespace, after: Cursor, limit: int) -> UnfinishedFlows:
    """The flows that have an unfinished job, by name."""
    last = flow_in(after)
    members: dict[str, list[Job]] = {}
    for job in ns.jobs.values():
        if job.asked.flow > last:
            members.setdefault(job.asked.flow, []).append(job)
    names = sorted(flow for flow, jobs in members.items() if any(job.state in UNFINISHED for job in jobs))
    return UnfinishedFlows(
        flows=tuple(_unfinished(name, members[name]) for name in names[:limit]),
        cursor=Cursor(names[limit - 1]) if len(names) > limit else None,
    )


def _unfinished(flow: str, jobs: Sequence[Job]) -> UnfinishedFlow:
    return UnfinishedFlow(
        flow=flow,
        moving=any(job.state in _MOVING and not _is_held(job) for job in jobs),
        held=any(_is_held(job) for job in jobs),
        dead=any(job.state is State.DEAD for job in jobs),
    )


_MOVING = UNFINISHED - {State.BLOCKED}


def _is_held(job: Job) -> bool:
    return job.state is State.SCHEDULED and job.held is not None


def counts(ns: Namespace) -> Counts:
    """How many jobs there are."""
    now = ns.now()
    oldest: dict[str, int] = {}
    for job in ns.jobs.values():
        if job.state is State.READY:
            oldest[job.asked.queue] = max(oldest.get(job.asked.queue, 0), now - job.due_at)
    rows = [Count(*place, count) for place, count in ns.counts.items() if count]
    return Counts(
        rows=tuple(sorted(rows, key=lambda row: (row.queue, row.task, row.state))),
        oldest=oldest,
        paused=tuple(sorted(name for name, queue in ns.queues.items() if queue.paused)),
    )


def lanes(ns: Namespace, queue_name: str, after: Cursor, limit: int) -> Lanes:
    """The lanes of a queue that there is something to say of."""
    last = lane_in(after)
    queue = ns.queues.get(queue_name)
    if queue is None:
        return Lanes()
    names = sorted(name for name in queue.lanes if _worth_showing(ns, queue, queue.lanes[name]))
    if last is not None:
        names = [name for name in names if name > last]
    views = tuple(_lane_view(ns, queue, queue.lanes[name]) for name in names[:limit])
    return Lanes(lanes=views, cursor=Cursor(f">{names[limit - 1]}") if len(names) > limit else None)


def _worth_showing(ns: Namespace, queue: Queue, lane: Lane) -> bool:
    has_settings = Subject(Kind.LANE, queue.name, lane.name) in ns.layers
    return bool(lane.ready or lane.suspects or lane.running or lane.paused or has_settings)


def _lane_view(ns: Namespace, queue: Queue, lane: Lane) -> LaneView:
    now, policy = ns.now(), lane.policy
    ready = len(lane.ready) + len(lane.suspects)
    return LaneView(
        queue=queue.name,
        lane=lane.name,
        weight=policy.weight,
        ready=ready,
        running=lane.running,
        lag=max((ring.lag(lane.name) for ring in queue.rings.values()), default=0),
        concurrency=policy.concurrency,
        tokens=None
        if policy.rate is None
        else tokens(filing.bucket_of(lane, policy.rate, now), policy.rate, now),
        parked=filing.parked(lane, now) if ready else None,
        paused=lane.paused,
    )


def sessions(ns: Namespace, after: SessionId, limit: int) -> tuple[SessionView, ...]:
    """Sessions by id."""
    wanted = sorted(session_id for session_id in ns.sessions if session_id > after)[:limit]
    return tuple(
        SessionView(
            id=session_id,
            info=session.info,
            state=session.state,
            opened_at=session.opened_at,
            silent_for=max(0, ns.live - session.seen)
            if session.state is SessionState.ALIVE
            else session.silent_for,
            leases=len(session.leases),
            memory=session.memory,
            cause=session.cause,
        )
        for session_id, session in ((name, ns.sessions[name]) for name in wanted)
    )


def finished(ns: Namespace, jobs: Sequence[JobId]) -> tuple[Finished, ...]:
    """Those of the jobs that have finished."""
    return tuple(
        Finished(job=job.id, state=job.state, reason=job.reason, result=job.result, error=job.error)
        for job in get(ns, jobs)
        if job is not None and job.state in TERMINAL
    )


def events(ns: Namespace, after: Cursor, limit: int) -> Events:
    """A page of the event log."""
    if after == FROM_NOW:
        return Events(cursor=Cursor(str(ns.log_end)))
    oldest = ns.oldest_event()
    wanted = oldest if after == FROM_START else number_in(after)
    start = max(wanted, oldest)
    items = list(ns.log)[start - oldest :][:limit]
    return Events(items=tuple(items), cursor=Cursor(str(start + len(items))), gap=wanted < oldest)
