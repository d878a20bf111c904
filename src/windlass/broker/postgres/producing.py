"""Enqueue: groups of new jobs as calls of the store, the short way where it serves."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, islice
from typing import Any

from windlass.broker.postgres import answers
from windlass.broker.postgres.arrays import alike_of, jobs_of, one_of, plain_of
from windlass.broker.postgres.ways import Ways
from windlass.core.bounds import check_items
from windlass.core.group import refused_whole, too_large
from windlass.core.job import NewJob, Receipt, Status

Groups = Sequence[Sequence[NewJob]]
Receipts = Sequence[Sequence[Receipt]]

_LAST = True
"""Nothing follows in the transaction."""


class Producing:
    """Sends new jobs by a function that makes a step of the store."""

    def __init__(self, step: Callable[..., Awaitable[Sequence[Any]]], ways: Ways) -> None:
        self._step = step
        self._ways = ways

    async def enqueue(self, groups: Groups) -> Receipts:
        """The verb."""
        check_items("groups", groups)
        refused = [too_large(group) for group in groups]
        accepted = [group for group, large in zip(groups, refused, strict=True) if not large]
        jobs = [job for group in accepted for job in group]
        ends = list(accumulate(map(len, accepted)))
        receipts = iter(await self._accept(jobs, ends) if jobs else ())
        return tuple(
            refused_whole(group, large) if large else tuple(islice(receipts, len(group)))
            for group, large in zip(groups, refused, strict=True)
        )

    async def _accept(self, jobs: Sequence[NewJob], ends: Sequence[int]) -> Sequence[Receipt]:
        if await self._accept_plain(jobs):
            return [Receipt(Status.CREATED, job.id) for job in jobs]
        rows = await self._step("enqueue", ends, *jobs_of(jobs))
        return [answers.receipt(job.id, row) for job, row in zip(jobs, rows, strict=True)]

    async def _accept_plain(self, jobs: Sequence[NewJob]) -> bool:
        """Enqueue what most calls are; False if this one is not."""
        queue = jobs[0].queue
        if len(jobs) == 1:
            values = one_of(jobs[0])
            if values is not None and await self._ways.one("enqueue_one", queue, *values):
                return True
        else:
            values = alike_of(jobs)
            if values is not None and await self._ways.one("enqueue_alike", queue, _LAST, *values):
                return True
        columns = plain_of(jobs)
        if columns is None:
            return False
        queues, lanes = columns[4], columns[5]
        return await self._ways.short("enqueue_plain", queues, *columns, laned=bool(lanes)) is not None
