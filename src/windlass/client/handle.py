"""A handle: what the caller of `enqueue` holds in its hand."""

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from windlass.core.job import Finished, JobDetail
from windlass.core.operate import Effect, Target
from windlass.core.state import State
from windlass.core.units import SECOND, JobId
from windlass.errors import (
    JobCancelled,
    JobFailed,
    JobLost,
    JobNotFound,
    ResultExpired,
    ResultTimeout,
)

if TYPE_CHECKING:
    from windlass.client.app import Windlass
    from windlass.core.signature import Signature

R = TypeVar("R", covariant=True)  # noqa: PLC0105


class Job(Generic[R]):
    """One job, by its id. Asking costs a round trip; nothing is cached."""

    __slots__ = ("_accepted", "_app", "_signature", "created", "id")

    def __init__(
        self,
        app: "Windlass",
        job_id: JobId,
        signature: "Signature | None" = None,
        *,
        accepted: bool = False,
        created: bool = False,
    ) -> None:
        self._app = app
        self._signature = signature
        self._accepted = time.monotonic() if accepted else None
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

    # --- blocking -------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Where the job is now; `JobNotFound` if the store has no record of it."""
        return self._app.connection.run(self.astate())

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job to finish and return what its task returned; see `aresult`."""
        return self._app.connection.run(self.aresult(timeout))

    def cancel(self) -> bool:
        """Cancel the job; whether it was, or its worker was asked to stop it. False: it had finished."""
        return self._app.connection.run(self.acancel())

    # --- async ----------------------------------------------------------------------------------------------

    async def astate(self) -> State:
        """Async twin of `state`."""
        return (await self._detail()).state

    async def aresult(self, timeout: float | None = None) -> R:
        """Wait for the job to finish and return what its task returned.

        `ResultTimeout` (a TimeoutError): it has not finished within `timeout` seconds; None waits for ever.
        `JobFailed`: it is dead. `JobCancelled`. `ResultExpired`: it finished long ago. `JobNotFound`: no such
        job.
        `JobLost`: the store accepted it and has lost it.
        """
        broker = await self._app.connection.broker()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WATCH if end is None else min(_WATCH, max(0.0, end - time.monotonic()))
            finished = await broker.watch([self.id], left)
            if finished:
                return self._read(finished[0])
            await self._detail()  # a job that is gone never finishes
            if end is not None and time.monotonic() >= end:
                raise ResultTimeout(f"job {self.id} has not finished within {timeout:g} s")

    async def acancel(self) -> bool:
        """Async twin of `cancel`."""
        broker = await self._app.connection.broker()
        operated = (await broker.cancel([Target(self.id)]))[0]
        if operated.effect is Effect.NOT_FOUND:
            raise self._missing()
        return operated.effect in (Effect.APPLIED, Effect.FLAGGED)

    # --- answers --------------------------------------------------------------------------------------------

    async def _detail(self) -> JobDetail:
        broker = await self._app.connection.broker()
        detail = (await broker.get([self.id]))[0]
        if detail is None:
            raise self._missing()
        return detail

    def _missing(self) -> Exception:
        """What it means that the store has no record."""
        if self._accepted is None:
            return JobNotFound(f"job {self.id} is not known; it may have finished long ago, or never existed")
        # An unfinished job is always there, and a finished one is remembered for the resend window.
        if time.monotonic() - self._accepted < self._app.config.resend_window / SECOND:
            return JobLost(f"job {self.id} was accepted and the store has no record of it: it has lost data")
        return ResultExpired(
            f"job {self.id} finished, and nothing of it is kept any more; see retention and result_ttl"
        )

    def _read(self, finished: Finished) -> R:
        if finished.state is State.CANCELLED:
            raise JobCancelled(f"job {self.id} was cancelled: {finished.reason or 'on request'}")
        if finished.state is State.DEAD:
            error = finished.error
            why = f"{error.type}: {error.message}" if error is not None else str(finished.reason)
            raise JobFailed(f"job {self.id} failed ({finished.reason}): {why}")
        if finished.result is not None:
            value: Any = self._app.decode_result(self._signature, finished.result)
            return value
        if self._signature is not None and self._signature.keeps_result:
            raise ResultExpired(f"job {self.id} is done, and its result is kept no longer; see result_ttl")
        nothing: Any = None
        return nothing


_WATCH = 30.0
"""Seconds of one watch; after each the job is looked for."""
