"""The app of a Django project, made from its settings.

It differs from any other app in two things. Its tasks close database connections that have gone stale, before
and after each run, as Django does around a request. And a job that is enqueued inside of `atomic()` is sent
when the transaction commits.
"""
# pyright: basic, reportMissingTypeStubs=false

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from windlass.client.app import Windlass
from windlass.client.handle import Job
from windlass.client.sending import handles_of, jobs_of
from windlass.client.task import Call, Task
from windlass.core.job import NewJob, Receipt, Status
from windlass.errors import InvalidOption
from windlass.worker.dispatcher import is_async

T = TypeVar("T")
Enqueue = Literal["on_commit", "in_transaction", "at_once"]

_OWN: Mapping[str, object] = {"enqueue": "on_commit", "database": "default", "dashboard": "", "queues": {}}
"""Keys of `WINDLASS` that are not keywords of `Windlass(...)`, and what they are by default."""


class ProjectApp(Windlass):
    """The app of a project."""

    def __init__(self, *, enqueue: Enqueue = "on_commit", database: str = "default", **options: Any) -> None:
        """`enqueue`: what happens to a job that is enqueued inside of `atomic()`. `database`: whose
        transactions count.
        """
        if enqueue not in ("on_commit", "in_transaction", "at_once"):
            raise InvalidOption(
                f'WINDLASS["enqueue"] is "on_commit", "in_transaction" or "at_once", not {enqueue!r}'
            )
        super().__init__(**options)
        self.enqueues: Enqueue = enqueue
        self.database = database
        self.registering = threading.RLock()
        self.django_tasks: dict[str, Any] = {}
        """Tasks of `django.tasks` by their names here."""

    def _register(self, given: Any, options: Any) -> Task[..., Any, Any]:
        function = given.function if isinstance(given, Task) else given
        return super()._register(with_connections(function) if callable(function) else function, options)

    def send(self, calls: Sequence[Call[T]], connection: object = None) -> list[Job[T]]:
        """Send one group: at once, or with the transaction that is open."""
        if connection is not None or not self._is_in_transaction():
            return super().send(calls, connection)
        if self.enqueues == "in_transaction":
            return super().send(calls, connections[self.database])
        jobs = jobs_of(self, calls)  # checked now: what is wrong with a call is the caller's to hear
        transaction.on_commit(lambda: self._send_committed(calls, jobs), using=self.database)
        receipts = [Receipt(job=job.id, status=Status.CREATED) for job in jobs]
        return handles_of(self, calls, receipts, None)

    def _send_committed(self, calls: Sequence[Call[Any]], jobs: Sequence[NewJob]) -> None:
        super().send_jobs(calls, jobs)

    def _is_in_transaction(self) -> bool:
        return self.enqueues != "at_once" and connections[self.database].in_atomic_block


def with_connections(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that leaves no stale database connection to the run after it."""
    if is_async(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            await sync_to_async(_close_old_connections)()
            try:
                return await function(*args, **kwargs)
            finally:
                await sync_to_async(_close_old_connections)()

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        _close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            _close_old_connections()

    return called


def _close_old_connections() -> None:
    """As Django does, but never in a transaction: a TestCase runs in one, and so do its jobs."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


_making = threading.RLock()
_made: list[ProjectApp] = []


def project_app() -> ProjectApp:
    """The app of the project, the same in each call. A process that has not set Django up does so now."""
    if not apps.ready and not apps.loading:
        django.setup()
    with _making:
        if not _made:
            _made.append(_from_settings(own_settings()))
        return _made[0]


def own_settings() -> dict[str, Any]:
    """The setting `WINDLASS`, with defaults."""
    given = getattr(settings, "WINDLASS", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"WINDLASS is a dict, such as {{'url': ...}}, not {type(given).__name__}")
    return {**_OWN, **cast("Mapping[str, Any]", given)}


def _from_settings(given: dict[str, Any]) -> ProjectApp:
    keywords = {name: value for name, value in given.items() if name not in ("dashboard", "queues")}
    try:
        app = ProjectApp(**keywords)
        for queue, options in given["queues"].items():
            app.queue(queue, **options)
    except (InvalidOption, TypeError) as error:
        raise ImproperlyConfigured(f"WINDLASS: {error}") from error
    return app
