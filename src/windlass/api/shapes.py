"""What workers that speak HTTP send and are sent; see `windlass.api.routes.leases`."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from windlass.core.bounds import CALL_ITEMS
from windlass.core.session import LOG_LINES
from windlass.core.units import Fence, JobId

LONGEST_WAIT = 60
"""Seconds that a request may wait for something to happen."""
MOST_LEASES = 100
MOST_QUEUES = 100
Seconds = Annotated[float, Meta(ge=0, le=100 * 365 * 86_400)] | Annotated[str, Meta(max_length=40)]
"""A duration: seconds, or text such as "5m" and "24h"."""
Text = Annotated[str, Meta(max_length=20_000)]
Line = Annotated[str, Meta(max_length=2_000)]
Name = Annotated[str, Meta(max_length=200)]
Token = Annotated[str, Meta(max_length=500)]


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for work."""

    queues: Annotated[list[str], Meta(min_length=1, max_length=MOST_QUEUES)]
    """In the order in which they are emptied."""
    limit: Annotated[int, Meta(ge=1, le=MOST_LEASES)] = 1
    """Jobs to hand out, at the most."""
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0
    """Seconds to wait for the first job."""
    visibility: Seconds | None = None
    """How long the leases stand unless they are extended; from 1 s to 12 h, by default 30 s."""
    session: Token | None = None
    """The token of a session: its leases stand while it beats, and have no visibility."""
    seq: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    """Counts the asks of a session from 1: the same again returns what a lost answer held."""
    alone: bool = False
    """Ask for one suspect: a job that was running when its workers crashed, and is to run by itself."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a call."""

    args: tuple[msgspec.Raw, ...]
    kwargs: dict[str, msgspec.Raw]


class LeaseShown(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was handed out, with all that its run needs."""

    lease: str
    """The token: what is said about this run carries it."""
    job: JobId
    task: str
    payload: Arguments
    queue: str
    lane: str
    priority: int
    attempt: int
    max_attempts: int
    fence: Fence
    headers: dict[str, str]
    tags: tuple[str, ...]
    flow: str
    parents: tuple[JobId, ...]
    idempotency_key: str
    """The same in every run of this job, and of no other."""
    waited: float
    """Seconds since it was due."""
    expires_in: float | None
    """Seconds that are left for a first start."""
    visibility: float | None
    """Seconds until the lease runs out; none in a session."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request for work."""

    session: str
    """alive; lost: open a new session; outdated: this `seq` was answered before."""
    leases: list[LeaseShown]
    more: bool
    """There is more: ask again at once."""
    next_in: float | None
    """Seconds until something can become claimable without a new job."""
    suspects: int
    """Jobs that wait to run alone."""


class ErrorGiven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What went wrong. Values that are secret in the payload are taken out before it is kept."""

    type: Name = "Error"
    message: Text = ""
    traceback: Text = ""


class Settle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of a run."""

    outcome: Literal["ack", "nack", "reject", "snooze", "release", "hold"]
    """ack: done. nack: try again, an attempt is spent. reject: dead, for good. snooze: later, no attempt
    spent. release: now, somebody else, no attempt spent. hold: this worker cannot run it.
    """
    result: msgspec.Raw | UnsetType = UNSET
    """For ack: any JSON value."""
    delay: Seconds | None = None
    """For nack and snooze; a nack without one waits as the task's retry policy says."""
    error: ErrorGiven | None = None
    """For nack and reject."""
    reason: Line = ""
    """For hold: why."""
    runtime: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """Seconds that it ran."""


class SettleOne(Settle, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of one of several runs."""

    lease: Token


class SettleMany(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of several runs."""

    items: Annotated[list[SettleOne], Meta(min_length=1, max_length=CALL_ITEMS)]


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What the store makes of it."""

    verdict: str
    """applied; already: this delivery was settled before; stale: the lease was taken away; gone: no such
    job.
    """
    outcome: str | None
    """The outcome that stands."""
    state: str | None


class SettledMany(msgspec.Struct, frozen=True, kw_only=True):
    """The same for several, in their order."""

    items: list[Settled]


class Extend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """More time, counted from now."""

    visibility: Seconds | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run is doing."""

    fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Line = ""
    logs: Annotated[list[Line], Meta(max_length=LOG_LINES)] = []
    visibility: Seconds | None = None
    """More time, too, counted from now."""


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that stands."""

    visibility: float | None
    """Seconds from now, if it was extended."""
    cancel: bool
    """The job is to be cancelled: stop it and settle it; whatever you say but ack makes it cancelled."""


class OpenSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker process that will beat."""

    queues: Annotated[list[str], Meta(max_length=MOST_QUEUES)] = []
    slots: Annotated[int, Meta(ge=0, le=100_000)] = 1
    host: Name = ""
    pid: Annotated[int, Meta(ge=0, le=2**31)] = 0
    version: Name = ""
    ttl: Seconds | None = None
    """How long it may be silent; by default the app's session TTL."""


class SessionOpened(msgspec.Struct, frozen=True, kw_only=True):
    """A session."""

    session: str
    """Its token."""
    id: str
    """As operators see it among workers."""
    ttl: float
    beat: float
    """Seconds between two beats."""


class BeatGiven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sign of life."""

    memory: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a beat."""

    alive: bool
    """False: its jobs were given to others; stop them, and open a new session."""
    cancel: list[str]
    """Tokens of leases that are to be cancelled."""
