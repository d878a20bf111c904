"""What an app says of message brokers: where jobs are taken from, and where the ends of jobs are told."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, cast

import msgspec

from windlass.bridges.addresses import Address, address_of
from windlass.bridges.declared import Intake, Relay
from windlass.bridges.fields import is_path
from windlass.bridges.making import mapper_of, no_ids
from windlass.client.definitions import Definitions
from windlass.client.namespaces import Namespaces
from windlass.client.options import check_known
from windlass.client.settings import flag
from windlass.client.task import Sender, Task, TaskKeywords
from windlass.core.duration import Duration, micros
from windlass.core.intake import FORMATS, FRONT, Fields, IntakeSettings
from windlass.core.intake import declared_as as intake_document
from windlass.core.names import check_own_task, check_queue, check_schedule
from windlass.core.option import choice, shown, whole
from windlass.core.relay import ENDS, RelaySettings, check_to
from windlass.core.relay import declared_as as relay_document
from windlass.core.retry import RetryPolicy
from windlass.core.units import MAX_INTEGER
from windlass.errors import InvalidOption

End = Literal["done", "dead", "cancelled"]

CELERY_RETRY = RetryPolicy(max_attempts=1_000, base=1, cap=60, jitter="equal")
"""Eight hours of an outage of the message broker at the least."""
CELERY_TIMEOUT = 60
"""Seconds for a try; message brokers answer sooner, or not at all."""


class IntakeOptions(TypedDict, total=False):
    """What `app.intake(...)` takes besides its URL.

    `queue`, `lane`, `priority`, `key`, `delay` and the values of `headers` are fixed, or paths into a message
    such as "headers.tenant", "body.order.id" and "message.key"; see `windlass.bridges.fields`.
    """

    task: Sender[..., Any] | str
    tasks: Sequence[Sender[..., Any] | str]
    queue: str
    lane: str
    priority: int | str
    key: str
    delay: float | str
    headers: Mapping[str, str]
    arguments: str | Mapping[str, str]
    format: Literal["messages", "celery"]
    name: str
    start: Literal["first", "last"]
    window: Duration
    tombstones: Literal["dead", "skip"]
    backlog: int


class RelayOptions(TypedDict, total=False):
    """What `app.relay(...)` takes besides its URL."""

    queues: Sequence[str]
    tasks: Sequence[Sender[..., Any] | str]
    on: End | Sequence[End]
    to: str
    payload: bool
    name: str
    start: Literal["first", "last"]


class Bridges(Definitions):
    """The intakes and the relays of an app, and its tasks that Celery runs."""

    def intake(self, url: str, **options: Unpack[IntakeOptions]) -> None:
        """Take messages from a message broker and make jobs of them:
        `app.intake("kafka://host:9092/orders", task=ship, lane="headers.tenant")`.

        The JSON object in the body of a message has the arguments of `task`. With `tasks` each message names
        one of them: `task="headers.task"`. Workers run the intake; `windlass intake` runs it without jobs.
        """
        check_known(options, IntakeOptions)
        address = address_of(url)
        settings = _intake_settings(address, options)
        if settings.format == "celery" and (round_about := self.celery_tasks.intersection(settings.tasks)):
            raise InvalidOption(
                f'intake "{settings.name}": jobs of "{min(round_about)}" go to Celery, and would come back'
            )
        unknown = [name for name in settings.tasks if name not in self.tasks]
        if unknown:
            raise InvalidOption(f'intake "{settings.name}": there is no task "{unknown[0]}" of this app')
        place = self._one_place(
            f'intake "{settings.name}"', [self.tasks[name].options.queue for name in settings.tasks]
        )
        if not is_path(settings.fields.queue) and settings.fields.queue:
            self._use_queue(settings.fields.queue)
        intake = Intake(settings, address)
        # It refuses settings that have no meaning.
        mapper_of(intake, self.tasks, no_ids, namespace=place.config.namespace, keyed=False, now=lambda: 0)
        if settings.name in place.intakes or settings.name == FRONT:
            raise InvalidOption(
                f'there are two intakes called "{settings.name}"; give one of them another name='
            )
        place.intakes[settings.name] = intake
        place._declared.put(  # noqa: SLF001 - one of our own
            intake_document(settings.name), msgspec.json.encode(settings)
        )

    def relay(self, url: str, **options: Unpack[RelayOptions]) -> None:
        """Send messages to a message broker when jobs end:
        `app.relay("amqp://host/exchange?key=jobs.{queue}.{state}", queues=["mail"], on="dead")`.

        Each message has its own id, which is the same for every try. Each message arrives at least once.
        """
        check_known(options, RelayOptions)
        address = address_of(url)
        settings = _relay_settings(address, options)
        place = self._one_place(f'relay "{settings.name}"', settings.queues)
        if settings.name in place.relays:
            raise InvalidOption(
                f'there are two relays called "{settings.name}"; give one of them another name='
            )
        place.relays[settings.name] = Relay(settings, address)
        place._read_events()  # noqa: SLF001 - one of our own
        place._declared.put(  # noqa: SLF001 - one of our own
            relay_document(settings.name), msgspec.json.encode(settings)
        )

    def _open_front(self) -> None:
        """Declare the intake that takes what this app's producers send through its front door."""
        if self.config.front is None:
            return
        address = address_of(self.config.front)
        settings = IntakeSettings(name=FRONT, url=address.shown, format=FRONT)
        self.intakes[FRONT] = Intake(settings, address)
        self._declared.put(intake_document(FRONT), msgspec.json.encode(settings))

    def celery_task(self, task: str, url: str, /, **options: Unpack[TaskKeywords]) -> Task[..., Any, None]:
        """Name a task that Celery workers run: `add = app.celery_task("proj.tasks.add", "amqp://host/celery")`.

        Windlass queues its jobs like any others, with lanes, limits and schedules. A run publishes a Celery
        message (protocol 2, JSON) under the id of the job. The job is done when the message broker has
        accepted it.
        """
        address = address_of(url)
        options = {
            "name": task,
            "retry": CELERY_RETRY,
            "timeout": CELERY_TIMEOUT,
            **options,
            "run": "loop",
            "keep_result": False,
        }

        async def publish(*args: Any, **kwargs: Any) -> None:
            from windlass.worker.forwarding import celery_queue, hand_over  # noqa: PLC0415 - producers need none

            await hand_over(celery_queue(address, task), args, kwargs)

        publish.__doc__ = f"Hands its jobs to Celery workers, as {task}, by {address.shown}."
        made = cast("Task[..., Any, None]", self._register(publish, options))
        if not self.celery_tasks:
            self.on_stop(_close_sinks)
        self.celery_tasks.add(made.name)
        return made

    def _one_place(self, what: str, queues: Iterable[str]) -> Namespaces:
        """The one namespace of all these queues: what an intake or a relay writes is in one store."""
        places = {place.config.namespace: place for place in map(self.place_of, queues)}
        if len(places) > 1:
            raise InvalidOption(
                f"{what}: its queues are in several namespaces ({', '.join(places)}): use one for each"
            )
        return next(iter(places.values()), self)


async def _close_sinks() -> None:
    from windlass.worker.forwarding import close_sinks  # noqa: PLC0415 - producers need none

    await close_sinks()


def _intake_settings(address: Address, options: IntakeOptions) -> IntakeSettings:
    named = _names(options.get("tasks", ()), "tasks")
    form = choice(options.get("format", "messages"), name="format", among=FORMATS)
    if form == FRONT:
        raise InvalidOption('format="front" is that of Windlass(front=...), which needs no app.intake()')
    task = options.get("task", "")
    if isinstance(task, Sender):
        task = task.name
    if form == "celery" and task:
        raise InvalidOption('format="celery": the messages name their tasks; list them in tasks=')
    if not is_path(task) and task:
        named = named or (check_own_task(task),)
    if not named or (form == "messages" and not task):
        raise InvalidOption(
            "an intake needs the task of its messages, task=ship, or a list of those that they may name: "
            'tasks=[ship, bill] with task="headers.task"'
        )
    if not is_path(task) and task and task not in named:
        raise InvalidOption(f"task={shown(task)} is not among tasks=")
    fields = Fields(
        task=task,
        headers=dict(options.get("headers", {})),
        **{name: value for name, value in cast("dict[str, Any]", options).items() if name in _FIELDS},
    )
    return IntakeSettings(
        name=check_schedule(options.get("name") or _name_of(address)),
        url=address.shown,
        format=cast("Any", form),
        tasks=named,
        fields=fields,
        start=cast("Any", choice(options.get("start", "first"), name="start", among=("first", "last"))),
        window=micros(options["window"], name="window") if "window" in options else None,
        tombstones=cast(
            "Any", choice(options.get("tombstones", "dead"), name="tombstones", among=("dead", "skip"))
        ),
        backlog=whole(options.get("backlog", 10_000), name="backlog", least=1, most=MAX_INTEGER),
    )


_FIELDS = ("queue", "lane", "priority", "key", "delay", "arguments")


def _relay_settings(address: Address, options: RelayOptions) -> RelaySettings:
    said = options.get("on", "dead")
    given: Sequence[object] = [said] if isinstance(said, str) else list(said)
    ends = tuple(dict.fromkeys(choice(end, name="on", among=ENDS) for end in given))
    if not ends:
        raise InvalidOption('on= names no end: "done", "dead", "cancelled"')
    return RelaySettings(
        name=check_schedule(options.get("name") or _name_of(address)),
        url=address.shown,
        queues=tuple(check_queue(queue) for queue in options.get("queues", ())),
        tasks=_names(options.get("tasks", ()), "tasks"),
        on=cast("Any", ends),
        to=check_to(options.get("to", address.options.get("key", ""))),
        payload=flag(options.get("payload", True), name="payload"),
        start=cast("Any", choice(options.get("start", "first"), name="start", among=("first", "last"))),
    )


def _names(tasks: object, option: str) -> tuple[str, ...]:
    if isinstance(tasks, str) or not isinstance(tasks, Iterable):
        raise InvalidOption(f"{option} must be a list of tasks, not {shown(tasks)}")
    given = cast("Iterable[object]", tasks)
    return tuple(
        dict.fromkeys(check_own_task(each.name if isinstance(each, Sender) else each) for each in given)
    )


def _name_of(address: Address) -> str:
    """The name of an intake or a relay that was given none: what its URL names."""
    path = [part for part in address.path if part]
    if named := address.options.get("list"):
        return named  # of Redis, whose path is the number of a database
    if not path and not address.options:
        raise InvalidOption(f"{address.shown} names nothing to read from or to write to")
    return path[-1] if path else next(iter(address.options.values()))
