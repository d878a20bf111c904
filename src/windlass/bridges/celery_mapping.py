"""How a message of Celery's becomes a job: the task of the same name, with the same arguments and times."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.bridges.celery import CeleryCall, read
from windlass.bridges.dead_letters import NewId, dead_letter, those_that_fit
from windlass.bridges.fields import Opened, Unreadable
from windlass.bridges.job_options import JobOptions
from windlass.bridges.mapped import Mapped
from windlass.bridges.mapping import Receiver
from windlass.bridges.message import Message
from windlass.core.intake import IntakeSettings
from windlass.core.job import NewJob
from windlass.core.units import Micros
from windlass.errors import InvalidOption, InvalidPayload


class CeleryMapper:
    """Makes jobs of the messages of a queue of Celery's."""

    def __init__(
        self,
        settings: IntakeSettings,
        tasks: Mapping[str, Receiver],
        new_id: NewId,
        now: Callable[[], Micros],
        *,
        keyed: bool,
    ) -> None:
        """`now` is the store's time. `keyed`: Celery's id is the unique key of the job, as repeats are told
        in no other way. `InvalidOption`: the settings have no meaning.
        """
        for name, instead in _SAID_BY_CELERY.items():
            if getattr(settings.fields, name) != getattr(_UNSAID, name):
                raise InvalidOption(f'{name}= and format="celery": {instead}')
        self._intake = settings.name
        self._new_id = new_id
        self._now = now
        self._tasks = {name: tasks[name] for name in settings.tasks}
        self._options = JobOptions(settings, keyed=keyed)

    def map(self, message: Message) -> Mapped:
        """The job of a message; one that is born dead if nobody can read it."""
        message = _named(message)
        try:
            return Mapped((self._job(message, read(message)),))
        except (Unreadable, InvalidOption, InvalidPayload) as why:
            return self._dead(message, str(why), "UnreadableMessage")
        except RecursionError:
            return self._dead(message, "the body is nested too deeply", "UnreadableMessage")

    def unfit(self, message: Message, why: str) -> Mapped:
        """The dead letter of a message whose job the store has refused."""
        return self._dead(_named(message), why, "RefusedMessage")

    def _dead(self, message: Message, why: str, kind: str) -> Mapped:
        task = self._tasks.get(message.headers.get("task", ""))
        pattern = None if task is None else task.pattern
        job = self._new_id(message)
        return dead_letter(self._intake, message, why, job=job, pattern=pattern, kind=kind)

    def _job(self, message: Message, call: CeleryCall) -> NewJob:
        task = self._tasks.get(call.task)
        if task is None:
            listed = ", ".join(sorted(self._tasks))
            raise Unreadable(f"it names a task that this intake does not list; it may name: {listed}")
        job = task.job(self._new_id(message), task.signature.encode_json_call(call.args, call.kwargs))
        changed: dict[str, Any] = {
            "headers": {**job.headers, **those_that_fit(call.headers)},
            "max_attempts": max(1, job.max_attempts - call.retries),
        }
        if call.eta is not None:
            changed.update(delay=0, run_at=max(0, call.eta))
        if call.expires is not None:
            changed["expires"] = max(1, call.expires - self._now())
        return self._options.applied(msgspec.structs.replace(job, **changed), Opened(message))


_UNSAID = IntakeSettings(name="", url="").fields
_SAID_BY_CELERY = {
    "task": "the messages name their tasks; list them in tasks=",
    "delay": "the messages say when to run (eta)",
    "arguments": "the messages have their arguments where Celery puts them",
}


def _named(message: Message) -> Message:
    """A message with Celery's id as its own, which a repeat of it has, too."""
    name = message.headers.get("id")
    return msgspec.structs.replace(message, id=name) if name else message
