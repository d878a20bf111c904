"""A handle: what the caller of `enqueue` holds in its hand."""

import time
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from windlass.core.codec import is_reference
from windlass.core.duration import Duration, micros
from windlass.core.job import Finished, JobDetail, Status
from windlass.core.operate import Effect, Target
from windlass.core.outcome import Error, cancelled_itself
from windlass.core.signature import Signature
from windlass.core.state import State
from windlass.core.units import SECOND, JobId
from windlass.errors import (
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobLost,
    JobNotFound,
    ResultExpired,
    ResultTimeout,
    StoreError,
    UnreadablePayload,
)

if TYPE_CHECKING:
    from windlass.client.app import Windlass

R = TypeVar("R", covariant=True)  # noqa: PLC0105


class Progress(NamedTuple):
    """How far a job says it is."""

    fraction: float
    """From 0 to 1."""
    message: str


class Job(Generic[R]):
    """One job, by its id. Each method asks the store, in one round trip. Nothing is cached."""

    __slots__ = ("_accepted", "_app", "_exists", "_sent", "_signature", "_store", "created", "id")

    def __init__(
        self,
        app: "Windlass",
        job_id: JobId,
        signature: Signature | None = None,
        *,
        exists: bool = False,
        created: bool = False,
        sent: float | None = None,
        accepted: bool = False,
    ) -> None:
        self._app = app
        self._store = app.connection
        """Where it was sent to: a test gives its app another store for a while."""
        self._signature = signature
        self._exists = exists
        """The store has named it."""
        self._accepted = accepted
        """A front door has it, and the store was not seen to have it yet."""
        self._sent = sent
        """Just before the call that this job was unfinished after; None if it may have finished before."""
        self.id: JobId = job_id
        """With a unique key: the id of the job that stands for the call."""
        self.created = created
        """Whether the call made a job; False if its key or its id met an earlier one."""

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id  # pyright: ignore[reportUnknownMemberType]

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def namespace(self) -> str:
        """The namespace of the job, read from its id."""
        return self._app.config.namespace

    @property
    def accepted(self) -> bool:
        """True if a front door has accepted the job and this handle has not yet seen it in the store."""
        return self._accepted

    # --- blocking -------------------------------------------------------------------------------------------

    def state(self) -> State | Literal[Status.ACCEPTED]:
        """The state of the job now. Raises `JobNotFound` if the store has no record of it. `ACCEPTED`: it is
        on its way from the front door to the store.
        """
        return self._app.connection.run(self.astate())

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job to finish and return what its task returned; see `aresult`."""
        # Read in the caller's thread: decoding may run users' code.
        return self._read(self._app.connection.run(self._finished_whole(timeout)))

    def progress(self) -> Progress | None:
        """What the running job last reported with `current.progress`; None if it has reported nothing."""
        return self._app.connection.run(self.aprogress())

    def logs(self) -> tuple[str, ...]:
        """The last hundred lines that the job wrote with `current.log`."""
        return self._app.connection.run(self.alogs())

    def cancel(self) -> bool:
        """Cancel the job, or ask its worker to stop it. Returns False if it had finished."""
        return self._app.connection.run(self.acancel())

    # --- async ----------------------------------------------------------------------------------------------

    async def astate(self) -> State | Literal[Status.ACCEPTED]:
        """Async twin of `state`."""
        detail = await self._taken()
        return Status.ACCEPTED if detail is None else detail.state

    async def aprogress(self) -> Progress | None:
        """Async twin of `progress`."""
        said = (await self._detail()).progress
        return None if said is None else Progress(said.permille / 1_000, said.message)

    async def alogs(self) -> tuple[str, ...]:
        """Async twin of `logs`."""
        return (await self._detail()).logs

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Wait for the job to finish and return what its task returned.

        Raises `ResultTimeout` (a TimeoutError) if the job has not finished within `timeout`; None waits for
        ever. `JobFailed`: it is dead. `JobCancelled`: it was cancelled. `ResultExpired`: it is done, but the
        store no longer keeps its result. `JobNotFound`: the store has no record of it. `JobLost`: the same,
        but the store should have a record, so it has lost data. `ValuesUnavailable`: it is done, but its
        result is in object storage, which does not answer.
        """
        return self._read(await self._finished_whole(timeout))

    async def acancel(self) -> bool:
        """Async twin of `cancel`."""
        broker = await self._app.connection.broker()
        operated = (await broker.cancel([Target(self.id)]))[0]
        if operated.effect is Effect.NOT_FOUND:
            if await self._moved():
                return await self.acancel()
            raise await self._missing()
        return operated.effect in (Effect.APPLIED, Effect.FLAGGED)

    # --- answers --------------------------------------------------------------------------------------------

    async def _finished(self, timeout: Duration | None) -> Finished:
        length = None if timeout is None else micros(timeout, name="timeout") / SECOND
        end = None if length is None else time.monotonic() + length
        connection = self._app.connection
        closings = connection.closings
        if self._sent is None:
            detail = await self._detail()  # a wait for a job that never existed would not end
            self._signature = self._signature or self._app.signature_of(detail.task)
            if connection is not self._app.connection:  # it is in another namespace
                connection = self._app.connection
                closings = connection.closings
        while True:
            left = _WATCH if end is None else min(_WATCH, max(0.0, end - time.monotonic()))
            try:
                finished = await (await connection.broker()).watch([self.id], left)
            except StoreError:
                if connection.closings == closings:
                    raise
                finished = ()
            if finished:
                return await self._with_cause(finished[0])
            if connection.closings != closings:
                raise StoreError(f"the app was closed while job {self.id} was waited for")
            await self._taken()  # nor does one that is gone ever finish
            if end is not None and time.monotonic() >= end:
                raise ResultTimeout(f"job {self.id} has not finished within {length:g} s")

    async def _finished_whole(self, timeout: Duration | None) -> Finished:
        """Its end, with a result that is in object storage."""
        if self._app.values is None:
            return await self._finished(timeout)
        try:
            finished = await self._finished(timeout)
        except JobNotFound:
            kept = await self._kept()
            if kept is None:
                raise
            return Finished(job=self.id, state=State.DONE, result=kept)
        if finished.result is not None:
            return msgspec.structs.replace(finished, result=await self._document(finished.result))
        if finished.state is State.DONE and (self._signature is None or self._signature.keeps_result):
            return msgspec.structs.replace(finished, result=await self._kept())
        return finished

    async def _document(self, result: bytes) -> bytes:
        """The result that a reference stands for. Its fence is asked for: no message says what is read."""
        values = self._app.values
        if values is None or not is_reference(result):
            return result
        return await values.result(self.id, (await self._detail()).fence, result)

    async def _kept(self) -> bytes | None:
        """The result, if it outlasts the job's record."""
        values = self._app.values
        return None if values is None or values.kept is None else await values.kept_result(self.id)

    async def _with_cause(self, finished: Finished) -> Finished:
        """A job that died with its worker has no error of its own: its history says what happened."""
        if finished.state is not State.DEAD or finished.error is not None:
            return finished
        detail = (await (await self._app.connection.broker()).get([self.id]))[0]
        cause = detail.deliveries[-1].cause if detail is not None and detail.deliveries else None
        if cause is None:
            return finished
        error = Error(type=f"{cause.kind}", message=cause.detail)
        return msgspec.structs.replace(finished, error=error)

    async def _taken(self) -> JobDetail | None:
        """The job; None while it is on its way from the front door."""
        if self._accepted:
            detail = (await (await self._app.connection.broker()).get([self.id]))[0]
            if detail is None:
                return None
            self._accepted, self._exists = False, True
        return await self._detail()

    async def _detail(self) -> JobDetail:
        broker = await self._app.connection.broker()
        detail = (await broker.get([self.id]))[0]
        if detail is None:
            if await self._moved():
                return await self._detail()
            raise await self._missing()
        return detail

    async def _moved(self) -> bool:
        """Whether another namespace of the app keeps it, whose handle this is from now on: ids that were made
        elsewhere do not say where they belong.
        """
        place = None if self._exists else await self._app.find(self.id)
        if place is None:
            return False
        self._app, self._store, self._exists = place, place.connection, True
        return True

    async def _missing(self) -> Exception:
        """What it means that the store has no record."""
        if self._exists and self._store is not self._app.connection:
            return JobNotFound(
                f"job {self.id} lives in another store than the one that its app uses now: in that of a test "
                "block that is over, or of one that has begun since"
            )
        if not self._exists:
            return await self._app.connection.not_known(self.id)
        # An unfinished job is always there, and a finished one is remembered for the resend window.
        window = self._app.config.resend_window / SECOND
        if self._sent is not None and time.monotonic() - self._sent < window:
            return JobLost(f"job {self.id} was accepted and the store has no record of it: it has lost data")
        return JobNotFound(f"the store has no record of job {self.id} any more: {_GONE}")

    def _read(self, finished: Finished) -> R:
        if finished.state is State.CANCELLED:
            why = cancelled_itself(finished.error) or finished.reason or "on request"
            raise JobCancelled(f"job {self.id} was cancelled: {why}")
        if finished.state is State.DEAD:
            error = finished.error
            why = "no error is kept" if error is None else f"{error.type}: {error.message}"
            raise JobFailed(f"job {self.id} failed ({finished.reason or 'dead'}): {why}")
        if finished.result is not None:
            try:
                value: Any = (self._signature or _UNTYPED).decode_result(finished.result)
            except (UnreadablePayload, InvalidPayload) as error:
                raise type(error)(f"job {self.id} is done, and its result cannot be read: {error}") from error
            return value
        if self._signature is not None and self._signature.keeps_result:
            raise ResultExpired(f"job {self.id} is done, and its result is kept no longer; see result_ttl")
        nothing: Any = None
        return nothing


_GONE = (
    "it finished longer ago than jobs are kept (see retention), somebody discarded it, or the store has lost "
    "it (restored from a backup, flushed)"
)
_WATCH = 30.0
"""Seconds of one watch; after each the job is looked for."""

_UNTYPED = Signature.untyped("result")
"""For a task that this program does not know: plain JSON."""
