"""Going through jobs page by page in constant memory; choosing dead letters by more than stores index."""

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from windlass.admin.views import ErrorShown
from windlass.broker.contract import Broker
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import JobDetail, JobView
from windlass.core.outcome import Error
from windlass.core.query import FIRST_PAGE, PAGE_ROWS, JobQuery
from windlass.core.state import State
from windlass.core.units import Cursor, JobId, Micros

DETAILS = 20
"""Jobs that are read whole at once: each may carry a payload and a result of 1 MiB."""

LOOKS = 10
"""Pages of the store that are read for one page of a listing: about 10,000 jobs are looked at."""
_GROWTH = 4
"""Few match, it seems: each page that is read for a listing is so much larger than the one before."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters; what is None does not matter."""

    queue: str | None = None
    task: str | None = None
    lane: str | None = None
    error: str | None = None
    """Text in the error's type or message, in any case."""
    fingerprint: str | None = None
    """Of the error, as `mark` tells it: those of one bug share it."""
    died_before: Micros | None = None
    """Died then or earlier."""

    @property
    def indexed(self) -> bool:
        """Whether queue and task say it all, so that the store's counts are exact."""
        return self.lane is None and not self.by_error and self.died_before is None

    @property
    def by_error(self) -> bool:
        """Whether the errors have to be read."""
        return self.error is not None or self.fingerprint is not None

    def query(self) -> JobQuery:
        """What the store can choose by itself."""
        return JobQuery(queue=self.queue, task=self.task, lane=self.lane, states=frozenset({State.DEAD}))

    def admits(self, job: JobView) -> bool:
        """Whether a dead job, but for its error, is one of them."""
        return self.died_before is None or (
            job.finished_at is not None and job.finished_at <= self.died_before
        )

    def admits_error(self, job: JobDetail) -> bool:
        """Whether its error is one that was asked for."""
        if self.fingerprint is not None and self.fingerprint != mark(job.error, job.reason):
            return False
        if self.error is None:
            return True
        wanted = self.error.casefold()
        return job.error is not None and any(
            wanted in text.casefold() for text in (job.error.type, job.error.message, job.reason or "")
        )


def mark(error: Error | ErrorShown | None, reason: str | None) -> str:
    """What tells the group of a dead letter from the others of its task. Never empty: an empty filter would
    choose them all.
    """
    found = "" if error is None else error.fingerprint or error.type
    return found or reason or "unknown"


async def pages(broker: Broker, query: JobQuery, *, size: int = CALL_ITEMS) -> AsyncIterator[list[JobView]]:
    """Every job that matches, once, the newest first, in pages that are not empty."""
    cursor: Cursor | None = FIRST_PAGE
    while cursor is not None:
        page = await broker.list(query, cursor, size)
        if page.jobs:
            yield list(page.jobs)
        cursor = page.cursor


async def job_page(
    broker: Broker,
    query: JobQuery,
    after: Cursor,
    limit: int,
    *,
    admits: Callable[[JobView], bool] = lambda _: True,
    since: Micros | None = None,
    looks: int = LOOKS,
) -> tuple[list[JobView], Cursor | None]:
    """The next jobs that match and are admitted, and where to go on. Bounded by what is looked at: a page may
    be short, even empty, and not be the last. None older than `since` is looked for.

    The end of a page need not be the end of one of the store's: its cursor names the last job that was shown,
    and the page of the store it was on. Should that job have gone, the rest of its page is repeated.
    """
    size = min(limit, PAGE_ROWS)
    place, last = _opened(after)
    found: list[JobView] = []
    for _ in range(looks):
        page = await broker.list(query, place, PAGE_ROWS if last else size)
        jobs = _behind(page.jobs, last)
        for number, job in enumerate(jobs, 1):
            if admits(job):
                found.append(job)
            if len(found) == limit and number < len(jobs):
                return found, _closed(place, job.id)
        if page.cursor is None or _are_older(page.jobs, since):
            return found, None
        place, last = page.cursor, ""
        if len(found) == limit:
            break
        size = min(size * _GROWTH, PAGE_ROWS)
    return found, _closed(place, "")


def _opened(cursor: Cursor) -> tuple[Cursor, JobId]:
    last, sign, place = cursor.partition("@")
    return (Cursor(place), last) if sign else (cursor, "")


def _closed(place: Cursor, last: JobId) -> Cursor:
    return Cursor(f"{last}@{place}")


def _behind(jobs: Sequence[JobView], last: JobId) -> Sequence[JobView]:
    at = next((number for number, job in enumerate(jobs, 1) if job.id == last), 0) if last else 0
    return jobs[at:]


def _are_older(jobs: Sequence[JobView], since: Micros | None) -> bool:
    """Whether a whole page came before a time; what follows then did, too. A page, not a job: a store's clock
    may go back a little.
    """
    return since is not None and bool(jobs) and all(job.accepted_at < since for job in jobs)


async def dead_ids(broker: Broker, selection: Selection) -> AsyncIterator[list[JobId]]:
    """The ids of the dead letters that were chosen, in batches for one call of a verb."""
    if selection.by_error:
        async for batch in dead_letters(broker, selection):
            yield [job.id for job in batch]
        return
    async for page in pages(broker, selection.query()):
        if found := [job.id for job in page if selection.admits(job)]:
            yield found


async def dead_letters(broker: Broker, selection: Selection) -> AsyncIterator[list[JobDetail]]:
    """The dead letters that were chosen, whole, a few at a time."""
    async for page in pages(broker, selection.query()):
        async for found in _whole(broker, selection, [job.id for job in page if selection.admits(job)]):
            yield found


async def dead_page(
    broker: Broker,
    selection: Selection,
    after: Cursor,
    limit: int,
    *,
    sees: Callable[[JobView], bool] = lambda _: True,
) -> tuple[list[JobDetail], Cursor | None]:
    """The chosen among the next dead letters that the reader sees, whole, and where to go on. Bounded by what
    is looked at: a page may be short, even empty, and not be the last.
    """
    page, place = await job_page(
        broker, selection.query(), after, limit, admits=lambda job: selection.admits(job) and sees(job)
    )
    whole = _whole(broker, selection, [job.id for job in page])
    return [job async for batch in whole for job in batch], place


async def count_page(
    broker: Broker,
    selection: Selection,
    after: Cursor,
    limit: int,
    *,
    sees: Callable[[JobView], bool] = lambda _: True,
) -> tuple[int, Cursor | None]:
    """How many of the next dead letters were chosen, and where to go on. Bounded as `dead_page` is."""
    page, place = await job_page(
        broker, selection.query(), after, limit, admits=lambda job: selection.admits(job) and sees(job)
    )
    if not selection.by_error:
        return len(page), place
    whole = _whole(broker, selection, [job.id for job in page])
    return sum([len(batch) async for batch in whole]), place


async def _whole(
    broker: Broker, selection: Selection, ids: Sequence[JobId]
) -> AsyncIterator[list[JobDetail]]:
    """Those that are chosen by their errors, too, a few at a time."""
    for start in range(0, len(ids), DETAILS):
        details = await broker.get(ids[start : start + DETAILS])
        if found := [job for job in details if job is not None and _is_chosen(selection, job)]:
            yield found


def _is_chosen(selection: Selection, job: JobDetail) -> bool:
    """It may have been replayed since the page was read."""
    return job.state is State.DEAD and selection.admits_error(job)
