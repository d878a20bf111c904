"""Workers: their sessions, and the jobs that each of them holds."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime

import msgspec

from windlass.admin.listing import pages
from windlass.admin.reading import sessions, store_time
from windlass.admin.views import ProgressShown, WorkerShown, moment, worker_shown
from windlass.broker.contract import Broker
from windlass.core.job import JobView
from windlass.core.query import JobQuery
from windlass.core.state import State
from windlass.core.units import JobId, Micros

LOOKED_AT = 5_000
"""Running jobs that are read. Of workers that run more, some jobs are not shown."""


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


class Workers:
    """The workers of one namespace: those alive, and those that ended within the last hour."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def all(self) -> AsyncIterator[WorkerShown]:
        """Every worker, without its jobs."""
        async for session in sessions(self._broker):
            yield worker_shown(session)

    async def with_jobs(
        self, *, sees: Callable[[str, str], bool] = lambda _queue, _lane: True
    ) -> AsyncIterator[WorkerWhole]:
        """Every worker, with those of its jobs whose queue and lane the reader sees."""
        held = await self._held(sees)
        async for session in sessions(self._broker):
            fields = msgspec.structs.asdict(worker_shown(session))
            yield WorkerWhole(**fields, running=tuple(held.get(session.id, ())))

    async def _held(self, sees: Callable[[str, str], bool]) -> dict[str, list[Running]]:
        """Jobs that run, by the id of their session."""
        now = await store_time(self._broker)
        held: dict[str, list[Running]] = {}
        looked = 0
        async for page in pages(self._broker, JobQuery(states=frozenset({State.RUNNING}))):
            for job in page:
                if job.session is not None and sees(job.queue, job.lane):
                    held.setdefault(job.session, []).append(_running(job, now))
            looked += len(page)
            if looked >= LOOKED_AT:
                break
        return held


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
