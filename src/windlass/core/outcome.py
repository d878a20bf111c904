"""The words for what became of a lease: outcomes, causes, errors, verdicts."""

from enum import StrEnum

import msgspec

from windlass.core.state import State


class Outcome(StrEnum):
    """What became of a lease."""

    DONE = "done"
    RETRY = "retry"
    SNOOZE = "snooze"
    RELEASE = "release"
    HOLD = "hold"
    DEAD = "dead"
    CANCELLED = "cancelled"


class CauseKind(StrEnum):
    """Why a session ended, which decides who is charged."""

    STOP = "stop"
    """It was asked to: nobody is charged."""
    CRASH = "crash"
    """It died and somebody saw what had started: those jobs are charged, no other."""
    LOST = "lost"
    """Nobody can tell what had started: every lease is charged."""
    DEADLINE = "deadline"
    """Not a session: a deadline lease ran out. Charged, but not a crash."""


class Cause(msgspec.Struct, frozen=True):
    """Why a session or a lease ended, in a word and in detail ("signal 11", "out of memory")."""

    kind: CauseKind
    detail: str = ""


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong in a run, as text: nothing of it is ever executed or imported."""

    type: str
    message: str = ""
    traceback: str = ""
    fingerprint: str = ""
    cause: str = ""
    retryable: bool = True


CANCELLED_ITSELF = "cancelled itself"
"""What the error of a job says that was cancelled by its own task, which raised `Cancelled`. Stores have one
reason for all cancelled runs, `cancelled on request`.
"""


def cancelled_itself(error: Error | None) -> str:
    """In which words a cancelled job was cancelled by its own task; empty: it was not."""
    ours = error is not None and error.type == "Cancelled" and error.message.startswith(CANCELLED_ITSELF)
    return error.message if error is not None and ours else ""


def type_name(error: BaseException) -> str:
    """The name of an exception's class, with its module unless that is Python's own."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class Verdict(StrEnum):
    """What the store makes of a word about `(job, fence)`."""

    APPLIED = "applied"
    ALREADY = "already"
    """This fence was settled before; the outcome that stands is named."""
    STALE = "stale"
    """The lease was taken away; nothing changed."""
    GONE = "gone"
    """No record of the job is kept; nothing changed."""
    REFUSED = "refused"
    """The lease is live but what came with it cannot be kept (a child that enqueue would refuse); nothing
    changed.
    """


class Answer(msgspec.Struct, frozen=True):
    """The answer to one settlement: the verdict, the outcome that stands and the state the job is in now."""

    verdict: Verdict
    outcome: Outcome | None = None
    state: State | None = None
    why: str = ""
