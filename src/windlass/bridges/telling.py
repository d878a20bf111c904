"""What a relay says of the end of a job."""

from typing import Any

import msgspec

from windlass.bridges.message import Outgoing
from windlass.core.codec import UNREADABLE, is_reference
from windlass.core.event import Event
from windlass.core.job import JobDetail
from windlass.core.names import is_reserved
from windlass.core.outcome import Error
from windlass.core.relay import RelaySettings, addressed
from windlass.core.showing import Shower
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.core.webhook import written_time
from windlass.errors import UnreadablePayload

LONGEST_ERROR = 2_000
_UNTYPED = Shower(None)
_ENDS = {State.DONE: "done", State.DEAD: "dead", State.CANCELLED: "cancelled"}


def end_of(event: Event) -> str | None:
    """The end that an event tells of; None: it tells of none, or of a job of Windlass's own."""
    if event.before is event.after or event.after is None or is_reserved(event.task):
        return None
    return _ENDS.get(event.after)


def is_told(settings: RelaySettings, event: Event) -> bool:
    """Whether a relay tells of an event."""
    return (
        end_of(event) in settings.on
        and (not settings.queues or event.queue in settings.queues)
        and (not settings.tasks or event.task in settings.tasks)
    )


def message_id(event: Event) -> str:
    """The same for every try, and for nothing else: an end of a job under a fence."""
    return f"{event.job}:{event.fence}:{event.move.replace(' ', '-')}"  # no blank: not all take one


def message(
    settings: RelaySettings,
    event: Event,
    job: JobDetail | None,
    *,
    namespace: str,
    shower: Shower = _UNTYPED,
    largest: int | None = None,
) -> Outgoing:
    """The message about an end. `job` as the store has it; None: it is gone, and nothing is told of its
    arguments and its error. What of it may be seen, `shower` knows. A body of
    more than `largest` bytes is sent without the arguments.
    """
    end = end_of(event) or ""
    kept = job if job is not None and not job.pruned else None
    told = _told(event, end, kept, namespace, shower)
    if settings.payload:
        told["job"]["payload"] = None if kept is None else _payload(kept, shower)
    body = msgspec.json.encode(told)
    if largest is not None and len(body) > largest and settings.payload:
        told["job"]["payload"] = None
        body = msgspec.json.encode(told)
    to = addressed(settings.to, queue=event.queue, task=event.task, lane=event.lane, state=end)
    return Outgoing(
        id=message_id(event),
        body=body,
        to=to,
        key=event.lane or event.job,
        headers={
            "windlass-job": event.job,
            "windlass-task": event.task,
            "windlass-queue": event.queue,
            "windlass-state": end,
        },
    )


def _told(event: Event, end: str, job: JobDetail | None, namespace: str, shower: Shower) -> dict[str, Any]:
    error = None if job is None or end != "dead" else job.error
    return {
        "type": f"job.{end}",
        "at": written_time(event.at),
        "namespace": namespace,
        "job": {
            "id": event.job,
            "task": event.task,
            "queue": event.queue,
            "lane": event.lane,
            "state": end,
            "reason": None if event.reason is None else event.reason.value,
            "attempt": event.attempt,
            "runtime": None if event.runtime is None else event.runtime / SECOND,
            "waited": None if event.waited is None else event.waited / SECOND,
            "error": None if error is None else _error(shower.error(error)),
            "headers": {} if job is None else shower.headers(job.headers),
            "tags": [] if job is None else list(job.tags),
        },
    }


def _error(error: Error) -> dict[str, str]:
    return {"type": error.type, "message": error.message[:LONGEST_ERROR]}


def _payload(job: JobDetail, shower: Shower) -> object:
    """The arguments as the HTTP API shows them; in base64 what is no payload of ours, as in the dead letter
    of a message that nobody can read. What is in object storage is not told: it is as large as that.
    """
    if is_reference(job.payload):
        return None
    try:
        return shower.readable_arguments(job.payload)
    except (UnreadablePayload, *UNREADABLE):
        return {"base64": job.payload}
