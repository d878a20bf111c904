"""What an archive keeps of a dead letter, and the line that it is written as."""

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.core.job import JobDetail
from windlass.core.showing import Shower
from windlass.core.units import JobId, Micros
from windlass.core.webhook import written_time

VERSION = 1
ERASED = "[erased]"
"""What stands where a payload was that somebody had erased."""


class Died(msgspec.Struct, frozen=True, kw_only=True):
    """What it died of."""

    type: str
    message: str
    traceback: str = ""
    cause: str = ""
    fingerprint: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of one dead letter."""

    v: int = VERSION
    id: JobId
    """Of the job. A removal that is repeated writes it again."""
    namespace: str
    what: str
    """`discarded`, or `pruned` at the end of its retention."""
    at: str
    """When it was removed, on the store's clock."""
    by: str
    reason: str
    task: str
    queue: str
    lane: str
    tags: tuple[str, ...]
    flow: str
    attempt: int
    max_attempts: int
    accepted_at: str
    died_at: str
    why: str
    """The store's reason for its death, such as `attempts exhausted`."""
    error: Died | None
    headers: Mapping[str, str]
    payload: Any
    """`{"args": [...], "kwargs": {...}}` without secrets and private values."""

    @property
    def died(self) -> str:
        """One line of what it died of."""
        if self.error is None:
            return self.why
        first = next(iter(self.error.message.strip().splitlines()), "")
        return f"{self.error.type}: {first}" if first else self.error.type


def entry_of(
    job: JobDetail, shower: Shower, *, namespace: str, what: str, at: Micros, by: str, reason: str
) -> Entry:
    """The trace of a dead letter."""
    error = job.error
    clean = shower.clean
    return Entry(
        id=job.id,
        namespace=namespace,
        what=what,
        at=written_time(at),
        by=by,
        reason=reason,
        task=job.task,
        queue=job.queue,
        lane=job.lane,
        tags=job.tags,
        flow=job.flow,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        accepted_at=written_time(job.accepted_at),
        died_at=written_time(job.finished_at or 0),
        why="" if job.reason is None else job.reason.value,
        error=None
        if error is None
        else Died(
            type=error.type,
            message=clean(error.message),
            traceback=clean(error.traceback),
            cause=clean(error.cause),
            fingerprint=error.fingerprint,
        ),
        headers=shower.headers(job.headers),
        payload=shower.arguments(job.payload),
    )


def forgotten(entry: Entry) -> Entry:
    """The same without what is of a person: that it was there, and who removed it, stays."""
    return msgspec.structs.replace(entry, error=None, headers={}, payload=ERASED)


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Entry).decode


def blanked(line: bytes, namespace: str, tag: str) -> bytes | None:
    """The line of an entry with a tag, without what is of a person; None: it stays as it is, being another's,
    blank already, or not one of ours.
    """
    try:
        entry = decode(line)
    except msgspec.MsgspecError:
        return None  # or of a newer version
    blank = forgotten(entry)
    if entry.namespace != namespace or tag not in entry.tags or blank == entry:
        return None
    return encode(blank) + b"\n"
