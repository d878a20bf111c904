"""The words of the contract as the tables keep them: numbers for what is compared, bytes for what is not."""

import re
from typing import Final
from uuid import UUID

import msgspec

from windlass.core.event import Emit
from windlass.core.job import Edge, Mode, OnFailure
from windlass.core.outcome import Cause, Error
from windlass.core.session import SessionInfo
from windlass.core.settings import Body, Kind, LaneSettings, QueueSettings
from windlass.core.state import State
from windlass.core.units import JobId
from windlass.errors import ContractError

STATES: Final[tuple[State, ...]] = (
    State.BLOCKED,
    State.SCHEDULED,
    State.READY,
    State.RUNNING,
    State.DONE,
    State.DEAD,
    State.CANCELLED,
)
CODES: Final[dict[State, int]] = {state: code for code, state in enumerate(STATES)}
MODES: Final[dict[Mode, int]] = {Mode.IGNORE: 0, Mode.REPLACE: 1, Mode.THROTTLE: 2}
EMITS: Final[dict[Emit, int]] = {Emit.NONE: 0, Emit.FINAL: 1, Emit.ALL: 2}
FAILURES: Final[dict[OnFailure, int]] = {OnFailure.CANCEL: 0, OnFailure.IGNORE: 1, OnFailure.RUN: 2}
_FAILURE: Final[tuple[OnFailure, ...]] = (OnFailure.CANCEL, OnFailure.IGNORE, OnFailure.RUN)

pack = msgspec.json.Encoder().encode
_headers = msgspec.json.Decoder(dict[str, str])
_tags = msgspec.json.Decoder(tuple[str, ...])
read_error = msgspec.json.Decoder(Error).decode
read_cause = msgspec.json.Decoder(Cause).decode
read_info = msgspec.json.Decoder(SessionInfo).decode
_queue = msgspec.json.Decoder(QueueSettings).decode
_lane = msgspec.json.Decoder(LaneSettings).decode

NOBODY: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""What an id that is no UUID is looked up as: no job has it."""


def known_state(code: int) -> State:
    """The state of something that certainly has one."""
    return STATES[code]


def state_of(code: int | None) -> State | None:
    """The state that a number stands for."""
    return None if code is None else STATES[code]


_is_canonical = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII).fullmatch


def id_of(job: JobId) -> JobId:
    """A job's id as the tables keep it; an id that is none names no job."""
    if _is_canonical(job):
        return job
    try:
        return str(UUID(job))
    except ValueError:
        return NOBODY


def new_id(job: JobId) -> JobId:
    """The id of a new job. It must come back as it was sent, so it must be a UUID in canonical text."""
    if not _is_canonical(job):
        raise ContractError(f'PostgreSQL keeps ids as UUIDs in canonical lower-case text, not "{job}"')
    return job


def pack_text(text: str) -> bytes:
    """Text from outside, which may contain what PostgreSQL's own does not: U+0000, lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def read_text(text: bytes | None) -> str:
    """Text as it was said."""
    return "" if text is None else text.decode("utf-8", "surrogatepass")


def read_headers(record: bytes | None) -> dict[str, str]:
    """Headers as they were asked for."""
    return {} if record is None else _headers.decode(record)


def read_tags(record: bytes | None) -> tuple[str, ...]:
    """Tags as they were asked for."""
    return () if record is None else _tags.decode(record)


def read_after(parents: list[JobId] | None, failures: list[int] | None) -> tuple[Edge, ...]:
    """Edges, each to the job that stands for its parent."""
    if not parents or failures is None:
        return ()
    return tuple(Edge(parent, _FAILURE[failure]) for parent, failure in zip(parents, failures, strict=True))


def pack_body(body: Body | None) -> bytes | None:
    """A document's layer: queues and lanes as JSON, everything else as it is."""
    return body if body is None or isinstance(body, bytes) else pack(body)


def read_body(kind: Kind, record: bytes | None) -> Body | None:
    """A document's layer."""
    if record is None:
        return None
    if kind is Kind.QUEUE:
        return _queue(record)
    return _lane(record) if kind is Kind.LANE else record
