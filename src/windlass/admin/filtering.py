"""Filters for jobs, by more than stores index: tag, text, times and parent.

Stores find jobs by queue, state, task, lane and flow. The service looks for the rest in the pages that they
return, so it says how much it has looked at, and whether there is more.
"""

import msgspec

from windlass.core.duration import when
from windlass.core.ids import check_job_id
from windlass.core.job import JobView
from windlass.core.names import check_tag
from windlass.core.query import JobQuery
from windlass.core.state import UNFINISHED, State
from windlass.core.units import JobId, Micros

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

    @property
    def is_counted(self) -> bool:
        """Whether the store has counted them: exactly, by queue, state and task."""
        query = self.query
        return self.is_indexed and query.lane is None and query.flow is None and query.states <= _COUNTED

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
