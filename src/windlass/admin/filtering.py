"""Choosing jobs by more than stores index: tag, text, times and parent.

Stores find jobs by queue, state, task, lane and flow; the rest is looked for in the pages that they answer
with, so each step is bounded by the jobs that were looked at, and says when there is more.
"""

from collections.abc import AsyncIterator, Callable

import msgspec

from windlass.admin.listing import job_page, pages
from windlass.broker.contract import Broker
from windlass.core.duration import when
from windlass.core.ids import check_job_id
from windlass.core.job import JobView
from windlass.core.names import check_tag
from windlass.core.query import FIRST_PAGE, PAGE_ROWS, JobQuery
from windlass.core.state import UNFINISHED, State
from windlass.core.units import Cursor, JobId, Micros
from windlass.errors import InvalidOption

LOOKS_FOR_COUNT = 20
"""Pages of the store that are read to count: 20,000 jobs at the most."""
_COUNTED = UNFINISHED | {State.DEAD}
"""States whose jobs the store has counted."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs; what is None does not matter."""

    query: JobQuery = JobQuery()
    """What stores choose by."""
    tag: str | None = None
    text: str | None = None
    """In the id, task, queue, lane, unique key, flow, reason or a tag, in any case. Never in a payload."""
    since: Micros | None = None
    """Accepted then or later."""
    until: Micros | None = None
    parent: JobId | None = None
    """The job that spawned them."""

    @property
    def is_indexed(self) -> bool:
        """Whether the store itself can choose them."""
        return (self.tag, self.text, self.since, self.until, self.parent) == (None,) * 5

    def admits(self, job: JobView) -> bool:
        """Whether a job that the store has found is one of them."""
        return (
            (self.tag is None or self.tag in job.tags)
            and (self.since is None or job.accepted_at >= self.since)
            and (self.until is None or job.accepted_at <= self.until)
            and (self.parent is None or job.parent == self.parent)
            and (self.text is None or _has_text(job, self.text.casefold()))
        )


def _has_text(job: JobView, text: str) -> bool:
    held = "" if job.held is None else job.held.reason
    fields = (job.id, job.task, job.queue, job.lane, job.key, job.flow, job.reason, held, *job.tags)
    return any(field is not None and text in field.casefold() for field in fields)


def wanted(
    query: JobQuery,
    now: Micros,
    *,
    tag: str | None = None,
    text: str | None = None,
    since: str | None = None,
    until: str | None = None,
    parent: str | None = None,
) -> JobFilter:
    """A filter as people write it: times, or how long ago. `InvalidOption` says what has no meaning."""
    return JobFilter(
        query=query,
        tag=None if tag is None else check_tag(tag),
        text=text or None,
        since=None if since is None else when(since, now, name="since"),
        until=None if until is None else when(until, now, name="until"),
        parent=None if parent is None else check_job_id(parent),
    )


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs match."""

    count: int
    more: bool
    """There are, or may be, more: so many matched among those that were looked at."""


class Filtering:
    """Jobs of one namespace, chosen by filters."""

    def __init__(self, broker: Broker, *, sees: Callable[[JobView], bool] = lambda _: True) -> None:
        """`sees` says which jobs the reader sees."""
        self._broker = broker
        self._sees = sees

    async def page(self, chosen: JobFilter, after: Cursor, limit: int) -> tuple[list[JobView], Cursor | None]:
        """The next of them, and where to go on: the newest first."""
        if after == FIRST_PAGE and (found := await self._by_id(chosen)) is not None:
            return [found], None
        chosen = await self._narrowed(chosen)
        return await job_page(
            self._broker,
            chosen.query,
            after,
            limit,
            admits=lambda job: chosen.admits(job) and self._sees(job),
            since=chosen.since,
        )

    async def all(self, chosen: JobFilter) -> AsyncIterator[JobView]:
        """Each of them once, in constant memory, however many have to be looked at."""
        chosen = await self._narrowed(chosen)
        async for page in pages(self._broker, chosen.query):
            for job in page:
                if chosen.admits(job) and self._sees(job):
                    yield job
            if chosen.since is not None and all(job.accepted_at < chosen.since for job in page):
                return

    async def count(
        self, chosen: JobFilter, *, sees_queue: Callable[[str], bool] | None = lambda _: True
    ) -> Counted:
        """How many there are: exactly where the store has counted them (unfinished jobs and dead letters by
        queue, state and task), else among those looked at. `sees_queue` says whose counts may be told; None:
        those of no queue, as the reader sees a part of each.
        """
        query = chosen.query
        if sees_queue is not None and _is_counted(chosen):
            rows = (await self._broker.counts()).rows
            return Counted(
                count=sum(
                    row.count
                    for row in rows
                    if row.state in query.states
                    and query.queue in (None, row.queue)
                    and query.task in (None, row.task)
                    and sees_queue(row.queue)
                ),
                more=False,
            )
        chosen = await self._narrowed(chosen)
        found: set[JobId] = set()
        place: Cursor | None = FIRST_PAGE
        for _ in range(LOOKS_FOR_COUNT):
            jobs, place = await job_page(self._broker, query, place, PAGE_ROWS, since=chosen.since, looks=1)
            found.update(job.id for job in jobs if chosen.admits(job) and self._sees(job))
            if place is None:
                break
        return Counted(count=len(found), more=place is not None)

    async def _by_id(self, chosen: JobFilter) -> JobView | None:
        """The job whose whole id is the text: nobody has to look through the others for it."""
        try:
            job_id = check_job_id(chosen.text)
        except InvalidOption:
            return None
        found = (await self._broker.get([job_id]))[0]
        if found is None or found.pruned or not chosen.query.matches(found):
            return None
        return found if chosen.admits(found) and self._sees(found) else None

    async def _narrowed(self, chosen: JobFilter) -> JobFilter:
        """Nobody was born before their parent: it need not be looked for."""
        if chosen.parent is None:
            return chosen
        parent = (await self._broker.get([chosen.parent]))[0]
        if parent is None or parent.pruned:
            return chosen
        return msgspec.structs.replace(chosen, since=max(chosen.since or 0, parent.accepted_at))


def _is_counted(chosen: JobFilter) -> bool:
    query = chosen.query
    return chosen.is_indexed and query.lane is None and query.flow is None and query.states <= _COUNTED
