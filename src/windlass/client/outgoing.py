"""The job that is about to be sent, as `@app.on_enqueue` functions see it."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from windlass.core.job import NewJob, check_new_job
from windlass.core.names import check_headers, check_lane, check_tags
from windlass.core.units import JobId
from windlass.errors import InvalidOption


class OutgoingJob:
    """A job that is about to be sent. Its lane, tags and headers can be changed."""

    __slots__ = ("_job", "headers", "lane", "tags")

    def __init__(self, job: NewJob) -> None:
        self._job = job
        self.lane: str = job.lane
        self.tags: list[str] = list(job.tags)
        self.headers: dict[str, str] = dict(job.headers)

    def __repr__(self) -> str:
        """Without its arguments."""
        return f"<OutgoingJob {self.task} {self.id}>"

    @property
    def id(self) -> JobId:
        """Its id."""
        return self._job.id

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._job.task

    @property
    def queue(self) -> str:
        """The queue of the job."""
        return self._job.queue

    @property
    def priority(self) -> int:
        """From -100 to 100, higher first."""
        return self._job.priority

    @property
    def key(self) -> str | None:
        """Its unique key, if it has one."""
        return self._job.key

    @property
    def flow(self) -> str:
        """The flow of the job; empty if it belongs to none."""
        return self._job.flow

    def changed(self) -> NewJob:
        """The job as it is sent; `InvalidOption`: what it was changed to cannot be honoured."""
        lane, tags, headers = check_lane(self.lane), check_tags(self.tags), check_headers(self.headers)
        return check_new_job(msgspec.structs.replace(self._job, lane=lane, tags=tags, headers=headers))


OnEnqueue: TypeAlias = Callable[[OutgoingJob], None]


def hooked(hooks: Iterable[OnEnqueue], jobs: Iterable[NewJob]) -> Sequence[NewJob]:
    """Jobs as these functions leave them. Nothing is sent if one of them raises."""
    return [_hooked(hooks, job) for job in jobs]


def _hooked(hooks: Iterable[OnEnqueue], job: NewJob) -> NewJob:
    outgoing = OutgoingJob(job)
    for hook in hooks:
        hook(outgoing)
    try:
        return outgoing.changed()
    except InvalidOption as error:
        raise InvalidOption(f'job of "{job.task}", as on_enqueue has left it: {error}') from error
