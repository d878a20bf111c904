"""Tasks: functions that can be enqueued, calls of them, and options for a call."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, cast

import msgspec

from windlass.client.handle import Job
from windlass.client.options import CallOptions, check_known, check_parents, policy_of, prepared
from windlass.core.alike import Alike
from windlass.core.duration import Duration, micros
from windlass.core.enqueuer import with_header
from windlass.core.ids import check_job_id
from windlass.core.job import NewJob
from windlass.core.limits import Rate
from windlass.core.option import choice, shown, whole
from windlass.core.retry import RetryPolicy
from windlass.core.signature import Signature
from windlass.core.unique import Unique, UniqueKeys
from windlass.core.units import SECOND, JobId, Micros
from windlass.core.webhook import CALLBACK
from windlass.errors import InvalidOption
from windlass.forks import renew_after_fork

if TYPE_CHECKING:
    from windlass.client.app import Windlass

P = ParamSpec("P")
C = TypeVar("C", covariant=True)  # noqa: PLC0105
R = TypeVar("R", covariant=True)  # noqa: PLC0105

Run = Literal["loop", "thread", "process", "inline"]


class TaskKeywords(TypedDict, total=False):
    """What `@app.task(...)` takes."""

    name: str | None
    queue: str | None
    namespace: str | None
    retry: RetryPolicy | None
    timeout: Duration | None
    hard_timeout: Duration | None
    run: Run | None
    concurrency: int | None
    rate: str | Rate | None
    lane_concurrency: int | None
    lane_rate: str | Rate | None
    priority: int | None
    expires: Duration | None
    revision: int
    keep_result: bool
    unique: Unique | None
    private: Sequence[str]


def private_names(given: object) -> tuple[str, ...]:
    """The names that a task says are private, or `InvalidOption`."""
    names = tuple(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else None
    if names is None or not all(isinstance(name, str) and name for name in names):
        said = shown(cast("object", given))
        raise InvalidOption(
            f'private must be names of arguments, fields or keys, such as ("email",), not {said}'
        )
    return cast("tuple[str, ...]", names)


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says of all its jobs."""

    queue: str = "default"
    retry: RetryPolicy = RetryPolicy()
    timeout: Micros | None = None
    """From the start of a run: then its code is told to stop."""
    hard_timeout: Micros | None = None
    """Then what does not stop costs its process."""
    run: Run | None = None
    """None: `async def` in the loop, `def` in a thread."""
    revision: int = 0
    external: bool = False
    unique: UniqueKeys | None = None
    """Makes the keys of calls that have none of their own."""
    calls: Mapping[str, Any] = {}
    """Defaults for the options of each call."""


def task_options(queue: str, options: TaskKeywords, signature: Signature) -> TaskOptions:
    """The options of a task that lives in a queue; `InvalidOption` names the one that is wrong."""
    retry, timeout, run = options.get("retry"), options.get("timeout"), options.get("run")
    if retry is not None and not isinstance(retry, RetryPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(
            f"retry must be a RetryPolicy, such as RetryPolicy(max_attempts=3), not {shown(retry)}"
        )
    unique = options.get("unique")
    if unique is not None and not isinstance(unique, Unique):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f'unique must be a Unique, such as Unique("user_id"), not {shown(unique)}')
    soft, hard = _timeouts(timeout, options.get("hard_timeout"))
    if run is not None:
        choice(run, name="run", among=("loop", "thread", "process", "inline"))
    return TaskOptions(
        queue=queue,
        retry=retry or RetryPolicy(),
        timeout=soft,
        hard_timeout=hard,
        run=run,
        revision=whole(options.get("revision", 0), name="revision", least=0, most=2**31),
        unique=None if unique is None else UniqueKeys(unique, signature),
        calls={name: value for name in ("priority", "expires") if (value := options.get(name)) is not None},
    )


HARD_AFTER: Micros = 10 * SECOND
"""What a run is given beyond its timeout, where the task does not say."""


def _timeouts(soft: Duration | None, hard: Duration | None) -> tuple[Micros | None, Micros | None]:
    length = None if soft is None else micros(soft, name="timeout")
    most = None if hard is None else micros(hard, name="hard_timeout")
    for name, given, read in (("timeout", soft, length), ("hard_timeout", hard, most)):
        if read == 0:
            raise InvalidOption(
                f"{name} must be longer than nothing, or None for no limit, got {shown(given)}"
            )
    if most is not None and length is not None and most < length:
        raise InvalidOption(f"hard_timeout={shown(hard)} is shorter than timeout={shown(soft)}")
    if most is None and length is not None:
        most = length + min(length, HARD_AFTER)
    return length, most


class Call(msgspec.Struct, Generic[R], eq=False, gc=False):
    """A call that has not been sent: its checked and encoded arguments, and its options. It keeps its id, so
    it makes one job, however often you send it.
    """

    task: "Sender[Any, R]"
    made: NewJob | bytes
    """The job, or the payload of one that nobody has asked for yet: many are made at once when they are sent.
    """
    sent_id: JobId | None = None
    """That of a job that was sent and never looked at."""

    @property
    def job(self) -> NewJob:
        """The job that this call sends. It gets its id when you first read this property, or when it is
        sent.
        """
        if not isinstance(self.made, NewJob):
            with _making.lock:
                if not isinstance(self.made, NewJob):
                    self.made = self.task.job(self.sent_id or self.task.app.new_id(), self.made)
        return self.made

    @job.setter
    def job(self, job: NewJob) -> None:
        self.made = job

    @property
    def payload(self) -> bytes:
        """Its arguments, encoded."""
        made = self.made
        return made.payload if isinstance(made, NewJob) else made

    def using(self, **options: Unpack[CallOptions]) -> "Call[R]":
        """Return the same call with other options."""
        return self.task.using(**options).rebuilt(self)

    @property
    def namespace(self) -> str:
        """The namespace of its job."""
        return self.task.app.config.namespace

    def __repr__(self) -> str:
        return f"<Call of {self.task.name}>"


class _Making:
    """A lock, held while jobs are made of calls, so that a call becomes one job in all threads. A signal
    handler that makes jobs of its own does not wait for the thread that it interrupted.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        renew_after_fork(self)

    def renew(self) -> None:
        """The old lock may be held by a thread that the child of a fork does not have."""
        self.lock = threading.RLock()


_making = _Making()


def made_jobs(calls: "Sequence[Call[Any]]") -> list[NewJob]:
    """The jobs of calls; those that are not made yet are made now."""
    with _making.lock:
        new = Counter(
            [call.task.app for call in calls if call.sent_id is None and not isinstance(call.made, NewJob)]
        )
        ids = {app: iter(app.new_id.many(count)) for app, count in new.items()}
        jobs: list[NewJob] = []
        for call in calls:
            made = call.made
            if not isinstance(made, NewJob):
                task = call.task
                made = call.made = task.job(call.sent_id or next(ids[task.app]), made)
            jobs.append(made)
        return jobs


def alike_jobs(calls: "Sequence[Call[Any]]") -> Alike | None:
    """The jobs of calls of one task under the same options, of which none was sent or asked for its job; None
    if they are others.
    """
    task = calls[0].task
    if task.edges or task.needs_parents or task.unique or list(map(_task_of, calls)).count(task) < len(calls):
        return None
    with _making.lock:
        payloads = list(map(_made_of, calls))
        # One call may be there twice, and is one job.
        if set(map(type, payloads)) != {bytes} or len(set(calls)) < len(calls):
            return None
        if any(map(_sent_of, calls)):
            return None
        ids = task.app.new_id.many(len(calls))
        for call, job_id in zip(calls, ids, strict=True):
            call.sent_id = job_id
    return Alike(task.pattern, ids, payloads, task.job)


_task_of, _made_of, _sent_of = attrgetter("task"), attrgetter("made"), attrgetter("sent_id")
_new_job: Callable[..., NewJob] = NewJob
_PAYLOAD = NewJob.__struct_fields__.index("payload")
_MADE_LATER = "(made of the arguments)"
"""In the place of a key, until there are arguments."""


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
        self.app = app
        self.name = name
        self.signature = signature
        self.options = options
        self._calls = calls
        self._plain, self._encode = signature.plain, signature.encode
        self.on_failure = policy_of(calls)
        """What a call does, in a flow, when one that it waits for will never be done."""
        self.needs_parents = "on_failure" in calls
        self._connection = calls.get("connection")
        merged = {
            "queue": options.queue,
            "max_attempts": options.retry.max_attempts,
            **options.calls,
            **({} if options.unique is None else {"key": _MADE_LATER, **options.unique.options}),
            **calls,
        }
        self.unique = None if "key" in calls else options.unique
        """Makes the key of each job."""
        fields = prepared(name, options.revision, cast("CallOptions", merged))
        if app.enqueuer:
            fields["headers"] = with_header(fields.get("headers", {}), app.enqueuer)
        # What all jobs have in common, before and after their payload: to make one takes half as long by
        # position as by name.
        self.pattern = NewJob("", **fields)
        """A job of this task, except for id and payload."""
        _, *common = msgspec.structs.astuple(self.pattern)
        self._before, self._behind = tuple(common[: _PAYLOAD - 1]), tuple(common[_PAYLOAD:])
        self.edges = len(fields.get("after", ()))
        """How many parents each of its jobs has."""
        self.known_signature = None if options.external else signature
        """That of a task of this app."""
        if (callback := self.pattern.headers.get(CALLBACK)) is not None:
            app.expect_callbacks(self.pattern.queue, callback)
        check_parents(name, app.config.namespace, calls.get("after"))

    def using(self, **options: Unpack[CallOptions]) -> "Sender[P, R]":
        """Return the same task with other options: `send.using(delay=60, lane="acme").enqueue(...)`."""
        check_known(options, CallOptions)
        place = self.app.place_of(options["queue"]) if "queue" in options else self.app
        return Sender(place, self.name, self.signature, self.options, {**self._calls, **options})

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call to be sent later, by `app.enqueue_many`, a schedule or a job."""
        return Call(self, self._plain(args, kwargs) or self._encode(args, kwargs))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Send a call, from blocking code. When this returns, the store has accepted the job."""
        return self.app.send((self._made(args, kwargs),), self._connection)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Send a call, from async code. When this returns, the store has accepted the job."""
        return await self.app.asend_one(self._made(args, kwargs), self._connection)

    def _made(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Call[R]:
        """A call that nobody else has: its job is made at once, without the lock."""
        payload = self._plain(args, kwargs) or self._encode(args, kwargs)
        return Call(self, self.job(self.app.new_id(), payload))

    def enqueue_many(self, calls: "Iterable[Call[R]]") -> list[Job[R]]:
        """Send many calls of this task, with one round trip for each thousand. The options of this task win
        over those of a call.
        """
        return self.app.enqueue_many(self._rebuilt(calls), connection=self._connection)

    async def aenqueue_many(self, calls: "Iterable[Call[R]]") -> list[Job[R]]:
        """Async twin of `enqueue_many`."""
        return await self.app.aenqueue_many(self._rebuilt(calls), connection=self._connection)

    def rebuilt(self, call: Call[Any]) -> Call[R]:
        """A call of this task, with its arguments, under these options alone."""
        return Call(self, call.payload)

    def handle(self, job_id: str) -> Job[R]:
        """The handle of a job of this task by its id: `app.job` with the type of the result."""
        return Job(self.app, check_job_id(job_id), self.signature)

    def _rebuilt(self, calls: "Iterable[Call[R]]") -> "Iterator[Call[R]]":
        merged: dict[Sender[Any, Any], Sender[Any, R]] = {}
        for call in calls:
            if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidOption(
                    f"enqueue_many takes calls, as in {self.name}.call(...), not {shown(call)}"
                )
            if call.task.name != self.name:
                raise InvalidOption(
                    f'{self.name}.enqueue_many takes calls of "{self.name}", not of "{call.task.name}"; '
                    "app.enqueue_many takes both"
                )
            sender = merged.get(call.task)
            if sender is None:
                sender = merged[call.task] = call.task.using(**self._calls)
            yield sender.rebuilt(call)

    def job(self, job_id: JobId, payload: bytes) -> NewJob:
        """A job of this task under these options."""
        job = _new_job(job_id, *self._before, payload, *self._behind)
        return job if self.unique is None else msgspec.structs.replace(job, key=self.unique.of(payload))


class Task(Sender[P, R], Generic[P, C, R]):
    """A registered function. A direct call runs the function itself and returns `C`. A job returns `R`."""

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
        self.__module__ = getattr(function, "__module__", __name__)
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"
