"""Why a job is not running."""

import msgspec

from windlass.broker.sqlite import filing
from windlass.broker.sqlite.flows import SQL as FLOWS
from windlass.broker.sqlite.flows import has_dead_parent
from windlass.broker.sqlite.queries import error_of
from windlass.broker.sqlite.records import Job
from windlass.broker.sqlite.sessions import SQL as SESSIONS
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.core.query import AHEAD_LIMIT, Explanation, Parked, Why
from windlass.core.session import SessionInfo
from windlass.core.state import TERMINAL, State
from windlass.core.units import JobId, Micros

SQL = statements("queries")
_LANE_REASONS = {Parked.CONCURRENCY: Why.LANE_CONCURRENCY, Parked.RATE: Why.LANE_RATE}
_info = msgspec.msgpack.Decoder(SessionInfo)
_Reason = tuple[Why, Micros | None, str]


def explain(tx: Snapshot, job_id: JobId) -> Explanation:
    """The first reason that applies."""
    job = tx.job(job_id)
    if job is None:
        return Explanation(job=job_id, state=None, why=Why.UNKNOWN)
    why, next_in, detail = _reason(tx, job)
    return Explanation(
        job=job_id,
        state=job.state,
        why=why,
        detail=detail,
        ahead=_ahead(tx, job) if job.state is State.READY else 0,
        next_in=next_in,
        error=error_of(tx, job) if why in (Why.RETRYING, Why.FINISHED) else None,
    )


def _reason(tx: Snapshot, job: Job) -> _Reason:
    if job.state in TERMINAL:
        return Why.FINISHED, None, job.reason or ""
    if job.state is State.RUNNING:
        session = None if job.session is None else tx.value(SESSIONS["session_id"], (job.session,))
        return Why.RUNNING, None, session or ""
    if job.state is State.BLOCKED:
        return _blocked(tx, job)
    if job.state is State.SCHEDULED:
        return _scheduled(tx, job)
    return _ready(tx, job)


def _blocked(tx: Snapshot, job: Job) -> _Reason:
    if has_dead_parent(tx, job):
        return Why.PARENT_DEAD, None, ""
    parents = [parent for (parent,) in tx.all(FLOWS["open_parents"], (job.n,))]
    return (Why.PARENTS if parents else Why.FOLLOWS), None, ", ".join(parents[:3])


def _scheduled(tx: Snapshot, job: Job) -> _Reason:
    due_in = max(0, job.due_at - tx.now)
    if job.held is not None:
        return Why.HELD, due_in, job.held.reason
    return (Why.RETRYING if job.attempt else Why.NOT_DUE), due_in, ""


def _ready(tx: Snapshot, job: Job) -> _Reason:
    return _paused_or_behind(tx, job) or _limited(tx, job) or _waiting_its_turn(tx, job)


def _paused_or_behind(tx: Snapshot, job: Job) -> _Reason | None:
    queue = tx.queue_of(job.q)
    if queue.paused:
        return Why.QUEUE_PAUSED, None, ""
    if tx.lane(queue, job.lane).paused:
        return Why.LANE_PAUSED, None, ""
    head = tx.value(filing.SQL["head_of_line"], (job.q, job.lane)) if job.line is not None else job.n
    if head != job.n:
        return Why.SEQUENCE, None, tx.numbered(head).id
    return None


def _limited(tx: Snapshot, job: Job) -> _Reason | None:
    queue = tx.queue_of(job.q)
    lane = tx.lane(queue, job.lane)
    if queue.policy.concurrency is not None and queue.running >= queue.policy.concurrency:
        return Why.QUEUE_CONCURRENCY, None, ""
    if token := filing.wait_for_token(queue, queue.policy.rate, tx.now):
        return Why.QUEUE_RATE, token, ""
    if (parked := filing.parked(tx, queue, lane)) is not None:
        token = filing.wait_for_token(lane, lane.policy.rate, tx.now) if parked is Parked.RATE else None
        return _LANE_REASONS[parked], token, ""
    return None


def _waiting_its_turn(tx: Snapshot, job: Job) -> _Reason:
    if not _is_served(tx, tx.queue_of(job.q).name):
        return Why.NO_WORKER, None, ""
    if job.suspect:
        return Why.SUSPECT, None, ""
    return (Why.AHEAD if _ahead(tx, job) else Why.NEXT), None, ""


def _is_served(tx: Snapshot, queue: str) -> bool:
    return any(queue in _info.decode(info).queues for (info,) in tx.all(SESSIONS["infos"]))


def _ahead(tx: Snapshot, job: Job) -> int:
    """Ready jobs of its lane that go first."""
    if job.suspect:
        return tx.value(SQL["ahead_of_suspect"], (job.q, job.lane, job.sequence, AHEAD_LIMIT))
    if job.line is not None:
        return tx.value(SQL["ahead_in_line"], (job.q, job.lane, job.line, AHEAD_LIMIT))
    return tx.value(SQL["ahead_in_lane"], (job.q, job.lane, job.band, job.sequence, AHEAD_LIMIT))
