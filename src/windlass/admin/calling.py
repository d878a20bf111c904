"""Finding the task that somebody outside has named: the one look-up of all that enqueue by a name."""

from typing import Any

from windlass.client.app import Windlass
from windlass.client.task import Sender
from windlass.core.names import refuse_reserved
from windlass.errors import InvalidOption


class UnknownTask(InvalidOption):
    """A task that the app does not have."""


def task_named(app: Windlass, name: str) -> Sender[..., Any]:
    """The task of this name. `UnknownTask` names those there are; `InvalidOption`: it is Windlass's own."""
    known = app.tasks.get(refuse_reserved(name, "task"))
    if known is None:
        names = ", ".join(sorted(app.tasks)) or 'none; register one with "@app.task"'
        raise UnknownTask(f'there is no task "{name[:100]}"; tasks of this app: {names}')
    return known
