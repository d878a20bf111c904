"""Finding the task that somebody outside has named: the one look-up of all that enqueue by a name."""

from typing import Any

from windlass.client.app import Windlass
from windlass.client.task import Sender
from windlass.core.names import refuse_reserved
from windlass.core.spelling import hint
from windlass.errors import InvalidOption


class UnknownTask(InvalidOption):
    """A task that the app does not have."""


def task_named(app: Windlass, name: str) -> Sender[..., Any]:
    """The task of this name. `UnknownTask` names those there are; `InvalidOption`: it is Windlass's own."""
    known = app.tasks.get(refuse_reserved(name, "task"))
    if known is None:
        those = hint(name, sorted(app.tasks), "tasks of this app")
        none = "" if app.tasks else '; register one with "@app.task"'
        raise UnknownTask(f'there is no task "{name[:100]}"; {those}{none}')
    return known
