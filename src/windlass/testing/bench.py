"""The bench on which a test runs jobs: what it can do and ask, in plain and in async tests."""

from datetime import datetime
from typing import Any, ParamSpec, TypeVar, cast, overload

from windlass.admin.strikes import Strikes
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.client.handle import Job
from windlass.client.task import Call, Sender
from windlass.core.bounds import CALL_ITEMS
from windlass.core.duration import Duration, instant, micros
from windlass.core.ids import check_job_id
from windlass.core.operate import Effect, Target
from windlass.core.option import shown
from windlass.core.state import TERMINAL
from windlass.core.units import JobId
from windlass.errors import InvalidOption
from windlass.testing.fates import Fate
from windlass.testing.seen import Enqueued, Wanted
from windlass.testing.store import TestStore, at_once
from windlass.testing.story import story
from windlass.testing.timeline import Timeline
from windlass.testing.times import as_datetime
from windlass.testing.worker import Ran, TestWorker, all_queues

__tracebackhide__ = True  # a test that fails is shown without these frames

P = ParamSpec("P")
R = TypeVar("R")


class BenchBase:
    """Methods that do not run jobs: they read the store, or arrange what is to happen."""

    __test__ = False

    def __init__(
        self, app: Windlass, store: TestStore, timeline: Timeline, worker: TestWorker, *, raises: bool
    ) -> None:
        self._app = app
        self._store = store
        self._timeline = timeline
        self._worker = worker
        self._raises = raises

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return as_datetime(self._timeline.now)

    @property
    def broker(self) -> Broker:
        """The store, with every verb of the contract."""
        return self._store

    def __repr__(self) -> str:
        count, runs = len(self._store.accepted), len(self._timeline.runs)
        return f"<{type(self).__name__}: {count} jobs, {runs} runs, {self.now:%Y-%m-%d %H:%M:%S}>"

    def __str__(self) -> str:
        """All that happened, each at its time."""
        return story(self.enqueued(), self.runs())

    # --- what was enqueued ----------------------------------------------------------------------------------

    def enqueued(self, task: Sender[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> list[Enqueued]:
        """The jobs that were enqueued, in order: all jobs, those of a task, or those of a task with these
        arguments. Arguments that you do not give are not compared. With `task.using(...)` the options are
        compared, too.
        """
        wanted = None if task is None else Wanted(self._app, task, args, kwargs)
        return [job for job in self._seen() if wanted is None or wanted.matches(job)]

    def assert_enqueued(self, task: Sender[..., Any], /, *args: Any, **kwargs: Any) -> Enqueued:
        """Fail unless there is such a job; the message lists the jobs that were enqueued instead. Return the
        first match.
        """
        wanted, seen = Wanted(self._app, task, args, kwargs), self._seen()
        for job in seen:
            if wanted.matches(job):
                return job
        raise AssertionError(wanted.missing(seen))

    def assert_not_enqueued(self, task: Sender[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Fail if there is such a job."""
        if found := self.enqueued(task, *args, **kwargs):
            wanted = Wanted(self._app, task, args, kwargs)
            told = "\n".join(f"  {job}" for job in found[:10])
            raise AssertionError(f"{len(found)} jobs of {wanted} were enqueued:\n{told}")

    def _seen(self) -> list[Enqueued]:
        accepted = list(self._store.accepted.values())
        last = {run.job: run.state for run in self._timeline.runs}
        found: list[Enqueued] = []
        for start in range(0, len(accepted), CALL_ITEMS):
            page = accepted[start : start + CALL_ITEMS]
            details = at_once(self._store.get([job.id for job in page]))
            found += [
                Enqueued(self._app, job, detail, last.get(job.id))
                for job, detail in zip(page, details, strict=True)
            ]
        return found

    # --- what was run ---------------------------------------------------------------------------------------

    def runs(self, of: Job[Any] | Enqueued | Sender[..., Any] | str | None = None) -> list[Ran]:
        """The runs, in order: all runs, those of a job, or those of a task."""
        name = None if of is None else _name(of)
        return [run for run in self._timeline.runs if name in (None, run.job, f"task:{run.task}")]

    def explain(self, job: Job[Any] | Enqueued | str) -> str:
        """Why a job waits."""
        return self._timeline.why(_job_id(job))

    # --- what is to happen ----------------------------------------------------------------------------------

    def crash(
        self, of: Job[Any] | Enqueued | Sender[..., Any] | str, *, times: int = 1, after_run: bool = False
    ) -> None:
        """Kill the worker of the next run of a job (or of a task), and let its supervisor notice. The worker
        dies before the first line of the task, or after the last line and before the settlement.
        """
        self._worker.fates.add(_name(of), Fate(what="crash", after_run=after_run), times)

    def lose(
        self, of: Job[Any] | Enqueued | Sender[..., Any] | str, *, times: int = 1, after_run: bool = False
    ) -> None:
        """Let the worker of the next run disappear with its host. No supervisor notices, and its session is
        silent. The job stays `running` until the clock has moved by more than the session's TTL.
        """
        self._worker.fates.add(_name(of), Fate(what="lost", after_run=after_run), times)

    def cancel_running(self, of: Job[Any] | Enqueued | Sender[..., Any] | str) -> None:
        """Cancel the next run of a job (or of a task) as soon as it has started. Async code is cancelled at
        its first `await` that waits. Other code sees that `current.cancelled` is set.
        """
        self._worker.fates.add(_name(of), Fate(what="cancel"), 1)

    def pause(self, queue: str, lane: str | None = None) -> None:
        """Stop a queue, or one of its lanes."""
        self._known(queue, at_once(self._store.pause(queue, lane)))

    def resume(self, queue: str, lane: str | None = None) -> None:
        """Resume a paused queue, or one of its lanes."""
        self._known(queue, at_once(self._store.resume(queue, lane)))

    def strike(self, of: Sender[..., Any] | str, /, *, reason: str = "", **where: Any) -> str:
        """Hold the jobs of a task that have these arguments, as an operator would. Without arguments hold all
        jobs of the task. Return the strike for `lift`.
        """
        task = of.name if isinstance(of, Sender) else of
        striking = Strikes(self._app, self._store).strike(task, where, reason=reason, by="test")
        return at_once(striking).strike.id

    def lift(self, strike: str) -> int:
        """Lift a strike. Return the number of jobs that it held; they can run now."""
        return at_once(Strikes(self._app, self._store).lift(strike, by="test")).freed

    def replay(self, job: Job[Any] | Enqueued | str) -> None:
        """Send a dead letter back, as an operator would."""
        name = _job_id(job)
        answer = at_once(self._store.replay([Target(name)]))[0]
        if answer.effect is not Effect.APPLIED:
            raise InvalidOption(f"job {name} cannot be replayed: it is {answer.state or 'not known'}")

    def _known(self, queue: str, known: object) -> None:
        if not known:
            declared = ", ".join(all_queues(self._app))
            raise InvalidOption(f'queue "{queue}" is not declared; declared queues: {declared}')

    # --- for both kinds of tests ----------------------------------------------------------------------------

    def _say(self, raises: bool | None) -> bool:  # noqa: FBT001
        return self._raises if raises is None else raises

    def _to(self, when: datetime) -> int:
        end = instant(when, name="when")
        if end < self._timeline.now:
            raise InvalidOption(f"the clock does not go back: it is {self.now}, later than {when}")
        return end

    async def _drained(self, raises: bool | None) -> list[Ran]:  # noqa: FBT001
        return await self._timeline.drain(raises=self._say(raises))

    async def _advanced(self, by: Duration, raises: bool | None) -> list[Ran]:  # noqa: FBT001
        end = self._timeline.now + micros(by, name="by")
        return await self._timeline.advance(end, raises=self._say(raises))

    async def _advanced_to(self, when: datetime, raises: bool | None) -> list[Ran]:  # noqa: FBT001
        return await self._timeline.advance(self._to(when), raises=self._say(raises))

    async def _finished(self, raises: bool | None) -> list[Ran]:  # noqa: FBT001
        return await self._timeline.finish(raises=self._say(raises), strict=True)

    async def _ran(self, job: JobId) -> None:
        """Run jobs up to this one; it has finished, or this fails."""
        if not self.runs(job):
            await self._timeline.drain(raises=True, until=job)
        detail = at_once(self._store.get([job]))[0]
        if detail is not None and detail.state not in TERMINAL:
            how = f"it ended in {runs[-1].outcome}: " if (runs := self.runs(job)) else ""
            raise AssertionError(f"job {job} ({detail.task}) has not finished: {how}{self.explain(job)}")


class Bench(BenchBase):
    """Runs jobs for a plain test."""

    def drain(self, *, raises: bool | None = None) -> list[Ran]:
        """Run all jobs that are ready now, in order, and the ready jobs that they enqueue."""
        return at_once(self._drained(raises))

    def advance(self, by: Duration, *, raises: bool | None = None) -> list[Ran]:
        """Move the clock, and run each job that becomes due on the way at its time."""
        return at_once(self._advanced(by, raises))

    def advance_to(self, when: datetime, *, raises: bool | None = None) -> list[Ran]:
        """Move the clock to a point in time, and run each job that becomes due on the way at its time."""
        return at_once(self._advanced_to(when, raises))

    def finish(self, *, raises: bool | None = None) -> list[Ran]:
        """Move the clock until every job has finished."""
        return at_once(self._finished(raises))

    @overload
    def run(self, what: Call[R], /) -> R: ...
    @overload
    def run(self, what: Sender[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def run(self, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue one call, and run it after the jobs that are ready. Return what its job returned."""
        job: Job[Any] = self._app.send([_call(what, args, kwargs)])[0]
        at_once(self._ran(job.id))
        return job.result()


class AsyncBench(BenchBase):
    """Runs jobs for an async test."""

    async def drain(self, *, raises: bool | None = None) -> list[Ran]:
        """Run all jobs that are ready now, in order, and the ready jobs that they enqueue."""
        return await self._drained(raises)

    async def advance(self, by: Duration, *, raises: bool | None = None) -> list[Ran]:
        """Move the clock, and run each job that becomes due on the way at its time."""
        return await self._advanced(by, raises)

    async def advance_to(self, when: datetime, *, raises: bool | None = None) -> list[Ran]:
        """Move the clock to a point in time, and run each job that becomes due on the way at its time."""
        return await self._advanced_to(when, raises)

    async def finish(self, *, raises: bool | None = None) -> list[Ran]:
        """Move the clock until every job has finished."""
        return await self._finished(raises)

    @overload
    async def run(self, what: Call[R], /) -> R: ...
    @overload
    async def run(self, what: Sender[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def run(self, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue one call, and run it after the jobs that are ready. Return what its job returned."""
        job: Job[Any] = await self._app.asend_one(_call(what, args, kwargs))
        await self._ran(job.id)
        return await job.aresult()


def _call(what: Any, args: Any, kwargs: Any) -> Call[Any]:
    given: Call[Any] | Sender[..., Any] | object = what
    if isinstance(given, Sender):
        return cast("Sender[..., Any]", given).call(*args, **kwargs)
    if not isinstance(given, Call):
        raise InvalidOption(f"run takes a task and its arguments, or a call, not {shown(given)}")
    if args or kwargs:
        raise InvalidOption("a call has its arguments already: t.run(send.call(...)), or t.run(send, ...)")
    return cast("Call[Any]", given)


def _name(of: Job[Any] | Enqueued | Sender[..., Any] | str) -> str:
    return f"task:{of.name}" if isinstance(of, Sender) else _job_id(of)


def _job_id(job: Job[Any] | Enqueued | str) -> JobId:
    return check_job_id(getattr(job, "id", job))
