"""Tasks of Django's kind, for the tests of the backend."""

from typing import Any

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
