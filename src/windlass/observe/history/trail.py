"""What history knows of one job, for people and programs."""

from datetime import datetime

import msgspec

from windlass.core.units import SECOND, JobId
from windlass.observe.history.attempt import Attempt, Enqueued
from windlass.observe.history.report import moment
from windlass.observe.history.sink import Trail


class AttemptShown(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a job."""

    fence: int
    attempt: int
    outcome: str
    move: str
    """Why it ended so."""
    started_at: datetime | None
    """When its worker was handed the job."""
    ended_at: datetime
    wait: float | None
    """Seconds from due to handed out."""
    run: float | None
    """Seconds that its code ran."""
    worker: str
    """The session of the worker process; empty where nobody knows it."""
    host: str
    error: str | None
    message: str | None
    """Without secrets."""
    fingerprint: str | None


class EnqueuedShown(msgspec.Struct, frozen=True, kw_only=True):
    """When a job was accepted, and who enqueued it."""

    at: datetime
    key: str | None
    """Its unique key."""
    by_key: str
    """The API key of the caller; empty: it did not come over HTTP."""
    by_app: str
    by_host: str


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What history knows of a job, however long ago it finished."""

    job: str
    task: str
    queue: str
    lane: str
    tags: list[str]
    enqueued: EnqueuedShown | None
    attempts: list[AttemptShown]


def job_history(job: JobId, trail: Trail) -> JobHistory | None:
    """A job's trail for people and programs; None if history knows nothing of it."""
    first = trail.enqueued or next(iter(trail.attempts), None)
    if first is None:
        return None
    return JobHistory(
        job=job,
        task=first.task,
        queue=first.queue,
        lane=first.lane,
        tags=list(first.tags),
        enqueued=None if trail.enqueued is None else _enqueued(trail.enqueued),
        attempts=[_attempt(each) for each in trail.attempts],
    )


def _enqueued(said: Enqueued) -> EnqueuedShown:
    return EnqueuedShown(
        at=moment(said.at), key=said.key, by_key=said.by_key, by_app=said.by_app, by_host=said.by_host
    )


def _attempt(said: Attempt) -> AttemptShown:
    return AttemptShown(
        fence=said.fence,
        attempt=said.attempt,
        outcome=said.outcome.value,
        move=said.move.value,
        started_at=None if said.started_at is None else moment(said.started_at),
        ended_at=moment(said.at),
        wait=None if said.wait is None else said.wait / SECOND,
        run=None if said.run is None else said.run / SECOND,
        worker=said.worker_id,
        host=said.host,
        error=said.error_type or None,
        message=said.error or None,
        fingerprint=said.fingerprint or None,
    )
