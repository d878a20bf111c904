"""Telling a store what this program declares and which tasks it knows: at its start, and anew when the store
has lost it; and that jobs held for want of a task can go on.
"""

import inspect
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.broker.contract import Broker
from windlass.core.bounds import CALL_ITEMS
from windlass.core.settings import Change, Declaration, Kind, Subject
from windlass.core.units import Micros
from windlass.core.webhook import TASK as DELIVERY
from windlass.errors import InvalidOption
from windlass.pace import Pace
from windlass.patience import insist
from windlass.worker.holds import free, own_tasks
from windlass.worker.program import Program, Registered

_log = logging.getLogger("windlass.worker")


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


def document(task: Registered) -> TaskDocument:
    """The document of a task."""
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
    await declare_tasks(broker, program)
    await free(broker, own_tasks(program))


async def declare_all(broker: Broker, program: Program) -> None:
    """Declare the queues, lanes and schedules of a program, and its tasks."""
    await program.declare(broker)
    await declare_tasks(broker, program)


async def declare_anew(broker: Broker, program: Program, pace: Pace) -> None:
    """A store that knows a session no longer may have lost everything (a server without a file, restarted).
    What it has kept is left as it is.
    """
    try:
        await insist(pace, "declaring queues and tasks anew", lambda: declare_all(broker, program))
    except InvalidOption as error:
        _log.error("not everything is declared anew: %s", error)


async def declare_tasks(broker: Broker, program: Program) -> None:
    """Declare the tasks of a program."""
    tasks = own_tasks(program)
    for at in range(0, len(tasks), CALL_ITEMS):
        await _declare(broker, program, tasks[at : at + CALL_ITEMS])


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
        if answer.change is Change.OTHER_APP and task.name != DELIVERY:
            _log.warning(
                'task "%s" belongs to another app of this namespace, which may run its jobs as well; '
                "give one of the tasks another name, or one of the apps another namespace",
                task.name,
            )
