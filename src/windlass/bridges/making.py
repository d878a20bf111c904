"""Makes what an intake needs of its settings: its mapper, and the ids of its jobs."""

from collections.abc import Callable, Mapping
from typing import Any

from windlass.bridges.celery_mapping import CeleryMapper
from windlass.bridges.dead_letters import NewId
from windlass.bridges.declared import Intake
from windlass.bridges.front import FrontMapper
from windlass.bridges.mapped import Mapper
from windlass.bridges.mapping import MessageMapper
from windlass.bridges.message import Message
from windlass.core.ids import derived_id, namespace_tag
from windlass.core.units import JobId, Micros


class NewIds:
    """The ids of the jobs of an intake. A message with an id gives its job the same id every time."""

    def __init__(self, namespace: str, intake: str, new_id: Callable[[], JobId]) -> None:
        self.namespace = namespace
        self._about = (namespace, "intake", intake)
        self._tag = namespace_tag(namespace)
        self._new_id = new_id

    def __call__(self, message: Message) -> JobId:
        """The id of the job of a message."""
        if message.id is None:
            return self._new_id()
        return derived_id(message.at or 0, self._tag, *self._about, message.id)


def mapper_of(
    intake: Intake,
    tasks: Mapping[str, Any],
    new_id: NewId,
    *,
    namespace: str,
    keyed: bool,
    now: Callable[[], Micros],
) -> Mapper:
    """The mapper of an intake; `InvalidOption`: its settings have no meaning. `keyed`: what it reads is told
    apart by the ids of messages alone. `now` is the store's time.
    """
    match intake.settings.format:
        case "front":
            return FrontMapper(namespace, tasks, new_id, now)
        case "celery":
            return CeleryMapper(intake.settings, tasks, new_id, now, keyed=keyed)
        case "messages":
            return MessageMapper(intake.settings, tasks, new_id, keyed=keyed)


def no_ids(message: Message) -> JobId:
    """For a mapper that is only made to see whether it can be."""
    raise AssertionError(message.place)
