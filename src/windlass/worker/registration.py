"""Telling a store which tasks this program knows, and that jobs held for want of them can go on."""

import asyncio
import inspect
import logging
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from windlass.broker.contract import Broker
from windlass.core.bounds import CALL_ITEMS
from windlass.core.settings import Change, Declaration, Kind, Subject
from windlass.core.units import Micros
from windlass.worker.program import Program, Registered

_log = logging.getLogger("windlass.worker")
_T = TypeVar("_T")

AT_ONCE = 50
"""Keys that are asked for together: stores that commit in groups pay once."""


class TaskDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A task as the registry shows it."""

    name: str
    queue: str
    revision: int
    schema: dict[str, Any]
    """JSON Schema of its arguments by name."""
    timeout: Micros | None
    run: str | None
    max_attempts: int
    doc: str


def hold_key(task: str) -> str:
    """The key of jobs that are held because nobody knows their task, or reads their payload."""
    return f"task:{task}"


def document(task: Registered) -> TaskDocument:
    """What is told of a task."""
    options = task.options
    return TaskDocument(
        name=task.name,
        queue=options.queue,
        revision=options.revision,
        schema=task.signature.schema(),
        timeout=options.timeout,
        run=options.run,
        max_attempts=options.retry.max_attempts,
        doc=inspect.cleandoc(getattr(task, "__doc__", None) or ""),
    )


async def register(broker: Broker, program: Program) -> None:
    """Declare the tasks of a program, and free what was held for them."""
    tasks = own_tasks(program)
    for some in _chunks(tasks, CALL_ITEMS):
        await _declare(broker, program, some)
    for some in _chunks(tasks, AT_ONCE):
        await asyncio.gather(*(_unhold(broker, hold_key(task.name)) for task in some))


def own_tasks(program: Program) -> list[Registered]:
    """Those that this program can run: not those that live elsewhere."""
    return [task for task in program.tasks.values() if not task.options.external]


async def _declare(broker: Broker, program: Program, tasks: Sequence[Registered]) -> None:
    declarations = [
        Declaration(
            subject=Subject(Kind.TASK, task.name),
            body=msgspec.json.encode(document(task)),
            app=program.name,
            revision=program.revision,
        )
        for task in tasks
    ]
    answers = await broker.declare(declarations)
    for task, answer in zip(tasks, answers, strict=True):
        if answer.change is Change.OTHER_APP:
            _log.warning(
                'task "%s" belongs to another app of this namespace, which may run its jobs as well; '
                "give one of the tasks another name, or one of the apps another namespace",
                task.name,
            )


async def _unhold(broker: Broker, key: str) -> None:
    freed = 0
    while True:
        step = await broker.unhold(key, CALL_ITEMS)
        freed += step.count
        if not step.more:
            break
    if freed:
        _log.info("%d jobs that were held under %s can run now", freed, key)


def _chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
