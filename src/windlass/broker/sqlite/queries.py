"""Reads: jobs, listings, counts, sessions, events."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from windlass.broker.sqlite import flows
from windlass.broker.sqlite.records import LOGGED, MEMOS, RESULT, SAID, Body, Job, read_delivery, state_of
from windlass.broker.sqlite.sessions import SQL as SESSIONS
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.core.event import FROM_NOW, FROM_START, Event, Events
from windlass.core.job import FORGOTTEN, Finished, JobDetail, JobView, Progress
from windlass.core.outcome import Cause, Error
from windlass.core.query import (
    PAGE_ROWS,
    Count,
    Counts,
    JobQuery,
    Page,
    UnfinishedFlow,
    UnfinishedFlows,
    flow_in,
    number_in,
)
from windlass.core.session import SessionInfo, SessionState, SessionView
from windlass.core.state import Reason, State
from windlass.core.units import Cursor, JobId, SessionId

SQL = statements("queries")
JOBS = statements("jobs")
_END = 2**62

_error = msgspec.msgpack.Decoder(Error)
_event = msgspec.msgpack.Decoder(Event)
_info = msgspec.msgpack.Decoder(SessionInfo)
_cause = msgspec.msgpack.Decoder(Cause)


def get(tx: Snapshot, jobs: Sequence[JobId]) -> tuple[JobDetail | None, ...]:
    """Jobs by id."""
    return tuple(_get_one(tx, job) for job in jobs)


def _get_one(tx: Snapshot, job_id: JobId) -> JobDetail | None:
    job = tx.job(job_id) or tx.remembered(job_id)
    if job is None:
        return None
    if job.pruned_until is not None:
        reason = None if job.reason is None else Reason(job.reason)
        return msgspec.structs.replace(
            FORGOTTEN, id=job.id, state=job.state, reason=reason, fence=job.fence, finished_at=job.finished_at
        )
    body = tx.body(job)
    progress, error = _said(tx, job)
    view = _view(tx, job, body, progress)
    if flows.has_dead_parent(tx, job):
        view["reason"] = Reason.PARENT_DEAD
    return JobDetail(
        **view,
        payload=body.payload,
        headers=body.headers,
        after=body.after,
        result=tx.value(JOBS["result"], (job.n,)) if job.marks & RESULT else None,
        error=error,
        deliveries=tuple(read_delivery(*row) for row in tx.all(JOBS["deliveries"], (job.n,))),
        logs=tuple(line for (line,) in tx.all(JOBS["logs"], (job.n,))) if job.marks & LOGGED else (),
        memos=tuple(name for name, _ in tx.all(JOBS["memos"], (job.n,))) if job.marks & MEMOS else (),
    )


def _said(tx: Snapshot, job: Job) -> tuple[Progress | None, Error | None]:
    """How far a job said it was, and its last error."""
    if not job.marks & SAID:
        return None, None
    permille, message, error = tx.one(JOBS["said"], (job.n,)) or (None, None, None)
    progress = None if permille is None else Progress(permille, message or "")
    return progress, None if error is None else _error.decode(error)


def error_of(tx: Snapshot, job: Job) -> Error | None:
    """The last error of a job."""
    return _said(tx, job)[1]


def _view(tx: Snapshot, job: Job, body: Body, progress: Progress | None) -> dict[str, Any]:
    return {
        "id": job.id,
        "task": tx.task_name(job.t),
        "queue": tx.queue_of(job.q).name,
        "lane": job.lane,
        "priority": job.priority,
        "state": job.state,
        "reason": None if job.reason is None else Reason(job.reason),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "crashes": job.crashes,
        "fence": job.fence,
        "key": body.key,
        "tags": body.tags,
        "flow": job.flow,
        "parent": job.parent,
        "revision": job.revision,
        "accepted_at": job.accepted_at,
        "due_at": job.due_at,
        "expires_at": job.expires_at,
        "finished_at": job.finished_at,
        "session": None if job.session is None else tx.value(SESSIONS["session_id"], (job.session,)),
        "cancel_requested": bool(job.cancel_requested),
        "held": job.held,
        "waiting_for": job.waiting_for,
        "replays": job.replays,
        "progress": progress,
    }


def list_jobs(tx: Snapshot, query: JobQuery, after: Cursor, limit: int) -> Page:
    """Jobs that match, newest accepted first; a page examines a bounded number of rows."""
    last = number_in(after) if after else _END
    if query.flow:
        rows = tx.all(SQL["page_of_flow"], (last, PAGE_ROWS + 1, query.flow))
    elif query.states == frozenset({State.DEAD}):
        rows = tx.all(SQL["page_of_dead"], (last, PAGE_ROWS + 1))
    else:
        rows = tx.all(SQL["page"], (last, PAGE_ROWS + 1))
    found: list[JobView] = []
    for examined, (n,) in enumerate(rows):
        if len(found) == limit or examined == PAGE_ROWS:
            return Page(jobs=tuple(found), cursor=Cursor(str(rows[examined - 1][0])))
        job = tx.numbered(n)
        if _may_match(tx, query, job):
            found.append(JobView(**_view(tx, job, tx.bare_body(job), _said(tx, job)[0])))
    return Page(jobs=tuple(found))


def _may_match(tx: Snapshot, query: JobQuery, job: Job) -> bool:
    return (
        state_of(job.state_code) in query.states
        and query.lane in (None, job.lane)
        and query.flow in (None, job.flow)
        and query.queue in (None, tx.queue_of(job.q).name)
        and query.task in (None, tx.task_name(job.t))
    )


def unfinished_flows(tx: Snapshot, after: Cursor, limit: int) -> UnfinishedFlows:
    """The flows that have an unfinished job, by name."""
    rows = tx.all(SQL["unfinished_flows"], (flow_in(after), limit + 1))
    found = tuple(
        UnfinishedFlow(flow=flow, moving=bool(moving), held=bool(held), dead=bool(dead))
        for flow, moving, held, dead in rows[:limit]
    )
    return UnfinishedFlows(flows=found, cursor=Cursor(found[-1].flow) if len(rows) > limit else None)


def counts(tx: Snapshot) -> Counts:
    """How many jobs there are."""
    oldest: dict[str, int] = {}
    paused: list[str] = []
    for queue in tx.queues():
        if queue.paused:
            paused.append(queue.name)
        due_at = tx.value(SQL["oldest"], (queue.q,))
        if due_at is not None:
            oldest[queue.name] = max(0, tx.now - due_at)
    return Counts(
        rows=tuple(sorted(_counted(tx), key=lambda row: (row.queue, row.task, row.state))),
        oldest=oldest,
        paused=tuple(sorted(paused)),
    )


def _counted(tx: Snapshot) -> Iterator[Count]:
    for queue, task, state, count in tx.all(SQL["tallies"]):
        yield Count(queue, task, state_of(state), count)


def sessions(tx: Snapshot, after: SessionId, limit: int) -> tuple[SessionView, ...]:
    """Sessions by id."""
    return tuple(
        SessionView(
            id=session,
            info=_info.decode(info),
            state=SessionState.ALIVE if ended_at is None else SessionState.ENDED,
            opened_at=opened_at,
            silent_for=max(0, tx.stored.live - seen) if ended_at is None else silent_for,
            leases=leases,
            memory=memory,
            cause=None if cause is None else _cause.decode(cause),
        )
        for _, session, info, opened_at, seen, memory, ended_at, silent_for, cause, leases in tx.all(
            SESSIONS["views"], (after, limit)
        )
    )


def finished(tx: Snapshot, jobs: Sequence[JobId]) -> tuple[Finished, ...]:
    """Those of the jobs that have finished."""
    ended = {row[0]: row for row in tx.all(SQL["ended"], (json.dumps(list(jobs)),))}
    found: list[Finished] = []
    for job in jobs:
        row = ended.get(job)
        if row is None:
            continue
        _, state, reason, n, marks, pruned_until = row
        if pruned_until is not None and pruned_until <= tx.now:
            continue
        error = None
        if marks & SAID:
            error = tx.value(_ERROR, (n,))
        found.append(
            Finished(
                job=job,
                state=state_of(state),
                reason=None if reason is None else Reason(reason),
                result=tx.value(JOBS["result"], (n,)) if marks & RESULT else None,
                error=None if error is None else _error.decode(error),
            )
        )
    return tuple(found)


_ERROR = JOBS["error"]


def events(tx: Snapshot, after: Cursor, limit: int) -> Events:
    """A page of the event log."""
    end = tx.stored.event_end
    if after == FROM_NOW:
        return Events(cursor=Cursor(str(end)))
    oldest = tx.value(SQL["oldest_event"])
    oldest = end if oldest is None else oldest
    wanted = oldest if after == FROM_START else number_in(after)
    start = max(wanted, oldest)
    items = tuple(_event.decode(record) for _, record in tx.all(SQL["events"], (start, limit)))
    return Events(items=items, cursor=Cursor(str(start + len(items))), gap=wanted < oldest)
