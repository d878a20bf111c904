"""The options of a job as the settings of an intake say: fixed, or read out of its message."""

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.bridges.dead_letters import origin
from windlass.bridges.fields import Opened, Reader, reader, readers_of, text_of, whole_of
from windlass.core.duration import micros
from windlass.core.intake import IDS_KNOWN, IntakeSettings
from windlass.core.job import HIGHEST_PRIORITY, LOWEST_PRIORITY, NewJob, check_new_job
from windlass.core.names import check_headers, check_key, check_lane, check_own_queue
from windlass.errors import InvalidOption


class JobOptions:
    """Queue, lane, priority, unique key, delay and headers."""

    def __init__(self, settings: IntakeSettings, *, keyed: bool) -> None:
        """`keyed`: the id of a message is the unique key of its job, as repeats are told in no other way.
        `InvalidOption`: the settings have no meaning.
        """
        fields = settings.fields
        self._intake = settings.name
        self._keyed = keyed
        self._window = settings.window
        self._options = {
            name: reader(said, option=name)
            for name in ("queue", "lane", "priority", "key", "delay")
            if (said := getattr(fields, name)) != ""
        }
        self._headers = readers_of(fields.headers, option="headers")

    def applied(self, job: NewJob, opened: Opened) -> NewJob:
        """The job of a message. `Unreadable`, `InvalidOption`: the message says what cannot be."""
        message = opened.message
        said: dict[str, Any] = {
            name: value
            for name, read in self._options.items()
            if (value := _option(name, read, opened)) is not None
        }
        if message.priority is not None:
            # As AMQP has it: more than our highest counts as that.
            priority = max(LOWEST_PRIORITY, min(message.priority, HIGHEST_PRIORITY))
            said.setdefault("priority", priority)
        if "key" in said and self._window is not None:
            said["window"] = self._window
        if self._keyed and "key" not in said and job.key is None and message.id is not None:
            window = IDS_KNOWN if self._window is None else self._window
            said.update(key=message_key(self._intake, message.id), window=window)
        said["headers"] = self._headers_of(opened, job)
        return check_new_job(msgspec.structs.replace(job, **said))

    def _headers_of(self, opened: Opened, job: NewJob) -> dict[str, str]:
        said = {name: value for name, read in self._headers.items() if (value := read(opened)) is not None}
        return check_headers(
            {
                **job.headers,
                **{name: text_of(value) for name, value in said.items()},
                **origin(self._intake, opened.message),
            }
        )


def message_key(intake: str, message_id: str) -> str:
    """The unique key of the job of a message with an id. Two queues may have the same ids: each intake has
    keys of its own.
    """
    key = f"message {intake} {message_id}"
    with contextlib.suppress(InvalidOption):
        return check_key(key)
    return "message " + hashlib.blake2b(key.encode(errors="replace"), digest_size=20).hexdigest()


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
