"""What history keeps: attempts, who enqueued their jobs, and the workers that there were to run them."""

from collections.abc import Mapping, Sequence

import msgspec

from windlass.core.intake import intakes_run_by
from windlass.core.outcome import Outcome
from windlass.core.session import SessionState, SessionView
from windlass.core.state import Move
from windlass.core.units import SECOND, Fence, JobId, Micros, SessionId

SAMPLE: Micros = 5 * SECOND
"""How far apart the slots are counted."""
FAILED = (Outcome.RETRY, Outcome.DEAD)
GIVEN_BACK = (Outcome.SNOOZE, Outcome.RELEASE, Outcome.HOLD)
"""Ends that count as no attempt: they are kept, and are in no rate and no percentile."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One lease and how it ended. `(job, fence)` names it for good: written twice it is one."""

    job: JobId
    fence: Fence
    at: Micros
    """When it ended, on the store's clock."""
    task: str
    queue: str
    lane: str
    outcome: Outcome
    move: Move
    """Why: tells a crash and a lost worker from a failure of its own."""
    attempt: int
    wait: Micros | None
    """From due to handed out."""
    run: Micros | None
    """None: its code never started, or nobody can tell how long it ran."""
    worker_id: SessionId = ""
    """The session of the worker process; empty for a deadline lease, and if the job's record was gone when
    history was written.
    """
    host: str = ""
    started_at: Micros | None = None
    """When its worker was handed the job; None if the job's record was gone."""
    error_type: str = ""
    """Empty: it did not fail. Of a crash or a lost worker: the word for that."""
    error: str = ""
    """The message, without secrets."""
    fingerprint: str = ""
    """The same for errors of the same kind from the same place."""
    tags: tuple[str, ...] = ()


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """That a job was accepted, and on whose word."""

    job: JobId
    at: Micros
    task: str
    queue: str
    lane: str
    key: str | None
    """Its unique key."""
    by_key: str
    """The API key of the caller; empty: it did not come over HTTP."""
    by_app: str
    by_host: str
    tags: tuple[str, ...] = ()


class Slots(msgspec.Struct, frozen=True, kw_only=True):
    """The worker processes of a host at one moment; a multiple of `SAMPLE`, so that two readers write one."""

    at: Micros
    host: str
    processes: int
    slots: int
    leases: int


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process, and from when to when it was seen alive."""

    worker_id: SessionId
    host: str
    pid: int
    app: str
    slots: int
    opened_at: Micros
    seen_at: Micros


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is written together."""

    attempts: Sequence[Attempt] = ()
    enqueued: Sequence[Enqueued] = ()
    slots: Sequence[Slots] = ()
    workers: Sequence[Worker] = ()


def slots_at(now: Micros, alive: Sequence[SessionView]) -> list[Slots]:
    """The slots of each host, of processes that run jobs."""
    at = now // SAMPLE * SAMPLE
    by_host: dict[str, list[SessionView]] = {}
    for session in alive:
        if not intakes_run_by(session.info.queues):
            by_host.setdefault(session.info.host, []).append(session)
    return [
        Slots(
            at=at,
            host=host,
            processes=len(sessions),
            slots=sum(session.info.slots for session in sessions),
            leases=sum(session.leases for session in sessions),
        )
        for host, sessions in by_host.items()
    ]


def worker_of(session: SessionView, seen_at: Micros) -> Worker:
    """A worker process that was alive at that time."""
    info = session.info
    return Worker(
        worker_id=session.id,
        host=info.host,
        pid=info.pid,
        app=info.app,
        slots=info.slots,
        opened_at=session.opened_at,
        seen_at=seen_at,
    )


def workers_at(now: Micros, alive: Sequence[SessionView]) -> list[Worker]:
    """The worker processes that have slots."""
    return [worker_of(session, now) for session in alive if session.info.slots]


def workers_gone(sessions: Mapping[SessionId, SessionView], attempts: Sequence[Attempt]) -> list[Worker]:
    """The worker processes of these attempts that have ended since. Nobody may have seen them alive; the last
    that is known of them is that they ended something.
    """
    last: dict[SessionId, Micros] = {}
    for attempt in attempts:
        last[attempt.worker_id] = max(attempt.at, last.get(attempt.worker_id, 0))
    return [
        worker_of(session, at)
        for worker_id, at in last.items()
        if (session := sessions.get(worker_id)) is not None and session.state is SessionState.ENDED
    ]
