"""Moving through time: what becomes due is run at its own moment, however far the clock is moved."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from types import TracebackType

from windlass.client.app import Windlass
from windlass.clock import ManualClock
from windlass.core.job import JobView
from windlass.core.query import FIRST_PAGE, PAGE_ROWS, JobQuery
from windlass.core.session import OUTAGE_STEP, SessionState
from windlass.core.state import UNFINISHED, WAITING
from windlass.core.units import JobId, Micros
from windlass.testing.store import TestStore, at_once, in_words, seconds
from windlass.testing.times import as_datetime
from windlass.testing.worker import Ran, TestWorker
from windlass.worker.firing import all_schedules, fire_due

__tracebackhide__ = True  # a test that fails is shown without these frames

SWEPT_AT_ONCE = 1_000
MOST_RUNS = 10_000
"""Of one call: more is a job that makes itself anew for ever."""


class Timeline:
    """The clock of a test and everything that goes by it."""

    def __init__(
        self,
        app: Windlass,
        store: TestStore,
        clock: ManualClock,
        worker: TestWorker,
        *,
        schedules: bool,
        follow: Callable[[datetime], object] | None,
    ) -> None:
        self._app = app
        self._store = store
        self._clock = clock
        self._worker = worker
        self._schedules = schedules
        self._follow = follow
        self.runs: list[Ran] = []
        """All of them, in their order."""
        self._sweep()

    @property
    def now(self) -> Micros:
        """The time."""
        return self._clock.now()

    # --- running --------------------------------------------------------------------------------------------

    async def drain(
        self, *, raises: bool, until: JobId | None = None, ran: list[Ran] | None = None
    ) -> list[Ran]:
        """Run what is ready, in order; up to a run of one job, if it is named."""
        ran = [] if ran is None else ran
        self._declare()
        self._worker.beat()
        while True:
            one = await self._worker.next()
            if one is None and not self._sweep():
                return ran
            if one is None:
                continue
            self.runs.append(one)
            ran.append(one)
            if raises and one.failed:
                raise _explained(one)
            if len(ran) >= MOST_RUNS:
                raise AssertionError(_endless(ran))
            if one.job == until:
                return ran

    async def advance(self, end: Micros, *, raises: bool) -> list[Ran]:
        """Move to a time by way of all that happens before."""
        ran: list[Ran] = []
        while True:
            await self.drain(raises=raises, ran=ran)
            at = min((at for at in self._moments() if at <= end), default=end)
            if at == self.now:
                return ran
            self._move(at)

    async def finish(self, *, raises: bool, strict: bool) -> list[Ran]:
        """Move as far as it takes until nothing is unfinished."""
        ran: list[Ran] = []
        while True:
            await self.drain(raises=raises, ran=ran)
            ours = self._app.runnable.keys()
            jobs = self._jobs(JobQuery(states=UNFINISHED))
            unfinished = [job for job in jobs if job.held is None and job.task in ours]
            if not unfinished:
                return ran
            if not any(self._moments_of_jobs(job for job in unfinished if job.state in WAITING)):
                if strict:
                    raise AssertionError(self._stuck(unfinished))
                return ran
            self._move(min(self._moments()))

    # --- moments --------------------------------------------------------------------------------------------

    def _moments(self) -> Iterable[Micros]:
        """When something happens next, as far as anybody can tell."""
        yield from self._moments_of_jobs(self._jobs(JobQuery(states=WAITING)))
        if self._schedules:
            _, schedules = at_once(all_schedules(self._store))
            for schedule in schedules:
                if schedule.next_at is not None and not schedule.paused and schedule.next_at > self.now:
                    yield schedule.next_at

    def _moments_of_jobs(self, jobs: Iterable[JobView]) -> Iterable[Micros]:
        now = self.now
        for job in jobs:
            if job.due_at > now:
                yield job.due_at
            if job.expires_at is not None and job.expires_at > now:
                yield job.expires_at
        if self._worker.next_in:
            yield now + self._worker.next_in
        if self._is_somebody_silent():
            # After a longer gap than this a sweep may take it for an outage.
            yield now + OUTAGE_STEP

    def _is_somebody_silent(self) -> bool:
        mine = self._worker.sessions
        return any(
            session.state is SessionState.ALIVE and session.leases and session.id not in mine
            for session in at_once(self._store.sessions())
        )

    def _move(self, at: Micros) -> None:
        """Be at a time, and let happen what only time brings about."""
        self._clock.advance(at - self.now)
        if self._follow is not None:
            self._follow(as_datetime(at))
        self._worker.beat()
        self._sweep()
        if self._schedules:
            at_once(fire_due(self._store, self._app.new_id))

    def _sweep(self) -> bool:
        """Sweep until nothing is left; whether anything was found."""
        found = False
        while True:
            swept = at_once(self._store.sweep(limit=SWEPT_AT_ONCE))
            found = found or bool(swept.promoted or swept.moved or swept.reaped)
            if not swept.more:
                return found

    def _declare(self) -> None:
        """Tasks and schedules may be declared at any time."""
        for place in self._app.namespaces.values():
            at_once(place.declare(self._store))

    # --- reading --------------------------------------------------------------------------------------------

    def _jobs(self, query: JobQuery) -> list[JobView]:
        page = at_once(self._store.list(query, FIRST_PAGE, PAGE_ROWS))
        found = list(page.jobs)
        while page.cursor is not None:
            page = at_once(self._store.list(query, page.cursor, PAGE_ROWS))
            found += page.jobs
        return found

    def why(self, job: JobId) -> str:
        """Why a job waits."""
        return in_words(at_once(self._store.explain(job)))

    def _stuck(self, jobs: list[JobView]) -> str:
        said = [f"{len(jobs)} jobs do not finish, however long one waits:"]
        said += [f"  {job.task} {job.id} ({job.state}): {self.why(job.id)}" for job in jobs[:10]]
        return "\n".join(said)


def _explained(one: Ran) -> BaseException:
    """What the task raised, with a word on where that leaves its job."""
    error = one.exception
    assert error is not None
    left = f"runs again in {seconds(round(one.delay * 1_000_000))} s" if one.delay else f"is {one.state}"
    note = (
        f'raised in a run of task "{one.task}", attempt {one.attempt} of {one.max_attempts}; the job {left}. '
        "With raises=False failures are left to the retry policy."
    )
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    return error.with_traceback(_from_users_code(error.__traceback__))


def _from_users_code(found: TracebackType | None) -> TracebackType | None:
    """A traceback without the way to the task."""
    start = found
    while start is not None and str(start.tb_frame.f_globals.get("__name__", "")).startswith(_ON_THE_WAY):
        start = start.tb_next
    return start or found


_ON_THE_WAY = ("windlass.testing.", "windlass.worker.", "asyncio.", "concurrent.")


def _endless(ran: list[Ran]) -> str:
    most = Counter(one.task for one in ran).most_common(3)
    tasks = ", ".join(f"{task} {count:,} times" for task, count in most)
    return (
        f"{len(ran):,} runs, and no end: {tasks}. Does a task enqueue itself or raise Snooze for ever, or a "
        "schedule fire too often?"
    )
