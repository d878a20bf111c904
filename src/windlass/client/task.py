"""Tasks: functions that can be enqueued, calls of them, and options for a call."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack, cast

import msgspec

from windlass.client.handle import Job
from windlass.client.options import CallOptions, check_known, prepared
from windlass.core.job import NewJob
from windlass.core.retry import RetryPolicy
from windlass.core.signature import Signature
from windlass.core.units import Micros

if TYPE_CHECKING:
    from windlass.client.app import Windlass

P = ParamSpec("P")
C = TypeVar("C", covariant=True)  # noqa: PLC0105
R = TypeVar("R", covariant=True)  # noqa: PLC0105

Run = Literal["loop", "thread", "process", "inline"]


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says of all its jobs."""

    queue: str = "default"
    retry: RetryPolicy = RetryPolicy()
    timeout: Micros | None = None
    run: Run | None = None
    """None: `async def` in the loop, `def` in a thread."""
    revision: int = 0
    external: bool = False
    calls: Mapping[str, Any] = {}
    """Defaults for the options of each call."""


class Call(Generic[R]):
    """A call that has not been sent: arguments, checked and encoded, and options. Its id makes sending
    repeatable.
    """

    __slots__ = ("job", "task")

    def __init__(self, task: "Sender[Any, R]", job: NewJob) -> None:
        self.task = task
        self.job = job

    def using(self, **options: Unpack[CallOptions]) -> "Call[R]":
        """The same call under other options."""
        return self.task.using(**options).rebuilt(self)

    def __repr__(self) -> str:
        return f"<Call of {self.job.task}>"


class Sender(Generic[P, R]):
    """A task with options for its calls."""

    def __init__(
        self,
        app: "Windlass",
        name: str,
        signature: Signature,
        options: TaskOptions,
        calls: CallOptions,
    ) -> None:
        self._app = app
        self.name = name
        self.signature = signature
        self.options = options
        self._calls = calls
        merged = {
            "queue": options.queue,
            "max_attempts": options.retry.max_attempts,
            **options.calls,
            **calls,
        }
        self._fields = prepared(name, options.revision, cast("CallOptions", merged))

    def using(self, **options: Unpack[CallOptions]) -> "Sender[P, R]":
        """The same task under other options: `send.using(delay=60, lane="acme").enqueue(...)`."""
        check_known(options)
        return Sender(self._app, self.name, self.signature, self.options, {**self._calls, **options})

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call to be sent later, by `app.enqueue_many`, a schedule or a job."""
        return Call(self, self._job(self.signature.encode(args, kwargs)))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Send a call, from blocking code; it is kept when this returns."""
        return self._app.send([self.call(*args, **kwargs)])[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Send a call, from async code; it is kept when this returns."""
        return await self._app.asend_one(self.call(*args, **kwargs))

    def enqueue_many(self, calls: Iterable[Call[Any]]) -> list[Job[R]]:
        """Send many calls of this task under these options, a round trip for each thousand."""
        return self._app.enqueue_many(self.rebuilt(call) for call in calls)

    async def aenqueue_many(self, calls: Iterable[Call[Any]]) -> list[Job[R]]:
        """Async twin of `enqueue_many`."""
        return await self._app.aenqueue_many(self.rebuilt(call) for call in calls)

    def rebuilt(self, call: Call[Any]) -> Call[R]:
        """A call of this task, with its arguments, under these options."""
        return Call(self, self._job(call.job.payload))

    def handle(self, job_id: str, *, accepted: bool = False, created: bool = False) -> Job[R]:
        """The handle of a job of this task."""
        return Job(self._app, job_id, self.signature, accepted=accepted, created=created)

    def _job(self, payload: bytes) -> NewJob:
        return NewJob(id=self._app.new_id(), payload=payload, **self._fields)


class Task(Sender[P, R], Generic[P, C, R]):
    """A registered function. Called, it is the plain function; `C` is what that returns, `R` what a job
    returns.
    """

    def __init__(
        self,
        app: "Windlass",
        function: Callable[P, C],
        name: str,
        signature: Signature,
        options: TaskOptions,
    ) -> None:
        super().__init__(app, name, signature, options, {})
        self.function = function
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"
