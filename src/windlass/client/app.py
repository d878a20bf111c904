"""The application: where tasks and queues are declared, and calls are sent."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

from windlass.client.connection import Connection
from windlass.client.handle import Job
from windlass.client.task import Call, P, Run, Sender, Task, TaskOptions
from windlass.clock import Clock
from windlass.config import Config, configure
from windlass.core.duration import Duration, micros
from windlass.core.event import Emit
from windlass.core.ids import JobIds, check_job_id
from windlass.core.job import GROUP_BYTES, GROUP_JOBS, Receipt, Refusal, Status
from windlass.core.limits import Rate, parse_rate
from windlass.core.names import check_app, check_lane, check_queue, check_task
from windlass.core.option import choice, shown, whole
from windlass.core.retry import RetryPolicy
from windlass.core.settings import (
    Declaration,
    Kind,
    LaneSettings,
    QueueSettings,
    Subject,
    check_lane_settings,
    check_queue_settings,
)
from windlass.core.signature import Signature
from windlass.errors import EnqueueRefused, InvalidOption

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
    so an app can
    be imported anywhere. Every keyword has an environment variable: `session_ttl` is `WINDLASS_SESSION_TTL`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "app",
        revision: int = 0,
        namespace: str | None = None,
        beat: Duration | None = None,
        session_ttl: Duration | None = None,
        sweep: Duration | None = None,
        poll_floor: Duration | None = None,
        visibility: Duration | None = None,
        grace: Duration | None = None,
        retention: Duration | None = None,
        result_ttl: Duration | None = None,
        dead_retention: Duration | None = None,
        resend_window: Duration | None = None,
        max_payload: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        given: dict[str, object] = {
            "url": url,
            "namespace": namespace,
            "beat": beat,
            "session_ttl": session_ttl,
            "sweep": sweep,
            "poll_floor": poll_floor,
            "visibility": visibility,
            "grace": grace,
            "retention": retention,
            "result_ttl": result_ttl,
            "dead_retention": dead_retention,
            "resend_window": resend_window,
            "max_payload": max_payload,
        }
        self.name = check_app(name)
        self.revision = whole(revision, name="revision", least=0, most=2**31)
        self.config: Config = configure(given, os.environ)
        self.tasks: dict[str, Sender[..., Any]] = {}
        self.declarations: list[Declaration] = []
        self._queues: set[str] = set()
        self.connection = Connection(self.config, self.declarations, clock)
        self.new_id = JobIds(lambda: time.time_ns() // 1_000_000, os.urandom, lock=threading.Lock)
        _reseed_after_fork(self.new_id)
        self._use_queue("default")

    # --- tasks ----------------------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def task(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        run: Run | None = None,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        priority: int | None = None,
        expires: Duration | None = None,
        revision: int = 0,
        keep_result: bool = True,
    ) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:  # pyright: ignore[reportInconsistentOverload]
        """Register a function as a task: `@app.task` or `@app.task(queue="mail", retry=..., timeout=60)`.

        `concurrency` and `rate` give the task a queue of its own, named after it.
        """

        def registered(function: Callable[..., Any]) -> Task[..., Any, Any]:
            return self._register(function, **options)

        return registered if function is None else registered(function)

    def external(self, name: str, *, queue: str = "default", **calls: Any) -> Sender[..., Any]:
        """Name a task that lives elsewhere: in another program, or behind the HTTP API. Its arguments are not
        checked.
        """
        signature = Signature.untyped(check_task(name), max_payload=self.config.max_payload)
        options = TaskOptions(queue=check_queue(queue), external=True, calls=calls)
        return self._add(Sender[..., Any](self, name, signature, options, {}))

    def _register(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        run: Run | None = None,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        priority: int | None = None,
        expires: Duration | None = None,
        revision: int = 0,
        keep_result: bool = True,
    ) -> Task[..., Any, Any]:
        if not callable(function):
            raise InvalidOption(f"a task is a function, not {shown(function)}")
        name = check_task(name or function.__name__)
        if concurrency is not None or rate is not None:
            if queue is not None:
                raise InvalidOption(
                    f'task "{name}": concurrency and rate give it a queue of its own; '
                    f'set them on queue "{queue}" instead'
                )
            queue = name
            self.queue(queue, concurrency=concurrency, rate=rate)
        signature = Signature(
            function, name=name, max_payload=self.config.max_payload, keep_result=keep_result
        )
        calls = {
            key: value for key, value in (("priority", priority), ("expires", expires)) if value is not None
        }
        if run is not None:
            choice(run, name="run", among=("loop", "thread", "process", "inline"))
        if retry is not None and not isinstance(retry, RetryPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"retry must be a RetryPolicy, not {shown(retry)}")
        options = TaskOptions(
            queue=check_queue(queue or "default"),
            retry=retry or RetryPolicy(),
            timeout=None if timeout is None else micros(timeout, name="timeout"),
            run=run,
            revision=whole(revision, name="revision", least=0, most=2**31),
            calls=calls,
        )
        return self._add(Task(self, function, name, signature, options))

    def _add(self, task: _S) -> _S:
        if task.name in self.tasks:
            raise InvalidOption(f'there are two tasks called "{task.name}"; give one of them another name=')
        self.tasks[task.name] = task
        if not task.options.external:
            self._use_queue(task.options.queue)
        return task

    # --- queues and lanes -----------------------------------------------------------------------------------

    def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        lane_concurrency: int | None = None,
        lane_rate: str | Rate | None = None,
        order: Literal["band", "lane"] | None = None,
        bands: Mapping[int, int] | None = None,
        age_step: Duration | None = None,
        sequence: bool | None = None,
        emit: Literal["none", "final", "all"] | None = None,
        retention: Duration | None = None,
        retention_count: int | None = None,
        result_ttl: Duration | None = None,
        dead_retention: Duration | None = None,
    ) -> None:
        """Declare a queue: its limits, order, and how long its finished jobs are kept."""
        durations = {
            "age_step": age_step,
            "retention": retention,
            "result_ttl": result_ttl,
            "dead_retention": dead_retention,
        }
        said: dict[str, Any] = {
            "concurrency": concurrency,
            "rate": _rate(rate),
            "lane_concurrency": lane_concurrency,
            "lane_rate": _rate(lane_rate),
            "order": None if order is None else choice(order, name="order", among=("band", "lane")),
            "bands": bands,
            "sequence": sequence,
            "emit": None if emit is None else Emit(choice(emit, name="emit", among=("none", "final", "all"))),
            "retention_count": retention_count,
            **{key: None if value is None else micros(value, name=key) for key, value in durations.items()},
        }
        settings = QueueSettings(**{key: value for key, value in said.items() if value is not None})
        self._declare(Subject(Kind.QUEUE, check_queue(name)), check_queue_settings(settings))

    def lane(
        self,
        queue: str,
        lane: str,
        *,
        weight: int | None = None,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
    ) -> None:
        """Declare one lane of a queue: its share, and limits that differ from the queue's for its lanes."""
        said: dict[str, Any] = {"weight": weight, "concurrency": concurrency, "rate": _rate(rate)}
        settings = LaneSettings(**{key: value for key, value in said.items() if value is not None})
        self._use_queue(check_queue(queue))
        self._declare(Subject(Kind.LANE, queue, check_lane(lane)), check_lane_settings(settings))

    def _use_queue(self, name: str) -> None:
        """Make sure that a queue is declared, without saying anything of it."""
        if name not in self._queues:
            self._declare(Subject(Kind.QUEUE, name), QueueSettings())

    def _declare(self, subject: Subject, body: QueueSettings | LaneSettings) -> None:
        declaration = Declaration(subject=subject, body=body, app=self.name, revision=self.revision)
        self.declarations.append(declaration)
        if subject.kind is Kind.QUEUE:
            self._queues.add(subject.name)

    # --- sending --------------------------------------------------------------------------------------------

    def enqueue_many(self, calls: Iterable[Call[T]]) -> list[Job[T]]:
        """Send many calls, in groups of up to 1,000, each accepted whole or not at all."""
        jobs: list[Job[T]] = []
        for group in _groups(calls):
            jobs += self.send(group)
        return jobs

    async def aenqueue_many(self, calls: Iterable[Call[T]]) -> list[Job[T]]:
        """Async twin of `enqueue_many`."""
        jobs: list[Job[T]] = []
        for group in _groups(calls):
            receipts = await self.connection.send([[call.job for call in group]])
            jobs += _handles(group, receipts[0])
        return jobs

    def send(self, calls: Sequence[Call[T]]) -> list[Job[T]]:
        """Send one group from blocking code."""
        return _handles(calls, self.connection.enqueue([[call.job for call in calls]])[0])

    async def asend_one(self, call: Call[T]) -> Job[T]:
        """Send one call from async code, together with those of other callers."""
        return _handles([call], await self.connection.aenqueue([call.job]))[0]

    # --- reading --------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job[Any]:
        """The handle of a job by its id."""
        return Job(self, check_job_id(job_id))

    def decode_result(self, signature: Signature | None, document: bytes) -> Any:
        """The value of a result: as its task's annotation says, or plain JSON where the task is not known."""
        return (signature or Signature.untyped("result")).decode_result(document)

    def close(self) -> None:
        """Close what was opened. The app can be used again: it opens anew."""
        self.connection.shut()

    async def aclose(self) -> None:
        """Async twin of `close`."""
        await self.connection.close()


def _groups(calls: Iterable[Call[T]]) -> Iterator[list[Call[T]]]:
    """Calls in groups that a store takes at once."""
    group: list[Call[T]] = []
    size = 0
    for call in calls:
        if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"enqueue_many takes calls, as in send.call(...), not {shown(call)}")
        size += len(call.job.payload)
        if group and (len(group) == GROUP_JOBS or size > GROUP_BYTES):
            yield group
            group, size = [], len(call.job.payload)
        group.append(call)
    if group:
        yield group


def _handles(calls: Sequence[Call[T]], receipts: Sequence[Receipt]) -> list[Job[T]]:
    refused = [receipt for receipt in receipts if receipt.status is Status.REFUSED]
    if refused:
        # The group fell with one of its jobs: name that one, not those that fell with it.
        guilty = next(
            (receipt for receipt in refused if receipt.refusal is not Refusal.NEIGHBOUR), refused[0]
        )
        raise EnqueueRefused(guilty.why)
    return [
        call.task.handle(receipt.of or receipt.job, accepted=True, created=receipt.status is Status.CREATED)
        for call, receipt in zip(calls, receipts, strict=True)
    ]


def _rate(rate: str | Rate | None) -> Rate | None:
    return parse_rate(rate) if isinstance(rate, str) else rate


def _reseed_after_fork(ids: JobIds) -> None:
    # A weak reference: the hook lives as long as the process, an app need not.
    known = weakref.ref(ids)

    def reseed() -> None:
        if (made := known()) is not None:
            made.reseed()

    os.register_at_fork(after_in_child=reseed)
