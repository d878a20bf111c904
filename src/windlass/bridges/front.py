"""The front door: jobs on their way from a producer through a message broker to the store.

A group of jobs is one message, so that it is taken whole or not at all. Its body is MessagePack of the jobs
as `enqueue` would have handed them in. Times in them are durations, and count from when the message broker
took the message.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.bridges.dead_letters import NewId, dead_letter, origin, those_that_fit
from windlass.bridges.mapped import Mapped
from windlass.bridges.message import Message, Outgoing
from windlass.core.intake import FRONT, UNREAD
from windlass.core.job import NewJob, check_new_job
from windlass.core.names import MAX_HEADERS, is_reserved
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
        """The jobs of a message; one that is born dead if nobody can read it."""
        why = self._not_ours(message)
        if why is not None:
            return self.unfit(message, why)
        jobs = _decoded(message)
        if not jobs:
            return self.unfit(message, "its body has no jobs as a front door writes them")
        try:
            return Mapped(tuple(self._arrived(check_new_job(job), message) for job in jobs))
        except InvalidOption as error:
            return self.unfit(message, str(error))

    def unfit(self, message: Message, why: str) -> Mapped:
        """The dead letters of a message whose jobs the store has refused, one for each job; one with the
        bytes of the message if nobody can read it.
        """
        jobs = _decoded(message)
        if not jobs:
            job = self._new_id(message)
            return dead_letter(FRONT, message, why, job=job, pattern=None, kind="UnreadableMessage")
        letters = tuple(self._letter(job, message) for job in jobs)
        return Mapped(letters, Error(type="RefusedMessage", message=why, retryable=False))

    def _letter(self, job: NewJob, message: Message) -> NewJob:
        """Where it can be found: in the queue of its task, as its own may not be declared."""
        known = self._tasks.get(job.task)
        return msgspec.structs.replace(
            job,
            task=UNREAD if is_reserved(job.task) else job.task,
            queue="default" if known is None else known.pattern.queue,
            headers={**those_that_fit(job.headers), **origin(FRONT, message)},
        )

    def _not_ours(self, message: Message) -> str | None:
        version, namespace = message.headers.get(VERSION_HEADER), message.headers.get(NAMESPACE_HEADER)
        if version != VERSION:
            return f"it is no message of a front door of version {VERSION}"
        if namespace != self._namespace:
            return f'it is for another namespace than "{self._namespace}": each needs a topic of its own'
        return None

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


def _decoded(message: Message) -> tuple[NewJob, ...]:
    """The jobs of a message; none if its body cannot be decoded."""
    try:
        return _decoder.decode(message.body or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
