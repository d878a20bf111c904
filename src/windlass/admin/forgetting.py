"""Forgetting: everything that is kept under a tag is removed, because a person has asked for it.

Jobs that wait are cancelled first; those that run are asked to stop, and left, so it has to be done again
when they have ended. A finished job that one which has not ended needs is left as well. What each place keeps
of a job is in docs/personal-data.md.
"""

from collections.abc import AsyncIterator, Collection, Sequence

import msgspec

from windlass.admin.listing import pages
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.job import JobView
from windlass.core.names import check_tag
from windlass.core.operate import Effect, Operated, Target
from windlass.core.query import JobQuery
from windlass.core.state import TERMINAL, State
from windlass.core.units import JobId
from windlass.observe.archive.archive import open_archive
from windlass.observe.history.sink import open_sink


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that have a tag."""

    jobs: int = 0
    waiting: int = 0
    """Of these, those that would be cancelled."""
    running: int = 0
    """Of these, those that would be asked to stop."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What became of them."""

    jobs: int = 0
    """Removed: the record of each, with all that it held."""
    cancelled: int = 0
    """Of these, those that waited, and never ran."""
    running: int = 0
    """Left: they were asked to stop."""
    needed: int = 0
    """Left: finished, but a job that has not ended needs them."""
    history: int = 0
    """Rows of the history whose error or unique key was blanked."""
    archive: int = 0
    """Entries of the archive of dead letters whose arguments, headers and error were blanked."""

    @property
    def left(self) -> str:
        """What is left, in words; empty: nothing is."""
        running = f"{self.running:,} still running, and asked to stop" if self.running else ""
        needed = f"{self.needed:,} finished, but needed by jobs that have not ended" if self.needed else ""
        return "; ".join(filter(None, (running, needed)))

    def words(self) -> dict[str, str]:
        """What was done besides removing jobs, for the record."""
        counts = {
            name: getattr(self, name) for name in ("cancelled", "history", "archive", "running", "needed")
        }
        return {name: f"{count:,}" for name, count in counts.items() if count}

    def plus(self, other: "Forgotten") -> "Forgotten":
        """Both together."""
        ours, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        return Forgotten(**{name: ours[name] + theirs[name] for name in ours})


class Forgetting:
    """Forgets one tag in one namespace."""

    def __init__(self, app: Windlass, broker: Broker, tag: str) -> None:
        self._app = app
        self._broker = broker
        self._tag = check_tag(tag)
        self.done = Forgotten()
        """What became of everything so far."""

    async def count(self) -> Found:
        """What there is now. Every job of the namespace is looked at: stores have no index of tags."""
        found = Found()
        async for jobs in self._jobs():
            running = sum(job.state is State.RUNNING for job in jobs)
            ended = sum(job.state in TERMINAL for job in jobs)
            found = Found(
                jobs=found.jobs + len(jobs),
                waiting=found.waiting + len(jobs) - running - ended,
                running=found.running + running,
            )
        return found

    async def steps(self) -> AsyncIterator[Sequence[Operated]]:
        """Forget it; what became of each job, some at a time. The last step is history and archive."""
        needed: list[Target] = []
        async for jobs in self._jobs():
            answers = await self._remove(jobs)
            needed += [Target(answer.job) for answer in answers if answer.effect is Effect.CONFLICT]
            yield [answer for answer in answers if answer.effect is not Effect.CONFLICT]
        # Parents stand behind their children in the listing, and may have been looked at before them.
        self._add(needed=len(needed))
        if needed:
            for start in range(0, len(needed), _AT_ONCE):
                answers, gone = await self._prune(needed[start : start + _AT_ONCE])
                self._add(jobs=len(gone), needed=-len(gone))
                yield answers
        self._add(archive=await self._blank_archive(), history=await self._blank_history())

    async def _jobs(self) -> AsyncIterator[list[JobView]]:
        async for page in pages(self._broker, JobQuery()):
            if found := [job for job in page if self._tag in job.tags]:
                yield found

    async def _remove(self, jobs: Sequence[JobView]) -> list[Operated]:
        """Remove some jobs, at most as many as one call of a verb takes."""
        cancelled = await self._cancel([job for job in jobs if job.state not in TERMINAL])
        flagged = [answer for answer in cancelled if answer.effect is Effect.FLAGGED]
        left = {answer.job for answer in flagged}
        answers, gone = await self._prune([Target(job.id) for job in jobs if job.id not in left])
        # One that was released or replayed in this moment is not finished, and is left as those that run.
        lively = sum(answer.effect is Effect.WRONG_STATE for answer in answers)
        waited = sum(answer.effect is Effect.APPLIED and answer.job in gone for answer in cancelled)
        self._add(jobs=len(gone), cancelled=waited, running=len(flagged) + lively)
        return [*flagged, *answers]

    async def _cancel(self, jobs: Sequence[JobView]) -> Sequence[Operated]:
        return await self._broker.cancel([Target(job.id) for job in jobs]) if jobs else ()

    async def _prune(self, targets: Sequence[Target]) -> tuple[Sequence[Operated], set[JobId]]:
        """Remove finished jobs and their objects. Returns what became of each, and which are gone.

        The records go first: only the store knows whether an unfinished job still needs a result.
        """
        # Object storage that is away stops this here, while the records still name the objects.
        await self._let_results_go(targets)
        answers = await self._broker.prune(targets)
        gone = {answer.job for answer in answers if answer.effect in _GONE}
        await self._remove_values(gone)
        return answers, gone

    async def _let_results_go(self, targets: Sequence[Target]) -> None:
        """From here on no large result of these outlasts its record: what a kill leaves is swept."""
        values = self._app.values
        if values is not None:
            await values.check()
            for target in targets:
                await values.keep_no_longer(target.job)

    async def _remove_values(self, jobs: Collection[JobId]) -> None:
        values = self._app.values
        if values is not None:
            for job in jobs:
                await values.remove_payload(job)
                await values.remove_results(job)

    async def _blank_archive(self) -> int:
        config = self._app.config
        if config.archive is None:
            return 0
        archive = await open_archive(config.archive, config.history)
        try:
            return await archive.forget(config.namespace, self._tag)
        finally:
            await archive.close()

    async def _blank_history(self) -> int:
        config = self._app.config
        if config.history is None:
            return 0
        sink = await open_sink(config.history, self._broker)
        try:
            return await sink.blank(config.namespace, self._tag)
        finally:
            await sink.close()

    def _add(self, **counts: int) -> None:
        self.done = self.done.plus(Forgotten(**counts))


_GONE = (Effect.APPLIED, Effect.NOT_FOUND)
_AT_ONCE = 1_000
