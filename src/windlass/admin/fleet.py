"""Workers, and what each of them runs."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime

import msgspec

from windlass.admin.insight import Insight
from windlass.admin.listing import pages
from windlass.admin.views import ProgressShown, WorkerShown, moment, worker_shown
from windlass.broker.contract import Broker
from windlass.core.job import JobView
from windlass.core.query import JobQuery
from windlass.core.state import State
from windlass.core.units import JobId, Micros

LOOKED_AT = 5_000
"""Running jobs that are told; a fleet that runs more has some that are not."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker holds: it runs, or is about to."""

    job: JobId
    task: str
    queue: str
    lane: str
    attempt: int
    since: datetime | None
    """When it was handed out; None if the store's clock has gone back since."""
    progress: ProgressShown | None
    cancel_requested: bool


class WorkerWhole(WorkerShown, frozen=True, kw_only=True):
    """A worker with its jobs."""

    running: tuple[Running, ...]


async def fleet(
    broker: Broker, *, sees: Callable[[str, str], bool] = lambda _queue, _lane: True
) -> AsyncIterator[WorkerWhole]:
    """Sessions alive, and those that ended within the last hour, each with the jobs that the reader sees."""
    insight = Insight(broker)
    now = await insight.now()
    held: dict[str, list[Running]] = {}
    looked = 0
    async for page in pages(broker, JobQuery(states=frozenset({State.RUNNING}))):
        for job in page:
            if job.session is not None and sees(job.queue, job.lane):
                held.setdefault(job.session, []).append(_running(job, now))
        looked += len(page)
        if looked >= LOOKED_AT:
            break
    async for session in insight.sessions():
        fields = msgspec.structs.asdict(worker_shown(session))
        yield WorkerWhole(**fields, running=tuple(held.get(session.id, ())))


def _running(job: JobView, now: Micros) -> Running:
    progress = job.progress
    return Running(
        job=job.id,
        task=job.task,
        queue=job.queue,
        lane=job.lane,
        attempt=job.attempt,
        since=moment(job.fence) if 0 < job.fence <= now else None,  # a fence is the time of its claim
        progress=None
        if progress is None
        else ProgressShown(fraction=progress.permille / 1_000, message=progress.message),
        cancel_requested=job.cancel_requested,
    )
