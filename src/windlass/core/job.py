"""A job as it is handed in, and as it can be read."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from windlass.core.names import refuse_reserved
from windlass.core.outcome import Cause, Error, Outcome
from windlass.core.state import Move, Reason, State
from windlass.core.units import Fence, JobId, Micros, SessionId
from windlass.core.webhook import CALLBACK, check_target
from windlass.errors import InvalidOption

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
GROUP_JOBS = 1_000
GROUP_BYTES = 8 * 1024 * 1024
GROUP_EDGES = 10_000
MAX_PARENTS = 1_000
MAX_ATTEMPTS = 10_000


class Mode(StrEnum):
    """What a second call under the same unique key does; see `windlass.core.dedup`."""

    IGNORE = "ignore"
    REPLACE = "replace"
    THROTTLE = "throttle"


class OnFailure(StrEnum):
    """What an edge does when its parent will never be done.

    `cancel` and `ignore` act once the parent's fate is sealed: cancelled, discarded, purged or pruned; a dead
    parent may still be replayed, so its dependents wait. `run` is for clean-up work: it also acts on a dead
    parent.
    """

    CANCEL = "cancel"
    IGNORE = "ignore"
    RUN = "run"


class Edge(msgspec.Struct, frozen=True):
    """The wish to run only after `parent`."""

    parent: JobId
    on_failure: OnFailure = OnFailure.CANCEL


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job as a producer hands it in. `id` makes the call repeatable; the rest is what was asked for."""

    id: JobId
    task: str
    queue: str = "default"
    lane: str = ""
    priority: int = 0
    key: str | None = None
    mode: Mode = Mode.IGNORE
    window: Micros = 0
    delay: Micros = 0
    run_at: Micros | None = None
    expires: Micros | None = None
    payload: bytes = b""
    headers: Mapping[str, str] = {}
    tags: tuple[str, ...] = ()
    after: tuple[Edge, ...] = ()
    max_attempts: int = 5
    revision: int = 0
    flow: str = ""


def due_at(asked: NewJob, now: Micros) -> Micros:
    """When a job is due that is accepted now."""
    return now + asked.delay if asked.run_at is None else max(now, asked.run_at)


def check_new_job(job: NewJob) -> NewJob:
    """Refuse options that no store could honour, and what only Windlass itself may enqueue. Called at every
    door (client, API, import, spawn), so stores need not. What Windlass enqueues for itself comes through
    none of them.
    """
    refuse_reserved(job.task, "task")
    refuse_reserved(job.queue, "queue")
    if CALLBACK in job.headers:
        check_target(job.headers[CALLBACK], name=f'header "{CALLBACK}"')
    for problem in (_problem_with_time(job), _problem_with_key(job), _problem_with_parents(job)):
        if problem is not None:
            raise InvalidOption(problem)
    if not LOWEST_PRIORITY <= job.priority <= HIGHEST_PRIORITY:
        raise InvalidOption(
            f"priority must be from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, not {job.priority}"
        )
    if not 1 <= job.max_attempts <= MAX_ATTEMPTS:
        raise InvalidOption(f"max_attempts must be from 1 to {MAX_ATTEMPTS}, not {job.max_attempts}")
    return job


def _problem_with_time(job: NewJob) -> str | None:
    if job.delay < 0:
        return f"delay must not be negative, got {job.delay} µs"
    if job.delay and job.run_at is not None:
        return "give delay or run_at, not both"
    if job.expires is not None and job.expires <= 0:
        return f"expires must be positive, got {job.expires} µs"
    return None


def _problem_with_key(job: NewJob) -> str | None:
    if job.window < 0:
        return f"window must not be negative, got {job.window} µs"
    if job.key is None and (job.window or job.mode is not Mode.IGNORE):
        return "mode and window need a key"
    if job.mode is Mode.REPLACE and job.after:
        # A replaced job keeps its id, so it cannot take over another call's parents.
        return "a job with mode='replace' cannot have parents (after=)"
    return None


def _problem_with_parents(job: NewJob) -> str | None:
    parents = [edge.parent for edge in job.after]
    if len(parents) > MAX_PARENTS:
        return f"a job can have at most {MAX_PARENTS} parents, got {len(parents)}"
    if len(set(parents)) != len(parents):
        return "after names the same parent twice"
    return "a job cannot wait for itself" if job.id in parents else None


class Status(StrEnum):
    """What became of one job of an `enqueue`."""

    CREATED = "created"
    ACCEPTED = "accepted"
    """A front door has it, and the store knows nothing of it yet. No store answers so."""
    DUPLICATE = "duplicate"
    REPLACED = "replaced"
    REFUSED = "refused"


class Refusal(StrEnum):
    """Why a job was not accepted."""

    UNKNOWN_QUEUE = "unknown queue"
    UNKNOWN_PARENT = "unknown parent"
    CYCLE = "cycle"
    GROUP_TOO_LARGE = "group too large"
    STORE_FULL = "store full"
    NEIGHBOUR = "another job of its group was refused"


class Receipt(msgspec.Struct, frozen=True):
    """The answer to one job of an `enqueue`: unless it was created, `of` names the job that stands for it."""

    status: Status
    job: JobId
    of: JobId | None = None
    refusal: Refusal | None = None
    why: str = ""


class Held(msgspec.Struct, frozen=True):
    """A job that the workers at hand cannot run: the key that frees it, why, since when and how often."""

    key: str
    reason: str
    since: Micros
    times: int


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One lease of a job, kept in its history: which fence, who held it, how it ended."""

    fence: Fence
    attempt: int
    session: SessionId | None
    claimed_at: Micros
    ended_at: Micros
    outcome: Outcome
    settled: bool
    """Whether its holder said so. False: the store ended the lease (session ended or lost, deadline)."""
    cause: Cause | None = None
    runtime: Micros | None = None
    error: Error | None = None


class Progress(msgspec.Struct, frozen=True):
    """How far a job says it is: parts in a thousand, and a word."""

    permille: int
    message: str = ""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as listings show it: all that is small."""

    id: JobId
    task: str
    queue: str
    lane: str
    priority: int
    state: State
    reason: Reason | None
    attempt: int
    max_attempts: int
    crashes: int
    fence: Fence
    key: str | None
    tags: tuple[str, ...]
    flow: str
    parent: JobId | None
    revision: int
    accepted_at: Micros
    due_at: Micros
    expires_at: Micros | None
    finished_at: Micros | None
    session: SessionId | None
    cancel_requested: bool
    held: Held | None
    waiting_for: int
    replays: int
    progress: Progress | None
    pruned: bool = False
    """Only the memory of how it ended is left, for the resend window; see `FORGOTTEN`."""


class JobDetail(JobView, frozen=True, kw_only=True):
    """A job with everything that is kept of it. The payload is whole: redaction is the reader's duty."""

    payload: bytes = b""
    headers: Mapping[str, str] = {}
    after: tuple[Edge, ...] = ()
    result: bytes | None = None
    error: Error | None = None
    deliveries: tuple[Delivery, ...] = ()
    logs: tuple[str, ...] = ()
    memos: tuple[str, ...] = ()


FORGOTTEN = JobDetail(
    id="",
    task="",
    queue="",
    lane="",
    priority=0,
    state=State.DONE,
    reason=None,
    attempt=0,
    max_attempts=0,
    crashes=0,
    fence=0,
    key=None,
    tags=(),
    flow="",
    parent=None,
    revision=0,
    accepted_at=0,
    due_at=0,
    expires_at=None,
    finished_at=None,
    session=None,
    cancel_requested=False,
    held=None,
    waiting_for=0,
    replays=0,
    progress=None,
    pruned=True,
)
"""What is read of a job of which only the end is remembered; id, state, reason, fence and time are filled in.
"""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiter for a job's end is told."""

    job: JobId
    state: State
    reason: Reason | None = None
    result: bytes | None = None
    error: Error | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A transition that a verb made on a job it was not called with by name; for logs and metrics."""

    job: JobId
    queue: str
    task: str
    lane: str
    move: Move
    before: State
    after: State
    reason: Reason | None = None
