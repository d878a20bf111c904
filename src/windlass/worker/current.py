"""`current`: what a task knows and says about the run it is in."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, TypeVar, cast, overload

import msgspec

from windlass.core.job import NewJob
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import LOG_LINE_CHARS, MEMO_BYTES, MEMOS, Note
from windlass.core.settlement import Settlement
from windlass.core.signature import Signature
from windlass.core.units import Fence, JobId
from windlass.errors import InvalidOption, InvalidPayload, LeaseLost, Unsupported
from windlass.observe.traces import active
from windlass.signals import Cancelled
from windlass.worker.failure import clipped
from windlass.worker.parents import Parent, aparents_of, parents_of
from windlass.worker.program import Program
from windlass.worker.run import Run, running

T = TypeVar("T")


NO_LIFESPAN: Final = object()
resources: ContextVar[Any] = ContextVar("windlass_resources", default=NO_LIFESPAN)
"""What the lifespan of this process has yielded. It is set before the first job: no job pays for it."""


class SpawnedCall(Protocol):
    """A call, as `task.call(...)` makes it."""

    @property
    def job(self) -> NewJob: ...


class SpawnedShape(Protocol):
    """A chain or a group of calls."""

    def jobs(self, flow: str = "") -> Sequence[NewJob]: ...


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job that runs."""

    id: JobId
    task: str
    queue: str
    lane: str
    priority: int
    max_attempts: int
    crashes: int
    tags: tuple[str, ...]
    headers: Mapping[str, str]
    flow: str
    parents: tuple[JobId, ...]


class Current:
    """The run that the calling code is part of. Outside of a run every attribute raises a `LookupError`. Only
    `resources` can be read as long as the lifespan lasts.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        run = running.get(None)
        return "<current: no job>" if run is None else f"<current: {run.lease.task} {run.lease.job}>"

    def __bool__(self) -> bool:
        """Whether the calling code is part of a run."""
        return running.get(None) is not None

    # --- what it knows --------------------------------------------------------------------------------------

    @property
    def job(self) -> RunningJob:
        """The job."""
        lease = _run().lease
        return RunningJob(
            id=lease.job,
            task=lease.task,
            queue=lease.queue,
            lane=lease.lane,
            priority=lease.priority,
            max_attempts=lease.max_attempts,
            crashes=lease.crashes,
            tags=lease.tags,
            headers=lease.headers,
            flow=lease.flow,
            parents=lease.parents,
        )

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return _run().lease.attempt

    @property
    def fence(self) -> Fence:
        """The number of this delivery: higher than that of any earlier run of the job."""
        return _run().lease.fence

    @property
    def deadline(self) -> float | None:
        """When the task's timeout ends, on the clock `time.monotonic()` (and `loop.time()`). None: no
        timeout.
        """
        return _run().deadline

    @property
    def cancelled(self) -> bool:
        """True if somebody has asked to cancel this job. Code that cannot be interrupted should check
        this.
        """
        return _run().cancelled

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if somebody has asked to cancel this job, or if its lease may be lost. If only
        the lease may be lost, the job is not cancelled. It goes back to its queue if this worker still has
        it.
        """
        run = _run()
        if run.cancelled:
            raise Cancelled("somebody has asked to cancel this job")
        if run.is_lost():
            stop = Cancelled("this job may have been given to another worker")
            stop.lease_lost = True
            raise stop

    @property
    def lease_lost(self) -> bool:
        """True if another worker may have the job now. Then stop: write nothing more to other systems."""
        return _run().is_lost()

    @property
    def idempotency_key(self) -> str:
        """A key that is the same in every run of this job, and different for every other job. Pass it to
        services that accept idempotency keys.
        """
        return _run().lease.job

    @property
    def resources(self) -> Any:
        """The value that the lifespan of the app has yielded in this process."""
        found = resources.get()
        if found is None:
            raise LookupError(
                "the lifespan of this app yields nothing: write yield pool in it, or what else its tasks need"
            )
        if found is NO_LIFESPAN:
            raise LookupError(
                "there are no resources here: an app has them if it was made with Windlass(lifespan=...), "
                "and only where its jobs run"
            )
        return found

    def parents(self) -> Iterator[Parent]:
        """The parents: the jobs that this job waited for, in the order of its edges. They are read in pages
        of a hundred.

        For `def` tasks; in `async def` it is `async for parent in current.aparents()`.
        """
        if _on_a_loop():
            raise InvalidOption("in an async task write: async for parent in current.aparents()")
        return parents_of(_run())

    def aparents(self) -> AsyncIterator[Parent]:
        """Async twin of `parents`."""
        return aparents_of(_run())

    def results(self) -> list[Any]:
        """The results of the jobs that this job waited for, in the order of its edges. None for a job that is
        not done.
        """
        return [parent.result for parent in self.parents()]

    async def aresults(self) -> list[Any]:
        """Async twin of `results`."""
        return [parent.result async for parent in self.aparents()]

    # --- what it says ---------------------------------------------------------------------------------------

    def progress(self, fraction: float, message: str = "") -> None:
        """Report how far the run is, from 0 to 1. The newest report counts; it is sent within a fraction of a
        second.
        """
        run = _run()
        if not 0 <= fraction <= 1:
            raise InvalidOption(f"progress is a number from 0 to 1, not {fraction!r}")
        run.reporter.note(_note(run, permille=round(fraction * 1_000), message=_kept(run, message)))

    def log(self, line: str) -> None:
        """Keep a line with the job: the last hundred lines, each up to 2,000 characters. Secret values of the
        arguments are removed.
        """
        run = _run()
        run.reporter.note(_note(run, logs=(_kept(run, str(line)),)))

    @overload
    def spawn(self, call: SpawnedCall) -> JobId: ...
    @overload
    def spawn(self, call: SpawnedShape) -> list[JobId]: ...
    def spawn(self, call: SpawnedCall | SpawnedShape) -> JobId | list[JobId]:
        """Make a child job: `current.spawn(send.call("a@example.com"))`. A chain or a group makes several.
        The children are created only when this run ends as done. They belong to the flow of this job.
        """
        run = _run()
        job = getattr(call, "job", None)
        _check_namespace(run, call)
        if isinstance(job, NewJob):
            run.spawn(_traced(run.program.outgoing([_in_flow(job, run.lease.flow)])))
            return job.id
        lay = getattr(call, "jobs", None)
        if not callable(lay):
            raise InvalidOption(
                f"spawn takes a call, as in send.call(...), or a flow of them, not {type(call).__name__}"
            )
        jobs = cast("Sequence[NewJob]", lay(run.lease.flow))
        run.spawn(_traced(run.program.outgoing(jobs)))
        return [job.id for job in jobs]

    def step(self, name: str, function: Callable[[], T]) -> T:
        """Do something once. If an earlier run of this job has recorded a value under the name, return that
        value. If not, call the function and record what it returns. After a crash between the two, the next
        run calls the function again.

        For `def` tasks; in `async def` it is `await current.astep(name, function)`.
        """
        if _on_a_loop():
            raise InvalidOption("in an async task write: await current.astep(name, function)")
        run = _run()
        signature = Signature(function, name=f"step {name}", forms=run.program.forms)
        if name in run.memos:
            return cast("T", signature.decode_result(run.memos[name]))
        value = function()
        if inspect.isawaitable(value):
            raise InvalidOption(f'step "{name}": an async function needs an async task, and astep')
        memo = _memo(signature, value)
        _check(run.reporter.confirm(_note(run, memo=(name, memo))).result(), name)
        run.memos[name] = memo
        return value

    async def astep(self, name: str, function: Callable[[], Awaitable[T]] | Callable[[], T]) -> T:
        """Async twin of `step`; the function may be plain or async."""
        run = _run()
        signature = Signature(function, name=f"step {name}", forms=run.program.forms)
        if name in run.memos:
            return cast("T", signature.decode_result(run.memos[name]))
        given: Any = function()
        value: T = await given if inspect.isawaitable(given) else given
        memo = _memo(signature, value)
        _check(await asyncio.wrap_future(run.reporter.confirm(_note(run, memo=(name, memo)))), name)
        run.memos[name] = memo
        return value

    def transaction(self) -> "Transaction":
        """Commit your own writes together with the end of this job, if the store supports it.

            async with current.transaction() as connection:
                await connection.execute("UPDATE account SET ...")

        Both happen or neither, even if this worker is killed or has lost its lease. So your writes happen
        once. The commit ends the job as done; a value that the task returns after it is not kept.
        """
        return Transaction(self._transaction())

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Any, None]:
        run = _run()
        broker = await run.program.broker()
        if broker.transact is None:
            raise Unsupported(
                f"a {broker.capabilities.store} store cannot end a job in your transaction; PostgreSQL can"
            )
        if run.committed:
            raise InvalidOption("this run has committed its transaction: a job ends once")
        async with broker.transact.transaction(run.program.config.session_ttl) as connection:
            yield connection
            done = Settlement(
                job=run.lease.job, fence=run.lease.fence, outcome=Outcome.DONE, spawn=run.spawned
            )
            if (values := run.program.values) is not None:
                done = await values.settled(done)
            answer = await broker.transact.settle_on(connection, done)
            if answer.verdict is not Verdict.APPLIED:
                raise LeaseLost(
                    f"nothing was committed: this run has lost its lease ({answer.why or answer.verdict})"
                )
        run.committed = True


class Transaction:
    """What `current.transaction()` gives: for `async with`."""

    def __init__(self, inner: AbstractAsyncContextManager[Any]) -> None:
        self._inner = inner

    async def __aenter__(self) -> Any:
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def __enter__(self) -> NoReturn:
        raise InvalidOption(
            "current.transaction() is for async tasks: make the task async def, and write"
            " async with current.transaction() as connection"
        )

    def __exit__(self, *_: object) -> None:
        """Never left, since it is never entered."""


current = Current()


def _run() -> Run:
    run = running.get(None)
    if run is None:
        raise LookupError("windlass.current has no job here: it belongs to the code that a worker runs")
    return run


def _in_flow(job: NewJob, flow: str) -> NewJob:
    return msgspec.structs.replace(job, flow=flow) if flow and not job.flow else job


def _traced(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    spans = active()
    return jobs if spans is None else spans.created(jobs)


def _kept(run: Run, text: str) -> str:
    return clipped(run.clean(text), LOG_LINE_CHARS)


def _note(run: Run, **said: Any) -> Note:
    return Note(job=run.lease.job, fence=run.lease.fence, **said)


def _memo(signature: Signature, value: object) -> bytes:
    # "-> None" keeps no result of a task, but a step that returned must not run again.
    document = signature.encode_result(value)
    return _NOTHING if document is None else document


_NOTHING = Signature.untyped("step").encode_result(None) or b""


def _check_namespace(run: Run, call: object) -> None:
    """Children come into being in the step that ends their parent, so they are where it is."""
    there = getattr(call, "namespace", None)
    place_of = getattr(run.program, "place_of", None)
    homes = {run.program.config.namespace}
    if callable(place_of):
        homes.add(cast("Program", place_of(run.lease.queue)).config.namespace)
    if isinstance(there, str) and there not in homes:
        raise InvalidOption(
            f'a job spawns into its own namespace, "{run.program.config.namespace}", and this call is in '
            f'"{there}"; enqueue it instead'
        )


def _check(verdict: Verdict, name: str) -> None:
    if verdict is Verdict.APPLIED:
        return
    if verdict is Verdict.REFUSED:
        raise InvalidPayload(
            f'step "{name}" cannot be kept: a job has at most {MEMOS} steps and {MEMO_BYTES:,} bytes of them'
        )
    raise LeaseLost(f'step "{name}" was done but not kept: this run has lost its lease ({verdict})')


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
