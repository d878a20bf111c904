"""Going through jobs page by page, in constant memory."""

from collections.abc import AsyncIterator, Callable, Sequence

from windlass.broker.contract import Broker
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import JobView
from windlass.core.query import FIRST_PAGE, PAGE_ROWS, JobQuery
from windlass.core.units import Cursor, JobId, Micros

DETAILS = 20
"""Jobs that are read whole at once: each may carry a payload and a result of 1 MiB."""

LOOKS = 10
"""Pages of the store that are read for one page of a listing: about 10,000 jobs are looked at."""
_GROWTH = 4
"""Few match, it seems: each page that is read for a listing is so much larger than the one before."""


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
    """The next jobs that match and are admitted, and where to go on. The number of jobs that are looked at is
    bounded, so a page may be short or empty and not be the last. Jobs older than `since` are left out.

    A page may end in the middle of a page of the store. So the cursor names the last job that was shown, and
    the page of the store that the job was on. If that job is gone by then, the rest of that page is shown
    again.
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
