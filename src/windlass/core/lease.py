"""Asking for work, and what is handed out."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from windlass.core.bounds import ASK_QUEUES
from windlass.core.job import GROUP_BYTES
from windlass.core.state import State
from windlass.core.units import Fence, JobId, Micros, SessionId
from windlass.errors import ContractError

CLAIM_JOBS = 1_000
DRAW_RANGE = 2**32


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request for work: for session leases (`session` and `seq`), or for deadline leases (`visibility`)."""

    queues: tuple[str, ...]
    """In the order in which they are emptied."""
    slots: int
    """Free places to run in: all that jobs on their last attempt or never timed may take."""
    limit: int
    """Slots plus prefetch."""
    soon: int = 0
    """Slots plus what will have started within a few milliseconds: all that jobs under a limit may take. Less
    than `slots` means `slots`.
    """
    session: SessionId | None = None
    seq: int | None = None
    """Counts the session's asks from 1; repeated after a lost reply, advanced after an answer."""
    visibility: Micros | None = None
    alone: bool = False
    """Asks for one suspect, to run it alone."""
    max_bytes: int = GROUP_BYTES
    """Payload bytes to hand out; the first job is handed out whatever its size."""
    draw: int = 0
    """A number below 2^32 from the asker, which decides between weighted bands; see `windlass.core.order`."""


def check_ask(ask: Ask) -> Ask:
    """Refuse an ask that has no meaning. Every broker calls this before its procedure."""
    if (ask.session is None) != (ask.seq is None) or (ask.session is None) == (ask.visibility is None):
        raise ContractError("an ask has either session and seq, or visibility")
    if len(ask.queues) > ASK_QUEUES:
        raise ContractError(f"an ask names at most {ASK_QUEUES} queues, got {len(ask.queues)}")
    if ask.seq is not None and ask.seq < 1:
        raise ContractError(f"seq counts from 1, got {ask.seq}")
    if ask.visibility is not None and ask.visibility <= 0:
        raise ContractError(f"visibility must be positive, got {ask.visibility} µs")
    if not 0 <= ask.slots <= ask.limit <= CLAIM_JOBS:
        raise ContractError(
            f"an ask needs 0 <= slots <= limit <= {CLAIM_JOBS}, got {ask.slots} and {ask.limit}"
        )
    if not 0 <= ask.soon <= ask.limit:
        raise ContractError(f"an ask needs 0 <= soon <= limit, got {ask.soon} and {ask.limit}")
    if not 0 <= ask.draw < DRAW_RANGE:
        raise ContractError(f"draw must be from 0 to 2^32 - 1, got {ask.draw}")
    return ask


def room_for(ask: Ask, *, last_attempt: bool, timed: bool, limited: bool) -> int:
    """How many leases an answer may have with such a job as its last: jobs that must not wait in a worker's
    hand go to free slots only.
    """
    if ask.alone:
        return min(1, ask.slots)
    if last_attempt or not timed:
        return ask.slots
    return max(ask.slots, ask.soon) if limited else ask.limit


def new_fence(last: Fence, now: Micros) -> Fence:
    """The fence of a new delivery: higher than any that the job had, whatever became of the clock."""
    return max(last + 1, now)


def is_live(state: State | None, fence: Fence, word: Fence, *, session_alive: bool) -> bool:
    """Whether a word under the fence `word` is about the live lease of a job: the fence check on which
    everything rests. A deadline lease has no session that could be lost.
    """
    return state is State.RUNNING and fence == word and session_alive


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job handed out, with all that its run needs."""

    job: JobId
    fence: Fence
    task: str
    queue: str
    lane: str
    priority: int
    attempt: int
    max_attempts: int
    crashes: int
    revision: int
    payload: bytes
    headers: Mapping[str, str] = {}
    tags: tuple[str, ...] = ()
    flow: str = ""
    parents: tuple[JobId, ...] = ()
    memos: Mapping[str, bytes] = {}
    """What `current.step` recorded in earlier runs."""
    waited: Micros = 0
    """Since the job was due, on the store's clock."""
    expires_in: Micros | None = None
    """Time left for a first start; past it the holder settles the job dead instead of starting it."""
    visibility: Micros | None = None
    """For a deadline lease: the time left until it runs out."""


class Asker(StrEnum):
    """How the store sees the asker."""

    ALIVE = "alive"
    LOST = "lost"
    """Unknown, ended or reaped, or the store has forgotten what it answered: take a new session id."""
    OUTDATED = "outdated"
    """The ask is older than one already answered; nothing was handed out."""


def rule_ask(*, alive: bool, seq: int, answered: int) -> Asker:
    """Decide what an asker is: by its session, its ask's number, and that of the last one that was answered.

    A number beyond the next one says that the store has forgotten an answer, as after a failover or a
    restore: the leases in it would be held by a session that lives and does not know of them.
    """
    if not alive or seq > answered + 1:
        return Asker.LOST
    return Asker.OUTDATED if seq < answered else Asker.ALIVE


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an ask."""

    session: Asker = Asker.ALIVE
    leases: tuple[Lease, ...] = ()
    more: bool = False
    """The claim stopped at a bound: ask again at once."""
    next_in: Micros | None = None
    """When something in the asked queues can become claimable without a new enqueue. Early is allowed, late
    never.
    """
    suspects: int = 0
    """Suspects waiting in the asked queues (counted up to 100)."""
