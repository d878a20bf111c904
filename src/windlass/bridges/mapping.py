"""How a message becomes a job: its task, its arguments and its options. Pure, but for the ids of jobs."""

from collections.abc import Mapping
from typing import Any, Protocol

from windlass.bridges.arguments import Arguments
from windlass.bridges.dead_letters import NewId, dead_letter
from windlass.bridges.fields import Opened, Unreadable, is_path, reader, text_of
from windlass.bridges.job_options import JobOptions
from windlass.bridges.mapped import Mapped
from windlass.bridges.message import Message
from windlass.core.intake import IntakeSettings
from windlass.core.job import NewJob
from windlass.core.units import JobId
from windlass.errors import InvalidOption, InvalidPayload


class Receiver(Protocol):
    """A task of the program, as jobs are made for it."""

    @property
    def pattern(self) -> NewJob:
        """A job of this task, but for id and payload."""
        ...

    @property
    def signature(self) -> Any: ...
    def job(self, job_id: JobId, payload: bytes) -> NewJob:
        """A job of this task."""
        ...


class MessageMapper:
    """Makes jobs of messages as the settings of an intake say."""

    def __init__(
        self, settings: IntakeSettings, tasks: Mapping[str, Receiver], new_id: NewId, *, keyed: bool
    ) -> None:
        """`tasks` are those of the program. `keyed`: the id of a message is the unique key of its job, as
        repeats are told in no other way.
        `InvalidOption`: the settings have no meaning.
        """
        fields = settings.fields
        self._intake = settings.name
        self._new_id = new_id
        self._skips_tombstones = settings.tombstones == "skip"
        self._tasks = {name: tasks[name] for name in settings.tasks}
        self._fixed = None if is_path(fields.task) else self._tasks[fields.task]
        self._task = reader(fields.task, option="task")
        self._arguments = Arguments(fields.arguments)
        self._options = JobOptions(settings, keyed=keyed)

    def map(self, message: Message) -> Mapped:
        """The job of a message; one that is born dead if nobody can read it."""
        if message.body is None and self._skips_tombstones:
            return Mapped(())
        try:
            return Mapped((self._job(Opened(message)),))
        except (Unreadable, InvalidOption, InvalidPayload) as why:
            return self._dead(message, str(why), "UnreadableMessage")
        except RecursionError:
            return self._dead(message, "the body is nested too deeply", "UnreadableMessage")

    def unfit(self, message: Message, why: str) -> Mapped:
        """The dead letter of a message whose job the store has refused."""
        return self._dead(message, why, "RefusedMessage")

    def _dead(self, message: Message, why: str, kind: str) -> Mapped:
        pattern = None if self._fixed is None else self._fixed.pattern
        job = self._new_id(message)
        return dead_letter(self._intake, message, why, job=job, pattern=pattern, kind=kind)

    def _job(self, opened: Opened) -> NewJob:
        message = opened.message
        task = self._fixed or self._named(opened)
        payload = task.signature.encode_json(self._arguments.of(opened))
        return self._options.applied(task.job(self._new_id(message), payload), opened)

    def _named(self, opened: Opened) -> Receiver:
        name = self._task(opened)
        task = self._tasks.get(text_of(name)) if name is not None else None
        if task is None:
            listed = ", ".join(sorted(self._tasks))
            what = "no task" if name is None else "a task that this intake does not list"
            raise Unreadable(f"the message names {what}; it may name: {listed}")
        return task
