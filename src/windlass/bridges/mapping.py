"""How a message becomes a job: its task, its arguments and its options. Pure, but for the ids of jobs."""

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from windlass.bridges.dead_letters import NewId, dead_letter, origin
from windlass.bridges.fields import (
    Opened,
    Reader,
    Unreadable,
    is_path,
    reader,
    readers_of,
    text_of,
    whole_of,
)
from windlass.bridges.mapped import Mapped
from windlass.bridges.message import Message
from windlass.core.duration import micros
from windlass.core.intake import IntakeSettings
from windlass.core.job import HIGHEST_PRIORITY, NewJob, check_new_job
from windlass.core.names import check_headers, check_key, check_lane, check_own_queue
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
        self._keyed = keyed
        self._skips_tombstones = settings.tombstones == "skip"
        self._tasks = {name: tasks[name] for name in settings.tasks}
        self._window = settings.window
        self._fixed = None if is_path(fields.task) else self._tasks[fields.task]
        self._task = reader(fields.task, option="task")
        self._arguments = fields.arguments
        if fields.arguments != "body" and not fields.arguments.startswith("body."):
            raise InvalidOption(
                f"arguments={fields.arguments!r}: arguments are in the body, as in arguments='body.order'"
            )
        self._options = {
            name: reader(said, option=name)
            for name in ("queue", "lane", "priority", "key", "delay")
            if (said := getattr(fields, name)) != ""
        }
        self._headers = readers_of(fields.headers, option="headers")

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
        payload = task.signature.encode_json(self._arguments_of(opened))
        job = task.job(self._new_id(message), payload)
        said: dict[str, Any] = {
            name: value
            for name, read in self._options.items()
            if (value := _option(name, read, opened)) is not None
        }
        if message.priority is not None:
            # As AMQP has it, from 0 upwards; more than our highest counts as that.
            said.setdefault("priority", min(message.priority, HIGHEST_PRIORITY))
        if self._keyed and "key" not in said and job.key is None and message.id is not None:
            said.update(key=message_key(message.id), window=self._window)
        said["headers"] = self._headers_of(opened, job)
        return check_new_job(msgspec.structs.replace(job, **said))

    def _named(self, opened: Opened) -> Receiver:
        name = self._task(opened)
        task = self._tasks.get(text_of(name)) if name is not None else None
        if task is None:
            listed = ", ".join(sorted(self._tasks))
            what = "no task" if name is None else "a task that this intake does not list"
            raise Unreadable(f"the message names {what}; it may name: {listed}")
        return task

    def _arguments_of(self, opened: Opened) -> bytes:
        body = opened.message.body
        if body is None:
            raise Unreadable("the message has no body (it is a tombstone)")
        if self._arguments == "body":
            return body
        found = opened.within(tuple(self._arguments.split(".")[1:]))
        if found is None:
            raise Unreadable(f"the body has no {self._arguments.removeprefix('body.')}")
        return msgspec.json.encode(found)

    def _headers_of(self, opened: Opened, job: NewJob) -> dict[str, str]:
        said = {name: value for name, read in self._headers.items() if (value := read(opened)) is not None}
        return check_headers(
            {
                **job.headers,
                **{name: text_of(value) for name, value in said.items()},
                **origin(self._intake, opened.message),
            }
        )


def message_key(message_id: str) -> str:
    """The unique key of the job of a message with an id."""
    key = f"message {message_id}"
    with contextlib.suppress(InvalidOption):
        return check_key(key)
    return "message " + hashlib.blake2b(message_id.encode(errors="replace"), digest_size=20).hexdigest()


def _option(name: str, read: Reader, opened: Opened) -> object:
    value = read(opened)
    return None if value is None else _OPTIONS[name](value)


_OPTIONS: Mapping[str, Callable[[Any], object]] = {
    "queue": lambda value: check_own_queue(text_of(value)),
    "lane": lambda value: check_lane(text_of(value)),
    "priority": lambda value: whole_of(value, name="priority"),
    "key": lambda value: check_key(text_of(value)),
    "delay": lambda value: micros(value, name="delay"),
}
