"""The application: where tasks and queues are declared, and calls are sent."""

import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Unpack, cast, overload

from windlass.broker.contract import Broker
from windlass.broker.observed import Observer
from windlass.client.connection import Connection
from windlass.client.declared import Declared
from windlass.client.flow_handle import Flow
from windlass.client.forks import renew_after_fork
from windlass.client.function import check_function, name_of
from windlass.client.handle import Job
from windlass.client.options import CallOptions, check_known
from windlass.client.schedule import ScheduleOptions, specification
from windlass.client.settings import LaneOptions, QueueOptions, flag, lane_settings, queue_settings
from windlass.client.task import Call, P, Sender, Task, TaskKeywords, TaskOptions, task_options
from windlass.clock import Clock
from windlass.config import Config, Settings, configure
from windlass.core.alert import CLEAR, Alert, check_alert, encode_alert
from windlass.core.duration import Duration, micros
from windlass.core.ids import JobIds, check_job_id, namespace_tag
from windlass.core.job import GROUP_BYTES, GROUP_EDGES, GROUP_JOBS, NewJob, Receipt, Refusal, Status
from windlass.core.names import check_app, check_flow, check_lane, check_queue, check_schedule, check_task
from windlass.core.option import shown, whole
from windlass.core.settings import Kind, QueueSettings, Subject
from windlass.core.signature import Signature
from windlass.errors import EnqueueRefused, InvalidOption

if TYPE_CHECKING:
    from windlass.worker.embedded import EmbeddedWorker

T = TypeVar("T")
_S = TypeVar("_S", bound=Sender[..., Any])


class TaskDecorator(Protocol):
    """What `app.task(...)` with options returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


class Windlass:
    """A set of tasks and queues, and the store they live in.

    `url` names the store: `$WINDLASS_URL`, else `sqlite:///windlass.db`. Nothing is opened before it is used,
    so an app can be imported anywhere, and used after a fork. Every setting has an environment variable:
    `session_ttl` is `WINDLASS_SESSION_TTL`.
    """

    is_windlass_app = True
    """What a command line that was given `module:app` looks for."""

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "app",
        revision: int = 0,
        clock: Clock | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        check_known(settings, Settings)
        self.name = check_app(name)
        self.revision = whole(revision, name="revision", least=0, most=2**31)
        self.config: Config = configure({"url": url, **settings}, os.environ)
        self.tasks: dict[str, Sender[..., Any]] = {}
        self._owned: set[str] = set()
        self._declared = Declared(self.name, self.revision)
        self.connection = Connection(self.config, self._declared, clock)
        self.new_id = JobIds(
            lambda: time.time_ns() // 1_000_000,
            os.urandom,
            lock=threading.Lock,
            tag=namespace_tag(self.config.namespace),
        )
        renew_after_fork(self)
        self._use_queue("default")

    def renew(self) -> None:
        """Draw other ids than the parent, in the child of a fork."""
        self.new_id.reseed()

    # --- tasks ----------------------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def task(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    @overload
    def task(self, **options: Unpack[TaskKeywords]) -> TaskDecorator: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """Register a function as a task: `@app.task` or `@app.task(queue="mail", retry=..., timeout=60)`.

        Limits (`concurrency`, `rate`, and `lane_` with either) give the task a queue of its own, named after
        it.
        """
        check_known(options, TaskKeywords)

        def registered(function: object) -> Task[..., Any, Any]:
            return self._register(function, cast("TaskKeywords", options))

        return registered if function is None else registered(function)

    def external(self, name: str, **options: Unpack[CallOptions]) -> Sender[..., Any]:
        """Name a task that lives elsewhere: in another program, or behind the HTTP API. Its arguments are not
        checked, and its queue is declared there.
        """
        check_known(options, CallOptions)
        signature = Signature.untyped(check_task(name), max_payload=self.config.max_payload)
        return self._add(Sender[..., Any](self, name, signature, TaskOptions(external=True), options))

    def _register(self, given: Any, options: TaskKeywords) -> Task[..., Any, Any]:
        # A task of another app may be one of this app, too: what it wraps is registered.
        function = check_function(given.function if isinstance(given, Task) else given)
        name = name_of(function, options.get("name"))
        self._refuse_second(name)
        limits = cast("QueueOptions", {limit: options.get(limit) for limit in _LIMITS})
        settings = queue_settings(limits)
        owns = settings != QueueSettings()
        queue = self._home(name, options.get("queue"), owns=owns)
        keep_result = flag(options.get("keep_result", True), name="keep_result")
        signature = Signature(
            function, name=name, max_payload=self.config.max_payload, keep_result=keep_result
        )
        # Everything is checked before anything is declared.
        task: Task[..., Any, Any] = Task(self, function, name, signature, task_options(queue, options))
        self._add(task)
        if owns:
            self._owned.add(queue)
            self._declared.put(Subject(Kind.QUEUE, queue), settings)
        self._use_queue(queue)
        return task

    def _home(self, task: str, queue: str | None, *, owns: bool) -> str:
        """The queue of a task."""
        if not owns:
            return "default" if queue is None else check_queue(queue)
        if queue is not None or self._declared.has_queue(task):
            raise InvalidOption(
                f'task "{task}": its limits ({", ".join(_LIMITS)}) give it a queue of its own; '
                f'set them with app.queue() on queue "{task if queue is None else queue}" instead'
            )
        return task

    def _add(self, task: _S) -> _S:
        self._refuse_second(task.name)
        self.tasks[task.name] = task
        return task

    def _refuse_second(self, name: str) -> None:
        if name in self.tasks:
            raise InvalidOption(f'there are two tasks called "{name}"; give one of them another name=')

    # --- queues, lanes, schedules ---------------------------------------------------------------------------

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> None:
        """Declare a queue: its limits, order, and how long its finished jobs are kept. Said again, the last
        word counts.
        """
        settings = queue_settings(options)
        if check_queue(name) in self._owned:
            raise InvalidOption(f'queue "{name}" belongs to task "{name}"; set its limits there')
        self._declared.put(Subject(Kind.QUEUE, name), settings)

    def lane(self, queue: str, lane: str, **options: Unpack[LaneOptions]) -> None:
        """Declare one lane of a queue: its share, and limits that differ from the queue's for its lanes."""
        settings = lane_settings(options)
        subject = Subject(Kind.LANE, check_queue(queue), check_lane(lane))
        self._use_queue(queue)
        self._declared.put(subject, settings)

    def schedule(self, name: str, call: Call[Any], **options: Unpack[ScheduleOptions]) -> None:
        """Declare a schedule: `app.schedule("nightly", send.call("ops"), cron="0 3 * * *", tz="Asia/Tokyo")`.

        One of `cron`, `every` (a duration) and `at` (a datetime) says when the call is made.
        """
        if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"a schedule takes a call, as in send.call(...), not {shown(call)}")
        self._declared.put_schedule(check_schedule(name), specification(call.job, options))

    def alert(
        self,
        name: str,
        *,
        queue: str | None = None,
        depth: int | None = None,
        oldest: Duration | None = None,
        dead: int | None = None,
        clear: int = CLEAR,
    ) -> None:
        """Declare an alert: raised when a queue (or with None all together) has more than `depth` ready jobs,
        a job that has waited for longer than `oldest`, or more than `dead` dead letters. It is cleared at
        `clear` percent of that. Workers log it, and `windlass check` tells.
        """
        if queue is not None:
            self._use_queue(check_queue(queue))
        age = None if oldest is None else micros(oldest, name="oldest")
        alert = check_alert(Alert(queue=queue, depth=depth, oldest=age, dead=dead, clear=clear))
        self._declared.put(Subject(Kind.ALERT, check_schedule(name)), encode_alert(alert))

    def _use_queue(self, name: str) -> None:
        """Make sure that a queue is declared, without saying anything of it."""
        if not self._declared.has_queue(name):
            self._declared.put(Subject(Kind.QUEUE, name), QueueSettings())

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that this app declares, the default one first: what its workers serve unless told
        otherwise.
        """
        return self._declared.queues

    async def declare(self, broker: Broker) -> None:
        """Tell a broker of the queues, lanes and schedules of this app."""
        await self._declared.tell(broker, since=0)

    def worker(
        self,
        *,
        concurrency: int = 16,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        grace: Duration | None = None,
    ) -> "EmbeddedWorker":
        """A worker inside this process, for applications and scripts: `async with app.worker(): ...`.

        It is left when its jobs have ended, or their grace. `windlass worker` promises more: see
        `windlass.worker.embedded`.
        """
        from windlass.worker.embedded import EmbeddedWorker  # noqa: PLC0415 - producers need none of it
        from windlass.worker.options import WorkerOptions  # noqa: PLC0415

        options = WorkerOptions(
            concurrency=concurrency,
            queues=tuple(queues),
            groups=tuple(groups),
            grace=None if grace is None else micros(grace, name="grace"),
        )
        return EmbeddedWorker(
            self, options, open_broker=self.connection.broker, close_broker=self.connection.leave
        )

    def observe(self, observer: Observer) -> Observer:
        """Call a function with every verb that the store was asked, from now on; see `broker.observed`."""
        if not callable(observer):
            raise InvalidOption(f"an observer is a function of an Observation, not {shown(observer)}")
        self.connection.observe(observer)
        return observer

    # --- sending --------------------------------------------------------------------------------------------

    def enqueue_many(self, calls: Iterable[Call[T]], *, connection: object = None) -> list[Job[T]]:
        """Send many calls, in groups of up to 1,000, each accepted whole or not at all.

        Calls are made and sent as they come. Should one be refused, those of the groups before it are kept,
        and the error says how many. With a `connection` of yours all of them come with its commit.
        """
        jobs: list[Job[T]] = []
        with _Counted(jobs):
            for group in _groups(calls):
                jobs += self.send(group, connection)
        return jobs

    async def aenqueue_many(self, calls: Iterable[Call[T]], *, connection: object = None) -> list[Job[T]]:
        """Async twin of `enqueue_many`."""
        jobs: list[Job[T]] = []
        with _Counted(jobs):
            for group in _groups(calls):
                jobs += await self.asend(group, connection)
        return jobs

    def send(self, calls: Sequence[Call[T]], connection: object = None) -> list[Job[T]]:
        """Send one group from blocking code."""
        group = [_jobs(calls)]
        if connection is not None:
            return self._handles(calls, self.connection.enqueue_on(connection, group)[0], None)
        sent = time.monotonic()
        return self._handles(calls, self.connection.enqueue(group)[0], sent)

    async def asend(self, calls: Sequence[Call[T]], connection: object = None) -> list[Job[T]]:
        """Send one group from async code."""
        group = [_jobs(calls)]
        if connection is not None:
            return self._handles(calls, (await self.connection.aenqueue_on(connection, group))[0], None)
        sent = time.monotonic()
        return self._handles(calls, (await self.connection.send(group))[0], sent)

    async def asend_one(self, call: Call[T], connection: object = None) -> Job[T]:
        """Send one call from async code, together with those of other callers."""
        if connection is not None:
            return (await self.asend([call], connection))[0]
        sent = time.monotonic()
        return self._handles([call], await self.connection.aenqueue(_jobs([call])), sent)[0]

    def _handles(
        self, calls: Sequence[Call[T]], receipts: Sequence[Receipt], sent: float | None
    ) -> list[Job[T]]:
        """`sent` is None for what exists only when a transaction commits."""
        if any(receipt.status is Status.REFUSED for receipt in receipts):
            raise EnqueueRefused(_why(receipts))
        return [
            Job(
                self,
                receipt.of or receipt.job,
                None if call.task.options.external else call.task.signature,
                exists=sent is not None,
                created=receipt.status is Status.CREATED,
                # What an id or a key is a duplicate of may have finished long ago.
                sent=None if receipt.status is Status.DUPLICATE else sent,
            )
            for call, receipt in zip(calls, receipts, strict=True)
        ]

    # --- reading --------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job[Any]:
        """The handle of a job by its id."""
        return Job(self, check_job_id(job_id))

    def flow(self, flow: str) -> Flow:
        """The handle of a flow by its name."""
        return Flow(self, check_flow(flow))

    def signature_of(self, task: str) -> Signature | None:
        """The signature of a task that this app has; None for others and for those that live elsewhere."""
        known = self.tasks.get(task)
        return None if known is None or known.options.external else known.signature

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run async code that asks the store, from blocking code."""
        return self.connection.run(work)

    async def broker(self) -> Broker:
        """The broker for the running loop, with everything declared."""
        return await self.connection.broker()

    def close(self) -> None:
        """Close what was opened. The app can be used again: it opens anew."""
        self.connection.shut()

    async def aclose(self) -> None:
        """Async twin of `close`."""
        await self.connection.close()


_LIMITS: tuple[Literal["concurrency", "rate", "lane_concurrency", "lane_rate"], ...] = (
    "concurrency",
    "rate",
    "lane_concurrency",
    "lane_rate",
)


def _groups(calls: Iterable[Call[T]]) -> Iterator[list[Call[T]]]:
    """Calls in groups that a store takes at once."""
    group: list[Call[T]] = []
    size = edges = 0
    for call in calls:
        if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"enqueue_many takes calls, as in send.call(...), not {shown(call)}")
        job = call.job
        size, edges = size + len(job.payload), edges + len(job.after)
        if group and (len(group) == GROUP_JOBS or size > GROUP_BYTES or edges > GROUP_EDGES):
            yield group
            group, size, edges = [], len(job.payload), len(job.after)
        group.append(call)
    if group:
        yield group


def _jobs(calls: Sequence[Call[Any]]) -> list[NewJob]:
    jobs: list[NewJob] = []
    for call in calls:
        if call.task.needs_parents and not call.job.after:
            raise InvalidOption("on_failure needs parents: give after as well, or send the call in a flow")
        jobs.append(call.job)
    return jobs


def _why(receipts: Sequence[Receipt]) -> str:
    """Why a group fell: named by the job that was refused, not by those that fell with it."""
    refused = [receipt for receipt in receipts if receipt.status is Status.REFUSED]
    guilty = next((receipt for receipt in refused if receipt.refusal is not Refusal.NEIGHBOUR), refused[0])
    return guilty.why or f"the store refused job {guilty.job}: {guilty.refusal}"


class _Counted:
    """Adds to an error how much had been accepted before it."""

    def __init__(self, jobs: list[Job[Any]]) -> None:
        self._jobs = jobs

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and self._jobs:
            error.add_note(f"the first {len(self._jobs):,} calls were accepted")
