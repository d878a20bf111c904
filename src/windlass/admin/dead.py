"""Dead letters: listed, counted, grouped by cause, replayed and discarded, by id or by filter."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from windlass.admin.audit import operator_name
from windlass.admin.groups import Grouped, grouped, mark
from windlass.admin.listing import DETAILS, job_page, pages
from windlass.admin.pacing import at_rate, by_ids
from windlass.admin.queues import Queues
from windlass.admin.showing import shower_of
from windlass.admin.views import DeadShown, dead_shown
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.job import JobDetail, JobView
from windlass.core.limits import Rate
from windlass.core.operate import Operated, Target
from windlass.core.query import Count, JobQuery
from windlass.core.state import State
from windlass.core.units import Cursor, JobId, Micros
from windlass.observe.archive.removing import Remover

_Verb = Callable[[Sequence[Target]], Awaitable[Sequence[Operated]]]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for dead letters. A field that is None matches all."""

    queue: str | None = None
    task: str | None = None
    lane: str | None = None
    error: str | None = None
    """Text in the error's type or message, in any case."""
    fingerprint: str | None = None
    """Of the error, as a group of dead letters shows it: those of one bug share it."""
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
        """Whether a dead job, except for its error, is one of them."""
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


def _everything(_: object) -> bool:
    return True


class DeadLetters:
    """The dead letters of one namespace."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    # --- reads ----------------------------------------------------------------------------------------------

    async def all(self, selection: Selection) -> AsyncIterator[DeadShown]:
        """Every dead letter that was chosen, once, in constant memory."""
        await self._check(selection)
        async for batch in self._letters(selection):
            for job in batch:
                yield self._shown(job)

    async def page(
        self,
        selection: Selection,
        after: Cursor,
        limit: int,
        *,
        sees: Callable[[JobView], bool] = _everything,
    ) -> tuple[list[DeadShown], Cursor | None]:
        """The chosen among the next dead letters that the reader sees, and where the next page begins. It
        looks at a bounded number of jobs: a page may be short, even empty, and not be the last.
        """
        page, place = await self._views(selection, after, limit, sees)
        whole = self._whole(selection, [job.id for job in page])
        return [self._shown(job) async for batch in whole for job in batch], place

    async def count(self, selection: Selection) -> int:
        """How many dead letters were chosen; by the store's own counts where these can tell."""
        await self._check(selection)
        if selection.indexed:
            rows = (await self._broker.counts()).rows
            return sum(row.count for row in rows if _is_counted(row, selection))
        return sum([len(batch) async for batch in self.ids(selection)])

    async def count_page(
        self,
        selection: Selection,
        after: Cursor,
        limit: int,
        *,
        sees: Callable[[JobView], bool] = _everything,
    ) -> tuple[int, Cursor | None]:
        """How many of the next dead letters were chosen, and where to go on. Bounded as `page` is."""
        page, place = await self._views(selection, after, limit, sees)
        if not selection.by_error:
            return len(page), place
        whole = self._whole(selection, [job.id for job in page])
        return sum([len(batch) async for batch in whole]), place

    async def groups(
        self,
        selection: Selection,
        *,
        sees: Callable[[DeadShown], bool] = _everything,
        most: int | None = None,
    ) -> Grouped:
        """The chosen dead letters that the reader sees, grouped by cause, the largest group first. It looks
        at no more than `most` of them. Memory grows with the groups alone.
        """
        return await grouped(self.all(selection), sees=sees, most=most)

    async def ids(self, selection: Selection) -> AsyncIterator[list[JobId]]:
        """The ids of the dead letters that were chosen, in batches for one call of a verb."""
        if selection.by_error:
            async for batch in self._letters(selection):
                yield [job.id for job in batch]
            return
        async for page in pages(self._broker, selection.query()):
            if found := [job.id for job in page if selection.admits(job)]:
                yield found

    # --- writes ---------------------------------------------------------------------------------------------

    def replay(self, ids: Sequence[str], rate: Rate | None = None) -> AsyncIterator[Sequence[Operated]]:
        """Send dead letters back by their ids; what became of each, batch by batch."""
        return by_ids(self._broker.replay, ids, expect=State.DEAD, rate=rate)

    async def discard(
        self, ids: Sequence[str], rate: Rate | None = None, *, reason: str, by: str | None = None
    ) -> AsyncIterator[Sequence[Operated]]:
        """Remove dead letters by their ids, once the archive has their traces; what became of each, batch by
        batch. `reason` is the operator's, and `by` who that is; None: who is at this terminal.
        """
        async with self._removing(reason, by) as discard:
            async for answers in by_ids(discard, ids, expect=State.DEAD, rate=rate):
                yield answers

    async def replay_one(self, job_id: JobId) -> Operated:
        """Send one dead letter back."""
        return (await self._broker.replay([Target(job_id, State.DEAD)]))[0]

    def replay_chosen(
        self, selection: Selection, rate: Rate | None = None, *, most: int | None = None
    ) -> AsyncIterator[Sequence[Operated]]:
        """Send the chosen dead letters back, each once. Choose by `died_before`: without it, one that dies
        again in between may be chosen again. `most` is the number that was counted before, so that no more
        are touched than somebody agreed to.
        """
        return self._each(self._broker.replay, selection, rate, most)

    async def discard_chosen(
        self,
        selection: Selection,
        rate: Rate | None = None,
        *,
        most: int | None = None,
        reason: str,
        by: str | None = None,
    ) -> AsyncIterator[Sequence[Operated]]:
        """Remove the chosen dead letters, but no more than `most`; the rest is as for `discard`."""
        async with self._removing(reason, by) as discard:
            async for answers in self._each(discard, selection, rate, most):
                yield answers

    @asynccontextmanager
    async def _removing(self, reason: str, by: str | None) -> AsyncGenerator[_Verb]:
        remover = Remover(self._broker, self._app.config, self._app.signature_of, self._app.values)
        try:
            yield partial(remover.discard, by=by or operator_name(), reason=reason.strip())
        finally:
            await remover.close()

    async def _each(
        self, verb: _Verb, selection: Selection, rate: Rate | None, most: int | None
    ) -> AsyncIterator[Sequence[Operated]]:
        await self._check(selection)

        async def act(ids: Sequence[JobId]) -> Sequence[Operated]:
            return await verb([Target(job, State.DEAD) for job in ids])

        async for answers in at_rate(_first(self.ids(selection), most), rate, act):
            yield answers

    # --- parts ----------------------------------------------------------------------------------------------

    def _shown(self, job: JobDetail) -> DeadShown:
        return dead_shown(job, shower_of(self._app, job.task))

    async def _check(self, selection: Selection) -> None:
        """Refuse a queue that is not declared: it has no dead letters, so its name must be a mistake."""
        if selection.queue is not None:
            await Queues(self._broker).check(selection.queue)

    async def _views(
        self, selection: Selection, after: Cursor, limit: int, sees: Callable[[JobView], bool]
    ) -> tuple[list[JobView], Cursor | None]:
        return await job_page(
            self._broker,
            selection.query(),
            after,
            limit,
            admits=lambda job: selection.admits(job) and sees(job),
        )

    async def _letters(self, selection: Selection) -> AsyncIterator[list[JobDetail]]:
        """The dead letters that were chosen, whole, a few at a time."""
        async for page in pages(self._broker, selection.query()):
            async for found in self._whole(selection, [job.id for job in page if selection.admits(job)]):
                yield found

    async def _whole(self, selection: Selection, ids: Sequence[JobId]) -> AsyncIterator[list[JobDetail]]:
        """Those of some dead letters whose error was asked for, whole, a few at a time."""
        for start in range(0, len(ids), DETAILS):
            details = await self._broker.get(ids[start : start + DETAILS])
            if found := [job for job in details if job is not None and _is_chosen(selection, job)]:
                yield found


def reason_in_bulk(chosen: Mapping[str, str]) -> str:
    """The reason that is recorded for a discard by filter, if the operator gives none."""
    return "in bulk: " + ", ".join(f"{name}={value}" for name, value in chosen.items())


def _is_chosen(selection: Selection, job: JobDetail) -> bool:
    """An operator may have replayed it since the page was read."""
    return job.state is State.DEAD and selection.admits_error(job)


def _is_counted(row: Count, selection: Selection) -> bool:
    return (
        row.state is State.DEAD
        and selection.queue in (None, row.queue)
        and selection.task in (None, row.task)
    )


async def _first(batches: AsyncIterator[list[JobId]], most: int | None) -> AsyncIterator[list[JobId]]:
    """No more than so many of them."""
    left = most
    async for batch in batches:
        yield batch[:left]
        if left is not None:
            left -= min(left, len(batch))
            if not left:
                return
