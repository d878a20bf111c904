"""Why a job is not running."""

from windlass.broker.memory import filing
from windlass.broker.memory.namespace import Job, Namespace
from windlass.broker.memory.reads import has_dead_parent
from windlass.core.query import AHEAD_LIMIT, Explanation, Parked, Why
from windlass.core.session import SessionState
from windlass.core.state import TERMINAL, State
from windlass.core.units import JobId, Micros

_LANE_REASONS = {Parked.CONCURRENCY: Why.LANE_CONCURRENCY, Parked.RATE: Why.LANE_RATE}


def explain(ns: Namespace, job_id: JobId) -> Explanation:
    """The first reason that applies."""
    job = ns.jobs.get(job_id)
    if job is None:
        return Explanation(job=job_id, state=None, why=Why.UNKNOWN)
    why, next_in, detail = _reason(ns, job)
    ahead = _ahead(ns, job) if job.state is State.READY else 0
    return Explanation(
        job=job_id,
        state=job.state,
        why=why,
        detail=detail,
        ahead=ahead,
        next_in=next_in,
        error=job.error if why in (Why.RETRYING, Why.FINISHED) else None,
    )


def _reason(ns: Namespace, job: Job) -> tuple[Why, Micros | None, str]:
    if job.state in TERMINAL:
        return Why.FINISHED, None, job.reason or ""
    if job.state is State.RUNNING:
        return Why.RUNNING, None, job.session or ""
    if job.state is State.BLOCKED:
        return _blocked(ns, job)
    if job.state is State.SCHEDULED:
        return _scheduled(ns, job)
    return _ready(ns, job)


def _blocked(ns: Namespace, job: Job) -> tuple[Why, Micros | None, str]:
    if has_dead_parent(ns, job):
        return Why.PARENT_DEAD, None, ""
    follows = not any(edge.parent in job.waiting_for for edge in job.asked.after)
    return (Why.FOLLOWS if follows else Why.PARENTS), None, ", ".join(sorted(job.waiting_for)[:3])


def _scheduled(ns: Namespace, job: Job) -> tuple[Why, Micros | None, str]:
    due_in = max(0, job.due_at - ns.now())
    if job.held is not None:
        return Why.HELD, due_in, job.held.reason
    return (Why.RETRYING if job.attempt else Why.NOT_DUE), due_in, ""


def _ready(ns: Namespace, job: Job) -> tuple[Why, Micros | None, str]:
    now = ns.now()
    queue = ns.queues[job.asked.queue]
    lane = queue.lanes[job.asked.lane]
    if queue.paused:
        return Why.QUEUE_PAUSED, None, ""
    if lane.paused:
        return Why.LANE_PAUSED, None, ""
    if lane.line and lane.line[0][1] != job.id:
        return Why.SEQUENCE, None, lane.line[0][1]
    if queue.policy.concurrency is not None and queue.running >= queue.policy.concurrency:
        return Why.QUEUE_CONCURRENCY, None, ""
    if token := filing.wait_for_token(queue, queue.policy.rate, now):
        return Why.QUEUE_RATE, token, ""
    if (parked := filing.parked(lane, now)) is not None:
        token = filing.wait_for_token(lane, lane.policy.rate, now) if parked is Parked.RATE else None
        return _LANE_REASONS[parked], token, ""
    if not _is_served(ns, queue.name):
        return Why.NO_WORKER, None, ""
    if job.suspect:
        return Why.SUSPECT, None, ""
    return (Why.AHEAD if _ahead(ns, job) else Why.NEXT), None, ""


def _is_served(ns: Namespace, queue: str) -> bool:
    alive = (session for session in ns.sessions.values() if session.state is SessionState.ALIVE)
    return any(queue in session.info.queues for session in alive)


def _ahead(ns: Namespace, job: Job) -> int:
    """Ready jobs of its lane that go first."""
    queue = ns.queues[job.asked.queue]
    lane = queue.lanes[job.asked.lane]
    if job.suspect:
        ahead = lane.suspects.index((job.sequence, job.id))
    elif queue.policy.sequence:
        before = lane.line[: lane.line.index((job.sequence, job.id))]
        ahead = sum(ns.jobs[other].state is State.READY for _, other in before)
    else:
        ahead = lane.ready.index((job.band, job.sequence, job.id))
    return min(ahead, AHEAD_LIMIT)
