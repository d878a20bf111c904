"""What an app defines: tasks, queues, lanes, schedules and alerts."""

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack, cast, overload

import msgspec

from windlass.broker.contract import Broker
from windlass.client.around import Around, Lifespan
from windlass.client.built_in import built_in
from windlass.client.callbacks import check_callback, check_webhooks
from windlass.client.function import check_function, name_of
from windlass.client.namespaces import Namespaces
from windlass.client.options import CallOptions, check_known
from windlass.client.schedule import ScheduleOptions, specification
from windlass.client.settings import LIMITS, LaneOptions, QueueOptions, flag, lane_settings, queue_settings
from windlass.client.task import Call, P, Sender, Task, TaskKeywords, TaskOptions, private_names, task_options
from windlass.clock import Clock
from windlass.config import Config
from windlass.core.alert import CLEAR, Alert, check_alert, encode_alert
from windlass.core.duration import Duration, micros
from windlass.core.form import Form
from windlass.core.forms import Forms
from windlass.core.names import (
    check_lane,
    check_own_queue,
    check_own_task,
    check_queue,
    check_schedule,
    check_task,
)
from windlass.core.option import shown
from windlass.core.settings import Kind, QueueSettings, Subject
from windlass.core.signature import Signature
from windlass.core.webhook import CALLBACKS, Hook
from windlass.errors import InvalidOption
from windlass.values.configured import check_inside

if TYPE_CHECKING:
    from windlass.client.app import Windlass

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


class Definitions(Around):
    """The definitions of an app, in all its namespaces."""

    def __init__(
        self,
        config: Config,
        *,
        name: str,
        revision: int,
        clock: Clock | None,
        lifespan: Lifespan | None = None,
    ) -> None:
        super().__init__(config, name=name, revision=revision, clock=clock, lifespan=lifespan)
        self.tasks: dict[str, Sender[..., Any]] = {}
        self.celery_tasks: set[str] = set()
        """Those whose jobs are handed to Celery workers."""
        self.forms = Forms()
        """The types that msgspec does not know, and how their values are written."""
        self._owned: set[str] = set()
        """Queues that belong to the task of the same name."""
        self._built_in = built_in(config)
        self._use_queue("default")  # the first one: workers ask for it first
        self._use_webhooks()

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

        With a limit (`concurrency`, `rate`, `lane_concurrency`, `lane_rate`) the task gets its own queue,
        named after the task. `namespace` is the namespace of its queue.
        """
        check_known(options, TaskKeywords)

        def registered(function: object) -> Task[..., Any, Any]:
            return self._register(function, cast("TaskKeywords", options))

        return registered if function is None else registered(function)

    def external(self, name: str, **options: Unpack[CallOptions]) -> Sender[..., Any]:
        """Name a task whose code is in another program, or in a worker that uses the HTTP API. Windlass does
        not check its arguments. The other program declares its queue; for HTTP workers declare it here with
        `app.queue()`. The workers of this app do not serve a queue that has only such tasks.
        """
        check_known(options, CallOptions)
        signature = Signature.untyped(check_own_task(name), max_payload=self.config.largest)
        queue = options.get("queue", "default")
        kept = TaskOptions(external=True, queue=queue)
        return self._add(
            Sender[..., Any](cast("Windlass", self.place_of(queue)), name, signature, kept, options)
        )

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
            function,
            name=name,
            max_payload=self.config.largest,
            keep_result=keep_result,
            forms=self.forms,
            private=private_names(options.get("private", ())),
        )
        # Everything is checked before anything is declared.
        place = self._place(queue, options.get("namespace"))
        task: Task[..., Any, Any] = Task(
            cast("Windlass", place), function, name, signature, task_options(queue, options, signature)
        )
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
        jobs are kept. If it is declared twice, the later declaration counts.

        A queue in another `namespace` of the same store scales separately. Declare it before the tasks that
        use it.
        """
        settings = queue_settings(options)
        if check_own_queue(name) in self._owned:
            raise InvalidOption(f'queue "{name}" belongs to task "{name}"; set its limits there')
        place = self._places[name] = self._place(name, namespace)
        place._declared.weigh(name, weight)  # noqa: SLF001 - one of our own
        place._declared.put(Subject(Kind.QUEUE, name), settings)  # noqa: SLF001 - one of our own

    def lane(self, queue: str, lane: str, **options: Unpack[LaneOptions]) -> None:
        """Declare one lane of a queue: its share, and its own limits instead of those that the queue sets for
        lanes.
        """
        settings = lane_settings(options)
        subject = Subject(Kind.LANE, check_own_queue(queue), check_lane(lane))
        self._use_queue(queue)._declared.put(subject, settings)  # noqa: SLF001 - one of our own

    def schedule(self, name: str, call: Call[Any], **options: Unpack[ScheduleOptions]) -> None:
        """Declare a schedule: `app.schedule("nightly", send.call("ops"), cron="0 3 * * *", tz="Asia/Tokyo")`.

        Give one of `cron`, `every` (a duration) or `at` (a datetime): the times at which the call is
        enqueued.
        """
        if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"a schedule takes a call, as in send.call(...), not {shown(call)}")
        check_inside(call.payload, self.config.max_payload, f"{call.task.name}: the payload of a schedule")
        place: Namespaces = call.task.app if call.task.app.home is self.home else self
        # It makes its jobs in one step, so it lives where they do.
        place._declared.put_schedule(  # noqa: SLF001 - one of our own
            check_schedule(name), specification(call.job, options)
        )

    def alert(
        self,
        name: str,
        *,
        queue: str | None = None,
        task: str | None = None,
        depth: int | None = None,
        oldest: Duration | None = None,
        dead: int | None = None,
        intake: str | None = None,
        relay: str | None = None,
        lag: int | None = None,
        behind: Duration | None = None,
        stopped: bool = False,
        clear: int = CLEAR,
        webhook: str | None = None,
    ) -> None:
        """Declare an alert on a queue (None: on all queues together), on an intake or on a relay. It is
        raised when the queue has more than `depth` ready jobs or more than `dead` dead letters (with `task`,
        only the jobs of that task count), or when a ready job has waited for longer than `oldest`. For
        intakes it is raised when more than `lag` messages wait, and for relays when a relay is `behind` by
        more than this time. With `stopped` it is raised when an intake waits for an operator, or when no
        process runs an intake or a relay. It is cleared at `clear` percent of the thresholds. Workers log it,
        `windlass check` reports it, and the URL `webhook` gets a message.
        """
        if webhook is not None:
            check_webhooks(self.config, "an alert with webhook=")
        place = self._place_of_bridge(intake, relay) if queue is None else self._use_queue(check_queue(queue))
        alert = check_alert(
            Alert(
                queue=queue,
                task=None if task is None else check_task(task),
                intake=intake,
                relay=relay,
                depth=depth,
                oldest=None if oldest is None else micros(oldest, name="oldest"),
                dead=dead,
                lag=lag,
                behind=None if behind is None else micros(behind, name="behind"),
                stopped=stopped,
                clear=clear,
                webhook=webhook,
            )
        )
        document = Subject(Kind.ALERT, check_schedule(name))
        place._declared.put(document, encode_alert(alert))  # noqa: SLF001 - one of our own

    def _place_of_bridge(self, intake: str | None, relay: str | None) -> Namespaces:
        """Where an intake or a relay is: here, unless another namespace of the app has it."""
        places = [
            place for place in self.namespaces.values() if intake in place.intakes or relay in place.relays
        ]
        return places[0] if places else self

    def expect_callbacks(self, queue: str, url: str) -> None:
        """Declare that jobs of a queue may name a callback URL, which Windlass calls when the job ends."""
        check_callback(self.config, url)
        if not self._declared.emits(queue):
            # Not of any queue that a caller of the API may name: each is kept, in this process and the store.
            raise InvalidOption(
                f'callback= needs the events of queue "{queue}", which writes none here: declare it with '
                f'app.queue("{queue}"), and without emit="none"'
            )
        self._declared.put(Subject(Kind.WEBHOOK, CALLBACKS + queue), msgspec.json.encode(Hook(queue=queue)))

    def _use_queue(self, name: str) -> Self:
        """Make sure that a queue is declared, without saying anything of it; where it is."""
        place = self._places.setdefault(name, self.home)
        declared = place._declared  # noqa: SLF001 - one of our own
        if not declared.has_queue(name):
            check_own_queue(name)
            declared.put(Subject(Kind.QUEUE, name), QueueSettings())
        return place

    # --- what was defined -----------------------------------------------------------------------------------

    @property
    def runnable(self) -> dict[str, Any]:
        """What workers of this app run: its tasks with what is around them, and Windlass's own, which nobody
        can enqueue.
        """
        own = {name: self._around(task) for name, task in self.tasks.items() if not task.options.external}
        return {**own, **self._built_in}

    def _around(self, task: Any) -> Any:
        middleware = self.surroundings.middleware
        if not (middleware or task.signature.injected):
            return task
        from windlass.worker.around import surrounded  # noqa: PLC0415 - producers need none of it

        return surrounded(task, middleware)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that this app declares in this namespace, the default one first. Its workers serve them
        by default. Queues that have only `external` tasks are not in the list.
        """
        return tuple(self.weights)

    @property
    def weights(self) -> dict[str, int]:
        """The same queues with their weights, for a worker that serves all queues."""
        tasks = self.tasks.values()
        own = {"default", *(task.options.queue for task in tasks if not task.options.external)}
        elsewhere = {task.options.queue for task in tasks if task.options.external} - own
        return {name: weight for name, weight in self._declared.weights.items() if name not in elsewhere}

    async def declare(self, broker: Broker) -> None:
        """Tell a broker of the queues, lanes and schedules of this app in this namespace."""
        await self._declared.tell(broker, since=0)

    def signature_of(self, task: str) -> Signature | None:
        """The signature of a task that this app has; None for others and for those that live elsewhere."""
        known = self._built_in.get(task) or self.tasks.get(task)
        return None if known is None or known.options.external else known.signature

    # --- types ----------------------------------------------------------------------------------------------

    # The last of all: inside of this class `type` is this method from here on.
    def type(
        self,
        kind: type[T],
        /,
        *,
        encode: Callable[[T], object],
        decode: Callable[[Any], T],
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Let tasks that you register after this call take and return values of your own class:
        `app.type(Money, encode=str, decode=Money.parse)`.

        `encode` converts a value of the class into plain values: texts, numbers, lists, dicts. `decode`
        converts them back. If `decode` raises, Windlass refuses the value. `schema` is the JSON Schema of the
        plain values, for the registry of tasks.
        """
        name = getattr(kind, "__qualname__", kind)  # what is no class is refused below
        shown_as = {"description": f"{name}, as this app writes it"} if schema is None else schema
        self.forms.add(kind, Form(encode, decode, lambda: shown_as))
