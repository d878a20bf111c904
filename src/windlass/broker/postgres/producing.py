"""Enqueue: groups of new jobs as one call of the store."""

from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Any

from windlass.broker.postgres import answers
from windlass.broker.postgres.arrays import jobs_of
from windlass.broker.postgres.driver import Row
from windlass.core.bounds import check_items
from windlass.core.group import refused_whole, too_large
from windlass.core.job import NewJob, Receipt, Status

Groups = Sequence[Sequence[NewJob]]
Receipts = Sequence[Sequence[Receipt]]


class Enqueue:
    """One call of `enqueue`: its arguments, and what the rows of its answer mean."""

    def __init__(self, groups: Groups) -> None:
        check_items("groups", groups)
        self._groups = groups
        self._refused = [too_large(group) for group in groups]
        accepted = [group for group, large in zip(groups, self._refused, strict=True) if not large]
        self._jobs: Sequence[NewJob] = (
            accepted[0] if len(accepted) == 1 else [job for group in accepted for job in group]
        )
        self._ends = list(accumulate(map(len, accepted)))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self._jobs

    def arguments(self) -> tuple[Any, ...]:
        """What the function is called with, but for the time."""
        return (self._ends, *jobs_of(self._jobs))

    def receipts(self, rows: Sequence[Row]) -> Receipts:
        """The receipts, in the shape of the groups. No rows: every job was created."""
        if rows:
            found = (answers.receipt(job.id, row) for job, row in zip(self._jobs, rows, strict=True))
        else:
            found = (Receipt(Status.CREATED, job.id) for job in self._jobs)
        return tuple(
            refused_whole(group, large) if large else tuple(islice(found, len(group)))
            for group, large in zip(self._groups, self._refused, strict=True)
        )
