"""Tasks of Django's kind, for the tests of the backend."""

import asyncio
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, connections

from windlass import Cancelled, GiveUp, Retry, Snooze
from windlass.worker.run import running

try:
    from django.tasks import TaskContext, task
except ImportError:
    from django_tasks import TaskContext, task


@task()
def meaning() -> int:
    """Return a number."""
    return 42


@task()
async def ameaning() -> int:
    """Return a number, on a loop."""
    return 42


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    """Return what was given."""
    return [args, kwargs]


@task()
def fails() -> None:
    """Fail."""
    raise ValueError("this failed")


@task()
def unkept() -> Any:
    """Return what has no JSON form."""
    return unkept


@task(takes_context=True)
def who(context: TaskContext, word: str) -> list[Any]:
    """Return what the context says."""
    return [context.task_result.id, context.attempt, word]


@task(takes_context=True)
def where(context: TaskContext) -> list[Any]:
    """Return what the context says of how it was asked for."""
    asked = context.task_result.task
    return [asked.queue_name, asked.priority]


@task(backend="patient")
def patient() -> None:
    """Fail, many times."""
    raise ValueError("this failed")


@task(backend="picky")
def given_up() -> None:
    """Raise an error after which there is no other attempt."""
    raise KeyError("nobody")


@task(backend="picky")
def not_retried() -> None:
    """Raise an error that is not tried again."""
    raise RuntimeError("broken")


@task()
def gives_up() -> None:
    """Say that this job can never be done."""
    raise GiveUp("no such customer")


@task()
def stops_itself() -> None:
    """Cancel this job."""
    raise Cancelled("withdrawn")


@task()
def loses_its_lease() -> None:
    """Stop in the first run as if another worker had the job."""
    if not _first("loses_its_lease"):
        return
    stop = Cancelled()
    stop.lease_lost = True
    raise stop


@task()
def asks_again() -> None:
    """Ask for another attempt, always."""
    raise Retry(after=1)


@task(backend="once")
def snoozes() -> None:
    """Ask once for a later run."""
    if _first("snoozes"):
        raise Snooze(1)


@task(backend="once")
async def is_given_back() -> None:
    """Be stopped once, as by a worker whose grace is over."""
    if _first("is_given_back"):
        running.get().released = True
        raise asyncio.CancelledError


@task()
def queries() -> None:
    """Query the database."""
    _query()


@task()
async def aqueries() -> None:
    """Query the database, from a loop."""
    await sync_to_async(_query)()


used: list[tuple[Any, Any]] = []
"""The database as its tasks have used it: Django's wrapper, and the connection that it had."""


def _query() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    used.append((connections["default"], connection.connection))


_ran: set[str] = set()


def _first(name: str) -> bool:
    is_first = name not in _ran
    _ran.add(name)
    return is_first
