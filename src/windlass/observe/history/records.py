"""What the store knows of jobs besides their events: who ran them, what went wrong, who enqueued them.

An event is small, and carries none of this. A job's record does, as long as the store keeps it: history is a
few seconds behind, so it is there unless a queue keeps nothing, or drops finished jobs by the thousand.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windlass.broker.management import Read
from windlass.core.enqueuer import enqueuer_in
from windlass.core.event import Event
from windlass.core.job import Delivery, JobDetail
from windlass.core.outcome import CauseKind
from windlass.core.private import without_private
from windlass.core.secret import without_credentials
from windlass.core.session import SessionView
from windlass.core.state import TERMINAL, State
from windlass.core.units import JobId, SessionId
from windlass.observe.history.attempt import Attempt, Enqueued

LONGEST_MESSAGE = 1_000
"""Characters of an error's text that are kept."""
_BYTES = 4 * 1024 * 1024
"""Payloads and results that are read at once, as far as the records before tell their sizes."""
_FEW, _MANY = 20, 250
_FAILURES = frozenset((CauseKind.CRASH, CauseKind.LOST, CauseKind.DEADLINE))


class Records:
    """Reads the records of jobs, some at a time: each may carry a payload and a result of 1 MiB."""

    def __init__(self, broker: Read) -> None:
        self._broker = broker
        self._at_once = _FEW

    async def of(self, events: Iterable[Event]) -> Mapping[JobId, JobDetail]:
        """Those of the jobs of these events that are still there, without payload and result."""
        wanted = list(dict.fromkeys(event.job for event in events if tells(event)))
        found: dict[JobId, JobDetail] = {}
        at = 0
        while at < len(wanted):
            some = wanted[at : at + self._at_once]
            at += len(some)
            size = 0
            for job in await self._broker.get(some):
                if job is None or job.pruned:
                    continue
                size += len(job.payload) + len(job.result or b"")
                found[job.id] = msgspec.structs.replace(job, payload=b"", result=None)
            each = size // len(some) + 1
            self._at_once = max(_FEW, min(_MANY, _BYTES // each))
        return found


def tells(event: Event) -> bool:
    """Whether history keeps something of an event: the end of an attempt, or that a job came or went."""
    return event.before in (None, State.RUNNING) or event.after in TERMINAL


def attempt_of(
    event: Event,
    record: JobDetail | None = None,
    sessions: Mapping[SessionId, SessionView] | None = None,
    patterns: Sequence[str] = (),
) -> Attempt | None:
    """The attempt that an event is the end of, without what looks private by these patterns; None if it is
    not the end of one.
    """
    if event.before is not State.RUNNING or event.outcome is None:
        return None
    delivery = None if record is None else _delivery(record, event)
    session_id = "" if delivery is None else delivery.session or ""
    session = (sessions or {}).get(session_id)
    kind, message, fingerprint = ("", "", "") if delivery is None else _error(delivery, patterns)
    return Attempt(
        job=event.job,
        fence=event.fence,
        at=event.at,
        task=event.task,
        queue=event.queue,
        lane=event.lane,
        outcome=event.outcome,
        move=event.move,
        attempt=event.attempt,
        wait=event.waited,
        run=event.runtime,
        worker_id=session_id,
        host="" if session is None else session.info.host,
        started_at=None if delivery is None else delivery.claimed_at,
        error_type=kind,
        error=message,
        fingerprint=fingerprint,
        tags=() if record is None else record.tags,
    )


def _delivery(record: JobDetail, event: Event) -> Delivery | None:
    return next((each for each in record.deliveries if each.fence == event.fence), None)


def _error(delivery: Delivery, patterns: Sequence[str]) -> tuple[str, str, str]:
    """Type, message and fingerprint of what went wrong."""
    error, cause = delivery.error, delivery.cause
    if error is not None:
        # Its worker has taken out the secrets of the job. What looks like one anywhere goes, too, and what
        # looks private here: that worker may have other settings, or be one of another app.
        return error.type, _clean(error.message, patterns), error.fingerprint or error.type
    if cause is not None and cause.kind in _FAILURES:
        return cause.kind.value, _clean(cause.detail, patterns), cause.kind.value
    return "", "", ""


def _clean(text: str, patterns: Sequence[str]) -> str:
    return without_private(without_credentials(text), patterns)[:LONGEST_MESSAGE]


def enqueued_of(events: Sequence[Event], records: Mapping[JobId, JobDetail]) -> list[Enqueued]:
    """That these jobs were accepted; once for each, at the first of its events that tells something."""
    jobs = dict.fromkeys(
        event.job for event in events if event.before is None or event.attempt <= 1 or event.after in TERMINAL
    )
    return [_enqueued(records[job]) for job in jobs if job in records]


def _enqueued(record: JobDetail) -> Enqueued:
    by = enqueuer_in(record.headers)
    return Enqueued(
        job=record.id,
        at=record.accepted_at,
        task=record.task,
        queue=record.queue,
        lane=record.lane,
        key=record.key,
        by_key=by.key,
        by_app=by.app,
        by_host=by.host,
        tags=record.tags,
    )
