"""Rows of the file as records: what a step works on before it is written back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec

from windlass.core.job import Delivery, Edge, Held, Mode
from windlass.core.limits import Bucket
from windlass.core.outcome import Cause, Error, Outcome
from windlass.core.settings import LanePolicy, QueuePolicy
from windlass.core.settlement import SUSPECT_AFTER
from windlass.core.state import State
from windlass.core.units import Fence, JobId, Micros, SessionId

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
UNPLACED: Final = -1
BLOCKED, SCHEDULED, READY, RUNNING, DONE, DEAD, CANCELLED = range(7)

# Bits of `job.marks`: which other tables know of a job.
KEYED: Final = 1
HAS_CHILDREN: Final = 2
HAS_PARENTS: Final = 4
SAID: Final = 8
LOGGED: Final = 16
MEMOS: Final = 32
RESULT: Final = 64

DELIVERIES: Final = 10
"""Ends of leases that are kept of a job."""


@dataclass(slots=True)
class Job:
    """The head of a job: the columns of `job`, in their order."""

    n: int
    id: JobId
    q: int
    t: int
    lane: str
    accepted_at: Micros
    parent: JobId | None
    flow: str
    revision: int
    priority: int
    max_attempts: int
    state_code: int = UNPLACED
    reason: str | None = None
    band: int = 0
    sequence: int = 0
    line: int | None = None
    attempt: int = 0
    crashes: int = 0
    fence: Fence = 0
    started: int = 0
    due_at: Micros = 0
    expires_at: Micros | None = None
    session: int | None = None
    lease: int | None = None
    deadline: Micros | None = None
    claimed_at: Micros = 0
    finished_at: Micros | None = None
    cancel_requested: int = 0
    hold_key: str | None = None
    held_record: bytes | None = None
    waiting_for: int = 0
    replays: int = 0
    ends: int = 0
    size: int = 0
    marks: int = 0
    pruned_until: Micros | None = None

    @property
    def state(self) -> State | None:
        """Where it is in its life; None before it was placed."""
        return None if self.state_code == UNPLACED else STATES[self.state_code]

    @property
    def suspect(self) -> bool:
        """Whether it runs alone."""
        return self.crashes >= SUSPECT_AFTER

    @property
    def held(self) -> Held | None:
        """What it is held for."""
        return None if self.held_record is None else _held.decode(self.held_record)

    @held.setter
    def held(self, held: Held | None) -> None:
        self.hold_key = None if held is None else held.key
        self.held_record = None if held is None else pack(held)

    @property
    def columns(self) -> tuple[int | str | bytes | None, ...]:
        """Every column, in the order of the table."""
        return (*self.fixed, *self.mutable)

    @property
    def fixed(self) -> tuple[int | str | bytes | None, ...]:
        """What never changes."""
        return (self.n, self.id, self.q, self.t, self.lane, self.accepted_at, self.parent, self.flow)

    @property
    def running(self) -> tuple[int | str | bytes | None, ...]:
        """What a claim changes, and its number."""
        return (
            self.state_code,
            self.attempt,
            self.fence,
            self.session,
            self.lease,
            self.deadline,
            self.claimed_at,
            self.n,
        )

    @property
    def mutable(self) -> tuple[int | str | bytes | None, ...]:
        """What may change."""
        return (
            self.revision,
            self.priority,
            self.max_attempts,
            self.state_code,
            self.reason,
            self.band,
            self.sequence,
            self.line,
            self.attempt,
            self.crashes,
            self.fence,
            self.started,
            self.due_at,
            self.expires_at,
            self.session,
            self.lease,
            self.deadline,
            self.claimed_at,
            self.finished_at,
            self.cancel_requested,
            self.hold_key,
            self.held_record,
            self.waiting_for,
            self.replays,
            self.ends,
            self.size,
            self.marks,
            self.pruned_until,
        )


_RENAMED = {"state_code": "state", "held_record": "held"}
JOB_COLUMNS: Final = tuple(_RENAMED.get(field.name, field.name) for field in fields(Job))


@dataclass(slots=True)
class Body:
    """What was asked for, apart from the head."""

    key: str | None
    mode: Mode
    window: Micros
    headers: dict[str, str]
    tags: tuple[str, ...]
    after: tuple[Edge, ...]
    payload: bytes

    @property
    def columns(self) -> tuple[int | str | bytes | None, ...]:
        """The columns of `body` but its number; what is empty is NULL."""
        return (
            self.key,
            None if self.key is None else self.mode.value,
            None if self.key is None else self.window,
            pack(self.headers) if self.headers else None,
            pack(self.tags) if self.tags else None,
            pack(self.after) if self.after else None,
            self.payload,
        )


@dataclass(slots=True)
class Queue:
    """A declared queue, with what is in force."""

    q: int
    name: str
    laned: bool
    paused: bool
    running: int
    bucket: Bucket | None
    policy: QueuePolicy

    @property
    def unlimited(self) -> bool:
        """Whether nothing but a pause keeps it from handing out a job: no limit, no lane, no sequence."""
        policy = self.policy
        return (
            not self.laned
            and policy.concurrency is None
            and policy.rate is None
            and policy.lane_concurrency is None
            and policy.lane_rate is None
            and not policy.sequence
        )


@dataclass(slots=True)
class Lane:
    """A lane: how much waits and runs in it, its tokens."""

    q: int
    name: str
    ready: int
    running: int
    paused: bool
    bucket: Bucket | None
    wake_at: Micros | None
    policy: LanePolicy
    kept: bool
    """Whether the file has a row of it."""


def state_of(code: int) -> State:
    """The state that a number stands for."""
    return STATES[code]


pack = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


def as_json(values: Iterable[int | str | tuple[int, ...]]) -> str:
    """Values for a statement over `json_each`; `json.dumps` takes eight times as long."""
    return _encode_json(list(values)).decode()


_held = msgspec.msgpack.Decoder(Held)
_delivery = msgspec.msgpack.Decoder(
    tuple[int, SessionId | None, Micros, Micros, Outcome, bool, Cause | None, Micros | None, Error | None]
)
_headers = msgspec.msgpack.Decoder(dict[str, str])
_tags = msgspec.msgpack.Decoder(tuple[str, ...])
_after = msgspec.msgpack.Decoder(tuple[Edge, ...])


def delivery_record(delivery: Delivery) -> bytes:
    """How one lease ended, without its fence, as it is kept: a list, a third as long as with names."""
    return pack(
        (
            delivery.attempt,
            delivery.session,
            delivery.claimed_at,
            delivery.ended_at,
            delivery.outcome,
            delivery.settled,
            delivery.cause,
            delivery.runtime,
            delivery.error,
        )
    )


def read_delivery(fence: Fence, record: bytes) -> Delivery:
    """How the lease of that fence ended."""
    attempt, session, claimed_at, ended_at, outcome, settled, cause, runtime, error = _delivery.decode(record)
    return Delivery(
        fence=fence,
        attempt=attempt,
        session=session,
        claimed_at=claimed_at,
        ended_at=ended_at,
        outcome=outcome,
        settled=settled,
        cause=cause,
        runtime=runtime,
        error=error,
    )


def read_body(row: Sequence[Any]) -> Body:
    """What was asked for, from the columns of `body` but its number."""
    key, mode, window, headers, tags, after, payload = row
    return Body(
        key,
        Mode.IGNORE if mode is None else Mode(mode),
        window or 0,
        {} if headers is None else _headers.decode(headers),
        () if tags is None else _tags.decode(tags),
        () if after is None else _after.decode(after),
        payload,
    )


NO_BODY: Final = Body(None, Mode.IGNORE, 0, {}, (), (), b"")
"""Of a job that is only remembered."""


def read_bucket(level: int | None, at: int | None, per: int | None) -> Bucket | None:
    """A token bucket from its columns."""
    return None if level is None or at is None or per is None else Bucket(level, at, per)


def bucket_columns(bucket: Bucket | None) -> tuple[int | None, int | None, int | None]:
    """The columns of a token bucket."""
    return (None, None, None) if bucket is None else (bucket.level, bucket.at, bucket.per)
