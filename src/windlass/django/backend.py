"""A backend for Django's tasks: `django.tasks` (Django 6), or the package `django-tasks` before it.

    TASKS = {"default": {"BACKEND": "windlass.django.backend.TasksBackend", "QUEUES": ["default", "mail"]}}

A task of Django's becomes a task of the project's app, named by the path of its function, when it is defined.
Its arguments are JSON, as Django says, and not compared with annotations.
"""
# pyright: basic, reportMissingTypeStubs=false, reportMissingImports=false

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured

from windlass.client.task import Call, Sender
from windlass.core.ids import check_job_id
from windlass.core.job import JobDetail
from windlass.core.outcome import Error
from windlass.core.retry import RetryPolicy
from windlass.core.state import State
from windlass.core.units import SECOND, Micros
from windlass.django.project import ProjectApp, project_app
from windlass.errors import InvalidOption, InvalidPayload
from windlass.worker.conclude import ends_job
from windlass.worker.current import current
from windlass.worker.failure import as_error
from windlass.worker.run import running

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    from django_tasks import TaskContext, TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

_STATUS: Mapping[State, TaskResultStatus] = {
    State.DONE: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.RUNNING: TaskResultStatus.RUNNING,
}
"""All other states are READY: the job will run."""

_OPTIONS = frozenset(("retry", "timeout", "hard_timeout", "expires"))


class TasksBackend(BaseTaskBackend):  # pyright: ignore[reportGeneralTypeIssues] - either of the two
    """Sends Django's tasks to the project's app, and reads their results."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Django makes one in each thread, so what is known of tasks is the app's."""
        super().__init__(alias, params)
        self._keywords = _keywords(self.options)
        for queue in sorted(self.queues):
            self.app._use_queue(queue)  # noqa: SLF001 - one of our own

    @property
    def app(self) -> ProjectApp:
        """The project's app."""
        return project_app()

    def validate_task(self, task: Task) -> None:
        """Django asks this of every task when it is defined, so it becomes known to workers here."""
        super().validate_task(task)
        name, app = task.module_path, self.app
        with app.registering:
            if name not in app.django_tasks:
                app.task(name=name, queue=task.queue_name, **self._keywords)(self._runner(task))
                app.django_tasks[name] = task

    def _sender(self, task: Task) -> Sender[..., Any]:
        return self.app.tasks[task.module_path]

    # --- sending --------------------------------------------------------------------------------------------

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Send a task. Inside of `atomic()` it is sent when the transaction commits."""
        self.validate_task(task)
        result = self._unsent(task, args, kwargs)
        call = self._call(task, result)
        object.__setattr__(result, "id", call.job.id)
        self.app.send((call,))
        object.__setattr__(result, "enqueued_at", datetime.now(UTC))
        task_enqueued.send(type(self), task_result=result)
        return result

    def _call(self, task: Task, result: TaskResult) -> Call[Any]:
        options: dict[str, Any] = {"queue": task.queue_name, "priority": task.priority}
        if task.run_after is not None:
            after = task.run_after
            options["run_at"] = after if after.tzinfo is not None else after.astimezone()
        return self._sender(task).using(**options).call(*result.args, **result.kwargs)

    def _unsent(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        return TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    # --- reading --------------------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> TaskResult:
        """The result as the store knows it now."""
        return self.app.run(self.aget_result(result_id))

    async def aget_result(self, result_id: str) -> TaskResult:
        """Async twin of `get_result`."""
        try:
            job = check_job_id(result_id)
        except InvalidOption as error:
            raise TaskResultDoesNotExist(result_id) from error
        detail = (await (await self.app.broker()).get([job]))[0]
        task = None if detail is None else self.app.django_tasks.get(detail.task)
        if detail is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        if (values := self.app.values) is not None:
            detail = await values.whole(detail)
        return self._result(task, detail)

    def _result(self, task: Task, detail: JobDetail) -> TaskResult:
        signature = self._sender(task).signature
        args, kwargs = signature.decode(detail.payload) if detail.payload else ((), {})
        asked = self._as_asked(task, detail.queue, detail.priority, _run_after(detail))
        result = self._unsent(asked, args, kwargs)
        starts = [delivery.claimed_at for delivery in detail.deliveries]
        known = {
            "id": detail.id,
            "status": _STATUS.get(detail.state, TaskResultStatus.READY),
            "enqueued_at": _moment(detail.accepted_at),
            "started_at": _moment(starts[0]) if starts else None,
            "last_attempted_at": _moment(starts[-1]) if starts else None,
            "finished_at": None if detail.finished_at is None else _moment(detail.finished_at),
            "errors": [_error(each.error) for each in detail.deliveries if each.error is not None],
            "worker_ids": _workers(detail),
        }
        if detail.result is not None:
            known["_return_value"] = signature.decode_result(detail.result)
        for name, value in known.items():
            object.__setattr__(result, name, value)
        return result

    def _as_asked(self, task: Task, queue: str, priority: int, run_after: datetime | None = None) -> Task:
        """The task with what `using()` has set for this job."""
        try:
            return replace(task, backend=self.alias, queue_name=queue, priority=priority, run_after=run_after)
        except InvalidTask:  # the settings of today do not allow it
            return task

    # --- running --------------------------------------------------------------------------------------------

    def _runner(self, task: Task) -> Any:
        """The function that a worker calls: it gives the context, and tells Django's signals."""
        function = task.func

        def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TaskResult, tuple[Any, ...]]:
            result = self._running(task, args, kwargs)
            task_started.send(type(self), task_result=result)
            return result, (TaskContext(task_result=result), *args) if task.takes_context else args

        if iscoroutinefunction(function):

            @functools.wraps(function)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                result, given = await sync_to_async(begun)(args, kwargs)
                try:
                    value = await function(*given, **kwargs)
                except BaseException as error:
                    await sync_to_async(self._raised)(result, error)
                    raise
                await sync_to_async(self._returned)(result, value)
                return value

            return _untyped(arun)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            result, given = begun(args, kwargs)
            try:
                value = function(*given, **kwargs)
            except BaseException as error:
                self._raised(result, error)
                raise
            self._returned(result, value)
            return value

        return _untyped(run)

    def _returned(self, result: TaskResult, value: object) -> None:
        signature = self._sender(result.task).signature
        try:
            document = signature.encode_result(value)
        except InvalidPayload as error:  # the worker will refuse it, too: the run has failed for good
            self._failed(result, error)
            return
        kept = None if document is None else signature.decode_result(document)
        self._ended(result, TaskResultStatus.SUCCESSFUL, _return_value=kept)

    def _raised(self, result: TaskResult, error: BaseException) -> None:
        if ends_job(running.get(), self.app.runnable[result.task.module_path], error):
            self._failed(result, error)

    def _failed(self, result: TaskResult, error: BaseException) -> None:
        kept = as_error(error, retryable=False, clean=running.get().clean)
        self._ended(result, TaskResultStatus.FAILED, errors=[_error(kept)])

    def _ended(self, result: TaskResult, status: TaskResultStatus, **known: object) -> None:
        for name, value in {"status": status, "finished_at": datetime.now(UTC), **known}.items():
            object.__setattr__(result, name, value)
        task_finished.send(type(self), task_result=result)

    def _running(self, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskResult:
        job, attempt = current.job, current.attempt
        result = self._unsent(self._as_asked(task, job.queue, job.priority), args, kwargs)
        now = datetime.now(UTC)
        for name, value in (
            ("id", job.id),
            ("status", TaskResultStatus.RUNNING),
            ("started_at", now),
            ("last_attempted_at", now),
            ("worker_ids", [""] * attempt),
        ):
            object.__setattr__(result, name, value)
        return result


def _untyped(function: Any) -> Any:
    """Django compares arguments with JSON and not with annotations."""
    del function.__wrapped__
    function.__annotations__ = {}
    return function


def _keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(options.keys() - _OPTIONS):
        raise ImproperlyConfigured(
            f"TASKS: OPTIONS has {unknown[0]!r}; it takes {', '.join(sorted(_OPTIONS))}"
        )
    keywords = dict(options)
    if isinstance(retry := keywords.get("retry"), Mapping):
        try:
            keywords["retry"] = RetryPolicy(**retry)
        except (InvalidOption, TypeError) as error:
            raise ImproperlyConfigured(f"TASKS: OPTIONS['retry']: {error}") from error
    return keywords


def _run_after(detail: JobDetail) -> datetime | None:
    """The time that was asked for. A store keeps when a job is due, which changes after the first run."""
    is_as_asked = detail.due_at > detail.accepted_at and not detail.deliveries and not detail.replays
    return _moment(detail.due_at) if is_as_asked else None


def _workers(detail: JobDetail) -> list[str]:
    """Who had the job, for each attempt; "" where that is not kept any more. A run that has not counted as an
    attempt gives its place to the next.
    """
    had = {delivery.attempt: delivery.session for delivery in detail.deliveries}
    if detail.state is State.RUNNING:
        had[detail.attempt] = detail.session
    return [had.get(attempt) or "" for attempt in range(1, detail.attempt + 1)]


def _error(error: Error) -> TaskError:
    path = error.type if "." in error.type else f"builtins.{error.type}"
    return TaskError(exception_class_path=path, traceback=error.traceback)


def _moment(at: Micros) -> datetime:
    return datetime.fromtimestamp(at / SECOND, UTC)
