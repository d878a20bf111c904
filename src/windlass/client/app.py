"""The application: where tasks and queues are declared, and calls are sent."""

import copy
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from windlass.broker.contract import Broker
from windlass.broker.observed import Observer
from windlass.broker.registry import beside
from windlass.client.built_in import built_in
from windlass.client.callbacks import check_callback, check_webhooks
from windlass.client.connection import Connection
from windlass.client.declared import Declared
from windlass.client.elsewhere import found_in, namespace_of
from windlass.client.flow_handle import Flow
from windlass.client.function import check_function, name_of
from windlass.client.handle import Job
from windlass.client.options import CallOptions, check_known
from windlass.client.schedule import ScheduleOptions, specification
from windlass.client.sending import Accepted, handle_of, handles_of, in_groups, jobs_of, send_alike
from windlass.client.settings import LIMITS, LaneOptions, QueueOptions, flag, lane_settings, queue_settings
from windlass.client.task import Call, P, Sender, Task, TaskKeywords, TaskOptions, task_options
from windlass.clock import Clock
from windlass.config import Config, Settings, configure
from windlass.core.alert import CLEAR, Alert, check_alert, encode_alert
from windlass.core.duration import Duration, micros
from windlass.core.event import Emit
from windlass.core.ids import JobIds, check_job_id, namespace_tag
from windlass.core.names import (
    check_app,
    check_flow,
    check_lane,
    check_namespace,
    check_own_queue,
    check_own_task,
    check_queue,
    check_schedule,
)
from windlass.core.option import shown, whole
from windlass.core.settings import Kind, QueueSettings, Subject
from windlass.core.signature import Signature
from windlass.core.units import JobId
from windlass.core.webhook import CALLBACKS, DELIVERIES, Hook
from windlass.core.webhook import QUEUE as WEBHOOKS
from windlass.errors import InvalidOption, JobNotFound
from windlass.forks import renew_after_fork
from windlass.observe.traces import active as traced
from windlass.observe.traces import sending

if TYPE_CHECKING:
    from windlass.worker.embedded import EmbeddedWorker
    from windlass.worker.several import SeveralWorkers

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
        self.tasks: dict[str, Sender[..., Any]] = {}
        self._owned: set[str] = set()
        self._clock = clock
        self._settle(configure({"url": url, **settings}, os.environ))
        self._built_in = built_in(self.config)
        self.home: Windlass = self
        """The app as it was made. What it has in other namespaces are branches, which share its tasks."""
        self.namespaces: dict[str, Windlass] = {self.config.namespace: self}
        """This app in each of its namespaces, its own first."""
        self._places: dict[str, Windlass] = {}
        """Where the queues are that were named."""
        self._use_queue("default")
        if self.config.webhooks:
            self._declared.put(Subject(Kind.QUEUE, WEBHOOKS), DELIVERIES)

    def _settle(self, config: Config) -> None:
        """Make what an app has of its own in each namespace."""
        self.config: Config = config
        read = config.history is not None or config.webhooks
        self._declared = Declared(self.name, self.revision, emit=Emit.FINAL if read else None)
        self.connection = Connection(config, self._declared, self._clock)
        self.new_id = JobIds(
            lambda: time.time_ns() // 1_000_000,
            os.urandom,
            lock=threading.RLock,
            tag=namespace_tag(config.namespace),
        )
        renew_after_fork(self)

    def renew(self) -> None:
        """Draw other ids than the parent, in the child of a fork."""
        self.new_id.reseed()

    # --- namespaces -----------------------------------------------------------------------------------------

    def within(self, namespace: str) -> "Windlass":
        """The app in another of its namespaces: its jobs, flows, worker and store there."""
        found = self.namespaces.get(namespace)
        if found is None:
            raise InvalidOption(
                f"no queue of this app is in namespace {shown(namespace)}; its namespaces: "
                f"{', '.join(self.namespaces)}; one more comes with app.queue(..., namespace=...)"
            )
        return found

    def place_of(self, queue: str) -> "Windlass":
        """The app in the namespace of a queue; its own for a queue that it never named."""
        return self._places.get(queue, self.home)

    def _place(self, queue: str, namespace: str | None) -> "Windlass":
        """Where a queue is to be; the place is made if it is new."""
        known = self._places.get(queue)
        if namespace is None:
            return known or self.home
        wanted = self.namespaces.get(check_namespace(namespace))
        if known is not None and known is not wanted:
            raise InvalidOption(
                f'queue "{queue}" is in namespace "{known.config.namespace}" already: say '
                f'namespace="{namespace}" where the queue is first named, or use another name'
            )
        return wanted or self._branch(namespace)

    def _branch(self, namespace: str) -> "Windlass":
        """The same app in one more namespace: tasks are shared, ids, declarations and store its own."""
        config = self.home.config
        branch = copy.copy(self.home)
        branch._settle(  # noqa: SLF001 - one of our own
            msgspec.structs.replace(config, namespace=namespace, url=beside(config.url, namespace))
        )
        for observer in self.home.connection.observers:
            branch.connection.observe(observer)
        if config.webhooks:
            branch._declared.put(Subject(Kind.QUEUE, WEBHOOKS), DELIVERIES)  # noqa: SLF001 - likewise
        self.namespaces[namespace] = branch
        return branch

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
        it. `namespace` is that of its queue.
        """
        check_known(options, TaskKeywords)

        def registered(function: object) -> Task[..., Any, Any]:
            return self._register(function, cast("TaskKeywords", options))

        return registered if function is None else registered(function)

    def external(self, name: str, **options: Unpack[CallOptions]) -> Sender[..., Any]:
        """Name a task that lives elsewhere: in another program, or behind the HTTP API. Its arguments are not
        checked, and its queue is declared there; for workers that speak HTTP declare it here, `app.queue()`.

        A queue of such tasks alone is not served by the workers of this app.
        """
        check_known(options, CallOptions)
        signature = Signature.untyped(check_own_task(name), max_payload=self.config.max_payload)
        queue = options.get("queue", "default")
        kept = TaskOptions(external=True, queue=queue)
        return self._add(Sender[..., Any](self.place_of(queue), name, signature, kept, options))

    def _register(self, given: Any, options: TaskKeywords) -> Task[..., Any, Any]:
        # A task of another app may be one of this app, too: what it wraps is registered.
        function = check_function(given.function if isinstance(given, Task) else given)
        name = name_of(function, options.get("name"))
        self._refuse_second(name)
        limits = cast("QueueOptions", {limit: options.get(limit) for limit in LIMITS})
        settings = queue_settings(limits)
        owns = settings != QueueSettings()
        queue = self._queue_of(name, options, owns=owns)
        keep_result = flag(options.get("keep_result", True), name="keep_result")
        signature = Signature(
            function, name=name, max_payload=self.config.max_payload, keep_result=keep_result
        )
        # Everything is checked before anything is declared.
        place = self._place(queue, options.get("namespace"))
        task: Task[..., Any, Any] = Task(place, function, name, signature, task_options(queue, options))
        self._add(task)
        self._places[queue] = place
        if owns:
            self._owned.add(queue)
            place._declared.put(Subject(Kind.QUEUE, queue), settings)  # noqa: SLF001 - one of our own
        self._use_queue(queue)
        return task

    def _queue_of(self, task: str, options: TaskKeywords, *, owns: bool) -> str:
        """The queue of a task."""
        queue = options.get("queue")
        if not owns:
            if queue is None and options.get("namespace") not in (None, self.home.config.namespace):
                raise InvalidOption(
                    f'task "{task}": a task in another namespace names a queue there, queue=..., or has one '
                    f"of its own by its limits ({', '.join(LIMITS)})"
                )
            return "default" if queue is None else check_own_queue(queue)
        if queue is not None or task in self._places:
            raise InvalidOption(
                f'task "{task}": its limits ({", ".join(LIMITS)}) give it a queue of its own; '
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

    def queue(
        self, name: str, *, namespace: str | None = None, weight: int = 1, **options: Unpack[QueueOptions]
    ) -> None:
        """Declare a queue: its share of a worker (`weight`), its limits, order, and how long its finished
        jobs are kept. Said again, the last word counts.

        A queue in another `namespace` of the same store scales apart from the others; it is declared before
        the tasks that use it.
        """
        settings = queue_settings(options)
        if check_own_queue(name) in self._owned:
            raise InvalidOption(f'queue "{name}" belongs to task "{name}"; set its limits there')
        place = self._places[name] = self._place(name, namespace)
        place._declared.weigh(name, weight)  # noqa: SLF001 - one of our own
        place._declared.put(Subject(Kind.QUEUE, name), settings)  # noqa: SLF001 - one of our own

    def lane(self, queue: str, lane: str, **options: Unpack[LaneOptions]) -> None:
        """Declare one lane of a queue: its share, and limits that differ from the queue's for its lanes."""
        settings = lane_settings(options)
        subject = Subject(Kind.LANE, check_own_queue(queue), check_lane(lane))
        self._use_queue(queue)._declared.put(subject, settings)  # noqa: SLF001 - one of our own

    def schedule(self, name: str, call: Call[Any], **options: Unpack[ScheduleOptions]) -> None:
        """Declare a schedule: `app.schedule("nightly", send.call("ops"), cron="0 3 * * *", tz="Asia/Tokyo")`.

        One of `cron`, `every` (a duration) and `at` (a datetime) says when the call is made.
        """
        if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"a schedule takes a call, as in send.call(...), not {shown(call)}")
        place = call.task.app if call.task.app.home is self.home else self
        # It makes its jobs in one step, so it lives where they do.
        place._declared.put_schedule(  # noqa: SLF001 - one of our own
            check_schedule(name), specification(call.job, options)
        )

    def alert(
        self,
        name: str,
        *,
        queue: str | None = None,
        depth: int | None = None,
        oldest: Duration | None = None,
        dead: int | None = None,
        clear: int = CLEAR,
        webhook: str | None = None,
    ) -> None:
        """Declare an alert: raised when a queue (or with None all together) has more than `depth` ready jobs,
        a job that has waited for longer than `oldest`, or more than `dead` dead letters. It is cleared at
        `clear` percent of that. Workers log it, `windlass check` tells, and the URL `webhook` is told.
        """
        if webhook is not None:
            check_webhooks(self.config, "an alert with webhook=")
        place = self if queue is None else self._use_queue(check_queue(queue))
        age = None if oldest is None else micros(oldest, name="oldest")
        alert = check_alert(
            Alert(queue=queue, depth=depth, oldest=age, dead=dead, clear=clear, webhook=webhook)
        )
        document = Subject(Kind.ALERT, check_schedule(name))
        place._declared.put(document, encode_alert(alert))  # noqa: SLF001 - one of our own

    def expect_callbacks(self, queue: str, url: str) -> None:
        """Let it be known that jobs of a queue may carry a URL of their own, which is told of their ends."""
        check_callback(self.config, url)
        if not self._declared.emits(queue):
            # Not of any queue that a caller of the API may name: each is kept, in this process and the store.
            raise InvalidOption(
                f'callback= needs the events of queue "{queue}", which writes none here: declare it with '
                f'app.queue("{queue}"), and without emit="none"'
            )
        self._declared.put(Subject(Kind.WEBHOOK, CALLBACKS + queue), msgspec.json.encode(Hook(queue=queue)))

    def _use_queue(self, name: str) -> "Windlass":
        """Make sure that a queue is declared, without saying anything of it; where it is."""
        place = self._places.setdefault(name, self.home)
        declared = place._declared  # noqa: SLF001 - one of our own
        if not declared.has_queue(name):
            check_own_queue(name)
            declared.put(Subject(Kind.QUEUE, name), QueueSettings())
        return place

    @property
    def runnable(self) -> dict[str, Any]:
        """What workers of this app run: its tasks, and Windlass's own, which nobody can enqueue."""
        known: dict[str, Any] = {**self.tasks, **self._built_in}
        return {name: task for name, task in known.items() if not task.options.external}

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that this app declares in this namespace, the default one first: what its workers serve
        here unless told otherwise. Not those that have tasks of elsewhere alone (`external`).
        """
        return tuple(self.weights)

    @property
    def weights(self) -> dict[str, int]:
        """The same queues, with their shares of a worker that is not told which queues to serve."""
        tasks = self.tasks.values()
        own = {"default", *(task.options.queue for task in tasks if not task.options.external)}
        elsewhere = {task.options.queue for task in tasks if task.options.external} - own
        return {name: weight for name, weight in self._declared.weights.items() if name not in elsewhere}

    async def declare(self, broker: Broker) -> None:
        """Tell a broker of the queues, lanes and schedules of this app in this namespace."""
        await self._declared.tell(broker, since=0)

    def worker(
        self,
        *,
        concurrency: int = 16,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        grace: Duration | None = None,
    ) -> "EmbeddedWorker | SeveralWorkers":
        """A worker inside this process, for applications and scripts: `async with app.worker(): ...`.

        It is left when its jobs have ended, or their grace. `windlass worker` promises more: see
        `windlass.worker.embedded`. An app with queues in several namespaces gets one for each, with so many
        slots each.
        """
        from windlass.client.working import embedded  # noqa: PLC0415 - producers need none of it

        return embedded(self, concurrency=concurrency, queues=queues, groups=groups, grace=grace)

    def observe(self, observer: Observer) -> Observer:
        """Call a function with every verb that the store was asked, from now on; see `broker.observed`."""
        if not callable(observer):
            raise InvalidOption(f"an observer is a function of an Observation, not {shown(observer)}")
        for place in self.namespaces.values():
            place.connection.observe(observer)
        return observer

    # --- sending --------------------------------------------------------------------------------------------

    def enqueue_many(self, calls: Iterable[Call[T]], *, connection: object = None) -> list[Job[T]]:
        """Send many calls, in groups of up to 1,000, each accepted whole or not at all.

        Calls are made and sent as they come, those of each namespace in groups of their own. Should one be
        refused, those of the groups before it are kept, and the error says how many. With a `connection` of
        yours all of them come with its commit.
        """
        with Accepted[T]() as accepted:
            for place, group in in_groups(self, calls):
                accepted.add(group, place.send(group.calls, connection))
        return accepted.in_order()

    async def aenqueue_many(self, calls: Iterable[Call[T]], *, connection: object = None) -> list[Job[T]]:
        """Async twin of `enqueue_many`."""
        with Accepted[T]() as accepted:
            for place, group in in_groups(self, calls):
                accepted.add(group, await place.asend(group.calls, connection))
        return accepted.in_order()

    def send(self, calls: Sequence[Call[T]], connection: object = None) -> list[Job[T]]:
        """Send one group from blocking code."""
        if connection is None and traced() is None and (handles := send_alike(self, calls)) is not None:
            return handles
        with sending(jobs_of(calls)) as jobs:
            if connection is not None:
                return handles_of(self, calls, self.connection.enqueue_on(connection, [jobs])[0], None)
            sent = time.monotonic()
            return handles_of(self, calls, self.connection.enqueue([jobs])[0], sent)

    def send_one(self, call: Call[T], connection: object = None) -> Job[T]:
        """Send one call from blocking code."""
        if connection is not None or call.task.needs_parents or traced() is not None:
            return self.send([call], connection)[0]
        sent = time.monotonic()
        return handle_of(self, call, self.connection.enqueue([[call.job]])[0][0], sent)

    async def asend(self, calls: Sequence[Call[T]], connection: object = None) -> list[Job[T]]:
        """Send one group from async code."""
        with sending(jobs_of(calls)) as jobs:
            if connection is not None:
                (receipts,) = await self.connection.aenqueue_on(connection, [jobs])
                return handles_of(self, calls, receipts, None)
            sent = time.monotonic()
            return handles_of(self, calls, (await self.connection.send([jobs]))[0], sent)

    async def asend_one(self, call: Call[T], connection: object = None) -> Job[T]:
        """Send one call from async code, together with those of other callers."""
        if connection is not None:
            return (await self.asend([call], connection))[0]
        sent = time.monotonic()
        if not call.task.needs_parents and traced() is None:
            return handle_of(self, call, (await self.connection.aenqueue((call.job,)))[0], sent)
        with sending(jobs_of([call])) as jobs:
            return handle_of(self, call, (await self.connection.aenqueue(jobs))[0], sent)

    # --- reading --------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job[Any]:
        """The handle of a job by its id, whichever namespace of this app it is in."""
        return Job(self._tagged(check_job_id(job_id)), job_id)

    def flow(self, flow: str) -> Flow:
        """The handle of a flow by its name. One that was named by you is looked for in this namespace; see
        `within`.
        """
        return Flow(self._tagged(check_flow(flow)), flow)

    def _tagged(self, name: str) -> "Windlass":
        """Where an id says that it was made."""
        return self.namespaces[namespace_of(name, self.config.namespace, self.namespaces)]

    async def find(self, job: JobId) -> "Windlass | None":
        """The app in that other of its namespaces which keeps a job."""
        for place in self.namespaces.values():
            if place is not self and (await (await place.broker()).get([job]))[0] is not None:
                return place
        return None

    async def not_known(self, job: JobId) -> JobNotFound:
        """The error for a job that the store has no record of here; it names the namespace that has."""
        place = await self.find(job)
        if place is None:
            return await self.connection.not_known(job)
        return found_in(place.config, self.config, job)

    def signature_of(self, task: str) -> Signature | None:
        """The signature of a task that this app has; None for others and for those that live elsewhere."""
        known = self._built_in.get(task) or self.tasks.get(task)
        return None if known is None or known.options.external else known.signature

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run async code that asks the store, from blocking code."""
        return self.connection.run(work)

    async def broker(self) -> Broker:
        """The broker for the running loop, with everything declared."""
        return await self.connection.broker()

    def close(self) -> None:
        """Close what was opened. The app can be used again: it opens anew."""
        for place in self.namespaces.values():
            place.connection.shut()

    async def aclose(self) -> None:
        """Async twin of `close`."""
        for place in self.namespaces.values():
            await place.connection.close()
