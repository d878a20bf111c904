"""The front door: jobs on their way from a producer through a message broker to the store.

A group of jobs is one message, so that it is taken whole or not at all. Its body is MessagePack of the jobs
as `enqueue` would have handed them in. Times in them are durations, and count from when the message broker
took the message.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.bridges.dead_letters import NewId, dead_letter, origin, those_that_fit
from windlass.bridges.fields import Unreadable
from windlass.bridges.mapped import Mapped
from windlass.bridges.message import Message, Outgoing
from windlass.core.foreign import check_foreign
from windlass.core.group import too_large
from windlass.core.intake import FRONT
from windlass.core.job import NewJob
from windlass.core.names import MAX_HEADERS
from windlass.core.outcome import Error
from windlass.core.units import SECOND, Micros
from windlass.errors import InvalidOption

AHEAD = SECOND
"""How far the clock of a message broker may be ahead of the store's to be believed."""
VERSION = "1"
VERSION_HEADER = "windlass-front"
NAMESPACE_HEADER = "windlass-namespace"

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[NewJob, ...])


def front_message(namespace: str, jobs: Sequence[NewJob]) -> Outgoing:
    """The message of a group. Those of one queue and lane keep their order, where the broker knows keys."""
    first = jobs[0]
    return Outgoing(
        id=first.id,
        body=_encoder.encode(list(jobs)),
        key=f"{first.queue}/{first.lane}",
        headers={VERSION_HEADER: VERSION, NAMESPACE_HEADER: namespace},
    )


def why_not(jobs: Sequence[NewJob]) -> str | None:
    """Why a group cannot go through a front door, if so: each of its parents must be in it."""
    ids = {job.id for job in jobs}
    if any(edge.parent not in ids for job in jobs for edge in job.after):
        return (
            "a job that goes through a front door can wait only for jobs of its own group: send the flow as "
            "one, or enqueue with connection="
        )
    return None


class FrontMapper:
    """Makes jobs of the messages of a front door."""

    def __init__(
        self, namespace: str, tasks: Mapping[str, Any], new_id: NewId, now: Callable[[], Micros]
    ) -> None:
        """`now` is the store's time."""
        self._namespace = namespace
        self._tasks = tasks
        self._new_id = new_id
        self._now = now

    def map(self, message: Message) -> Mapped:
        """The jobs of a message; one that is born dead, with its bytes, if nobody can read it."""
        try:
            jobs = _jobs_of(message)
        except (Unreadable, InvalidOption) as why:
            job = self._new_id(message)
            return dead_letter(FRONT, message, str(why), job=job, pattern=None, kind="UnreadableMessage")
        if message.headers.get(NAMESPACE_HEADER) != self._namespace:
            why = f'it is for another namespace than "{self._namespace}": each needs a topic of its own'
            return self._letters(jobs, message, why)
        return Mapped(tuple(self._arrived(job, message) for job in jobs))

    def unfit(self, message: Message, why: str) -> Mapped:
        """The dead letters of a message whose jobs the store has refused."""
        return self._letters(_jobs_of(message), message, why)

    def _letters(self, jobs: Sequence[NewJob], message: Message, why: str) -> Mapped:
        """One for each job, under its id: its producer finds it."""
        letters = tuple(self._letter(job, message) for job in jobs)
        return Mapped(letters, Error(type="RefusedMessage", message=why, retryable=False))

    def _letter(self, job: NewJob, message: Message) -> NewJob:
        """Where it can be found: in the queue of its task, as its own may not be declared."""
        known = self._tasks.get(job.task)
        return msgspec.structs.replace(
            job,
            queue="default" if known is None else known.pattern.queue,
            headers={**those_that_fit(job.headers), **origin(FRONT, message)},
        )

    def _arrived(self, job: NewJob, message: Message) -> NewJob:
        """A job whose durations count from when the message broker took it."""
        now = self._now()
        # What is known of the store's time is a little old. A clock that is further ahead is wrong.
        at = now if message.at is None or message.at > now + AHEAD else message.at
        changed: dict[str, Any] = {}
        if job.delay:
            changed.update(delay=0, run_at=at + job.delay)
        if job.expires is not None:
            changed["expires"] = max(1, job.expires - max(0, now - at))
        if len(job.headers) + 2 <= MAX_HEADERS:
            changed["headers"] = {**job.headers, **origin(FRONT, message)}
        return msgspec.structs.replace(job, **changed)


def _jobs_of(message: Message) -> tuple[NewJob, ...]:
    """The jobs of a message, each as a store can hold it and all as one step can take them. `Unreadable`,
    `InvalidOption`: there are none.
    """
    if message.headers.get(VERSION_HEADER) != VERSION:
        raise Unreadable(f"it is no message of a front door of version {VERSION}")
    try:
        jobs = _decoder.decode(message.body or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        jobs = ()
    if not jobs:
        raise Unreadable("its body has no jobs as a front door writes them")
    for _, why in too_large(jobs).values():
        raise Unreadable(why)
    return tuple(check_foreign(job) for job in jobs)
