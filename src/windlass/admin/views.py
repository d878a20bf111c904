"""What people and programs are shown: times as UTC datetimes, durations in seconds, and no payload unasked.

The core counts in microseconds; these are the same things for the outside, one definition for `--json`, the
API and the dashboard.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET

from windlass.core.codec import is_reference, size_of
from windlass.core.intake import intakes_run_by
from windlass.core.job import Delivery, Held, JobDetail, JobView, Progress
from windlass.core.limits import Rate
from windlass.core.order import STRIDE
from windlass.core.outcome import Cause, Error, cancelled_itself
from windlass.core.query import LaneView
from windlass.core.session import SessionView
from windlass.core.settings import LaneSettings, QueueSettings
from windlass.core.showing import Shower
from windlass.core.state import PLAIN_NAMES, State
from windlass.core.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, JobId, Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = ("accepted_at", "due_at", "expires_at", "finished_at")
_DURATIONS = frozenset(("age_step", "retention", "result_ttl", "dead_retention"))


def moment(at: Micros) -> datetime:
    """A time of the store as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=at)


def seconds(length: Micros) -> float:
    """A duration in seconds."""
    return length / SECOND


class HeldShown(msgspec.Struct, frozen=True, kw_only=True):
    """Why the workers at hand cannot run a job, and since when."""

    key: str
    reason: str
    since: datetime
    times: int


class ProgressShown(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job says it is, from 0 to 1."""

    fraction: float
    message: str


class JobShown(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a listing."""

    id: JobId
    task: str
    queue: str
    lane: str
    state: str
    status: str
    """The state in the words of `POST /enqueue`: PENDING, RUNNING, DONE, FAILED or CANCELLED."""
    reason: str | None
    priority: int
    attempt: int
    max_attempts: int
    crashes: int
    accepted_at: datetime
    due_at: datetime
    expires_at: datetime | None
    finished_at: datetime | None
    key: str | None
    tags: tuple[str, ...]
    flow: str
    parent: JobId | None
    revision: int
    fence: int
    session: str | None
    cancel_requested: bool
    held: HeldShown | None
    waiting_for: int
    replays: int
    progress: ProgressShown | None
    pruned: bool


class ErrorShown(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, as text."""

    type: str
    message: str
    traceback: str
    fingerprint: str
    cause: str
    retryable: bool


class DeadShown(JobShown, frozen=True, kw_only=True):
    """A dead letter in a listing: a job, and the error that it ended with."""

    error: ErrorShown | None


class CauseShown(msgspec.Struct, frozen=True, kw_only=True):
    """Why a lease or a session ended."""

    kind: str
    detail: str


class DeliveryShown(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job."""

    attempt: int
    fence: int
    session: str | None
    claimed_at: datetime
    ended_at: datetime
    outcome: str
    settled: bool
    runtime: float | None
    cause: CauseShown | None
    error: ErrorShown | None


class EdgeShown(msgspec.Struct, frozen=True, kw_only=True):
    """A parent, and what happens should it fail."""

    parent: JobId
    on_failure: str


class JobWhole(DeadShown, frozen=True, kw_only=True):
    """A job with everything that is kept of it. Payload and result are left out unless they are asked for. A
    job that is done has no `error`; what went wrong before is told of its runs (`deliveries`).
    """

    payload_bytes: int
    result_bytes: int | None
    headers: Mapping[str, str]
    after: tuple[EdgeShown, ...]
    deliveries: tuple[DeliveryShown, ...]
    logs: tuple[str, ...]
    memos: tuple[str, ...]
    payload_stored: bool = False
    """Whether it is in object storage: then what is large is not shown here, and has a link of its own."""
    result_stored: bool = False
    payload: Any = None
    """`{"args": [...], "kwargs": {...}}`; text that says why, if it cannot be read."""
    result: Any = None


class QueueShown(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: what is in it, and its settings in both layers."""

    name: str
    jobs: Mapping[str, int]
    """By state. For done and cancelled: how many ever got there."""
    oldest: float | None
    """Seconds that its longest-waiting ready job has been due."""
    paused: bool
    settings: Mapping[str, Any]
    """In force: the override wins over the declaration, field by field."""
    declared: Mapping[str, Any]
    override: Mapping[str, Any]
    app: str
    revision: int
    version: int


class LaneShown(msgspec.Struct, frozen=True, kw_only=True):
    """A lane: backlog, share and limits."""

    queue: str
    lane: str
    ready: int
    running: int
    weight: int
    share: float | None
    """Its part of the queue among the lanes that wait and are not parked; None for a lane that does not."""
    lag: float
    """Jobs that it has had in advance of the others."""
    concurrency: int | None
    tokens: int | None
    parked: str | None
    paused: bool


class WorkerShown(msgspec.Struct, frozen=True, kw_only=True):
    """A session: one boot of one worker process, or of one that runs intakes."""

    id: str
    state: str
    host: str
    pid: int
    app: str
    version: str
    queues: tuple[str, ...]
    intakes: tuple[str, ...]
    """Those that the process runs. One that runs any is no worker: it has no slots and serves no queue."""
    slots: int
    leases: int
    memory: int
    opened_at: datetime
    silent_for: float
    """Seconds since its last beat, on the clock that only sweeps move."""
    ttl: float
    cause: CauseShown | None


# --- jobs ---------------------------------------------------------------------------------------------------


_UNTYPED = Shower(None)
"""What is shown of a job of whose task nothing is known."""


def job_shown(job: JobView) -> JobShown:
    """A job as listings show it."""
    return JobShown(**_job(job))


def dead_shown(job: JobDetail, shower: Shower = _UNTYPED) -> DeadShown:
    """A dead letter as listings show it."""
    return DeadShown(**_job(job), error=_error(job.error, shower))


def job_whole(job: JobDetail, shower: Shower = _UNTYPED, *, payload: bool) -> JobWhole:
    """Everything that is kept of a job; its payload and result only if asked for. `shower` knows what of it
    may be seen.
    """
    itself = cancelled_itself(job.error) if job.state is State.CANCELLED else ""
    fields = _job(job)
    fields["reason"] = shower.clean(itself) or fields["reason"]
    return JobWhole(
        **fields,
        error=None if job.state is State.DONE or itself else _error(job.error, shower),
        payload_bytes=size_of(job.payload),
        result_bytes=None if job.result is None else size_of(job.result),
        payload_stored=is_reference(job.payload),
        result_stored=job.result is not None and is_reference(job.result),
        headers=shower.headers(job.headers),
        after=tuple(EdgeShown(parent=edge.parent, on_failure=edge.on_failure) for edge in job.after),
        deliveries=tuple(_delivery(delivery, shower) for delivery in job.deliveries),
        logs=tuple(shower.clean(line) for line in job.logs),
        memos=job.memos,
        payload=shower.arguments(job.payload) if payload else None,
        result=shower.result(job.result, job.payload) if payload else None,
    )


def _job(job: JobView) -> dict[str, Any]:
    kept = (name for name in JobShown.__struct_fields__ if name != "status")
    fields: dict[str, Any] = {name: getattr(job, name) for name in kept}
    fields["status"] = PLAIN_NAMES[job.state]
    for name in _TIMES:
        fields[name] = None if fields[name] is None else moment(fields[name])
    fields["held"] = _held(job.held)
    fields["progress"] = _progress(job.progress)
    return fields


def _held(held: Held | None) -> HeldShown | None:
    if held is None:
        return None
    return HeldShown(key=held.key, reason=held.reason, since=moment(held.since), times=held.times)


def _progress(progress: Progress | None) -> ProgressShown | None:
    if progress is None:
        return None
    return ProgressShown(fraction=progress.permille / 1_000, message=progress.message)


def _error(error: Error | None, shower: Shower) -> ErrorShown | None:
    return None if error is None else ErrorShown(**msgspec.structs.asdict(shower.error(error)))


def _cause(cause: Cause | None) -> CauseShown | None:
    return None if cause is None else CauseShown(kind=cause.kind, detail=cause.detail)


def _delivery(delivery: Delivery, shower: Shower) -> DeliveryShown:
    return DeliveryShown(
        attempt=delivery.attempt,
        fence=delivery.fence,
        session=delivery.session,
        claimed_at=moment(delivery.claimed_at),
        ended_at=moment(delivery.ended_at),
        outcome=delivery.outcome,
        settled=delivery.settled,
        runtime=None if delivery.runtime is None else seconds(delivery.runtime),
        cause=_cause(delivery.cause),
        error=_error(delivery.error, shower),
    )


# --- queues, lanes, workers ---------------------------------------------------------------------------------


def settings_shown(settings: QueueSettings | LaneSettings | None) -> dict[str, Any]:
    """What a layer of settings says: rates as text, durations in seconds."""
    if settings is None:
        return {}
    said = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {name: _setting(name, value) for name, value in said.items() if value is not UNSET}


def _setting(name: str, value: Any) -> Any:
    if isinstance(value, Rate):
        return rate_shown(value)
    if name in _DURATIONS and value is not None:
        return seconds(value)
    if name == "bands" and value is not None:
        return {str(priority): weight for priority, weight in value.items()}
    return value


def rate_shown(rate: Rate) -> str:
    """A rate as it is written: "100/s"; a burst that is not the default is named."""
    for unit, length in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND)):
        if rate.per % length == 0:
            per = f"{'' if rate.per == length else rate.per // length}{unit}"
            break
    else:
        per = f"{rate.per}µs"
    return f"{rate.count}/{per}" + ("" if rate.burst is None else f" burst {rate.burst}")


def lane_shown(lane: LaneView, total: int) -> LaneShown:
    """A lane as operators see it. `total` is the weight of all lanes that wait and are not parked."""
    return LaneShown(
        queue=lane.queue,
        lane=lane.lane,
        ready=lane.ready,
        running=lane.running,
        weight=lane.weight,
        share=lane.weight / total if is_active(lane) and total else None,
        lag=round(lane.lag * lane.weight / STRIDE, 3),
        concurrency=lane.concurrency,
        tokens=lane.tokens,
        parked=lane.parked,
        paused=lane.paused,
    )


def is_active(lane: LaneView) -> bool:
    """Whether a lane takes part in the sharing of its queue now."""
    return lane.ready > 0 and lane.parked is None


def worker_shown(session: SessionView) -> WorkerShown:
    """A session as operators see it."""
    info = session.info
    intakes = intakes_run_by(info.queues)
    return WorkerShown(
        id=session.id,
        state=session.state,
        host=info.host,
        pid=info.pid,
        app=info.app,
        version=info.version,
        queues=() if intakes else info.queues,
        intakes=intakes,
        slots=info.slots,
        leases=session.leases,
        memory=session.memory,
        opened_at=moment(session.opened_at),
        silent_for=seconds(session.silent_for),
        ttl=seconds(info.ttl),
        cause=_cause(session.cause),
    )
