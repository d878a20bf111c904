"""How a lease ends: a worker proposes an outcome, the store rules.

The rulings are pure functions of what the store knows about the job, and the only place where an outcome
turns into a state. Every store is compared with them.
"""

import msgspec

from windlass.core.job import NewJob
from windlass.core.outcome import Cause, CauseKind, Error, Outcome
from windlass.core.retry import crash_delay
from windlass.core.state import Move, Reason, State
from windlass.core.units import DAY, MINUTE, SECOND, Fence, JobId, Micros

HOLD_FIRST: Micros = SECOND
HOLD_CAP: Micros = 5 * MINUTE
HOLD_LIMIT: Micros = 7 * DAY
SUSPECT_AFTER = 2
"""From this many crashes on a job is a suspect: it runs alone."""


class HoldKey(msgspec.Struct, frozen=True):
    """What would have to appear for a held job to run, and why it is held."""

    key: str
    reason: str


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A holder's word on what became of its lease."""

    job: JobId
    fence: Fence
    outcome: Outcome
    delay: Micros = 0
    """For retry and snooze."""
    runtime: Micros | None = None
    """How long the task's code ran; None if it never started."""
    error: Error | None = None
    result: bytes | None = None
    hold: HoldKey | None = None
    """For hold."""
    spawn: tuple[NewJob, ...] = ()
    """Children, created in the same step; only with done: they exist exactly when the run that made them
    counts.
    """


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows about a running job when its lease ends."""

    attempt: int
    max_attempts: int
    crashes: int = 0
    """Before this end."""
    cancel_requested: bool = False
    superseded: bool = False
    """A newer call under its key waits for it to end (mode `replace`)."""
    holds: int = 0
    held_for: Micros = 0
    """Since its first hold."""


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the job."""

    outcome: Outcome
    move: Move
    state: State
    reason: Reason | None = None
    delay: Micros = 0
    """With state `scheduled`: how long. A delay of nothing means `ready` at once."""
    charged: bool = True
    """False: the attempt counted at claim is given back."""
    keeps_place: bool = False
    """It goes back with the band and the sequence it had."""


def rule_settlement(facts: JobFacts, settlement: Settlement) -> Ruling:
    """Rule on a holder's word."""
    if settlement.outcome is Outcome.DONE:
        return Ruling(outcome=Outcome.DONE, move=Move.DONE, state=State.DONE)
    if ended := _cancelled(facts):
        return ended
    match settlement.outcome:
        case Outcome.CANCELLED:
            return _CANCELLED
        case Outcome.DEAD:
            return Ruling(outcome=Outcome.DEAD, move=Move.DEAD, state=State.DEAD, reason=Reason.GAVE_UP)
        case Outcome.RETRY:
            if facts.attempt >= facts.max_attempts:
                return Ruling(
                    outcome=Outcome.DEAD, move=Move.RETRY, state=State.DEAD, reason=Reason.EXHAUSTED
                )
            return _later(Outcome.RETRY, Move.RETRY, settlement.delay)
        case Outcome.SNOOZE:
            return _later(Outcome.SNOOZE, Move.SNOOZE, settlement.delay, charged=False)
        case Outcome.HOLD:
            return _hold(facts)
        case Outcome.RELEASE:
            return _GIVEN_BACK


def rule_session_end(facts: JobFacts, cause: Cause, *, started: bool) -> Ruling:
    """Rule on a lease whose session ended. `started` counts for cause `crash` only."""
    if ended := _cancelled(facts):
        return ended
    if cause.kind is CauseKind.STOP or (cause.kind is CauseKind.CRASH and not started):
        return _GIVEN_BACK
    move, reason = (Move.CRASH, Reason.CRASHED) if cause.kind is CauseKind.CRASH else (Move.LOST, Reason.LOST)
    if facts.attempt >= facts.max_attempts:
        return Ruling(outcome=Outcome.DEAD, move=move, state=State.DEAD, reason=reason)
    delay = crash_delay(facts.crashes + 1)
    if delay:
        return Ruling(outcome=Outcome.RETRY, move=move, state=State.SCHEDULED, delay=delay)
    return Ruling(outcome=Outcome.RETRY, move=move, state=State.READY, keeps_place=True)


def rule_deadline(facts: JobFacts) -> Ruling:
    """Rule on a deadline lease that ran out: charged, but not a crash.

    A slow consumer would otherwise turn its jobs into suspects, which only an ask with `alone` may have.
    """
    if ended := _cancelled(facts):
        return ended
    if facts.attempt >= facts.max_attempts:
        return Ruling(outcome=Outcome.DEAD, move=Move.DEADLINE, state=State.DEAD, reason=Reason.DEADLINE)
    return Ruling(outcome=Outcome.RETRY, move=Move.DEADLINE, state=State.READY, keeps_place=True)


def is_crash(cause: Cause, ruling: Ruling) -> bool:
    """Whether an end counts towards being a suspect: it was charged, and for a crash or a lost session."""
    return ruling.charged and cause.kind in (CauseKind.CRASH, CauseKind.LOST)


_GIVEN_BACK = Ruling(
    outcome=Outcome.RELEASE, move=Move.RELEASE, state=State.READY, charged=False, keeps_place=True
)
_CANCELLED = Ruling(
    outcome=Outcome.CANCELLED, move=Move.CANCEL, state=State.CANCELLED, reason=Reason.CANCELLED
)
_SUPERSEDED = Ruling(
    outcome=Outcome.CANCELLED, move=Move.SUPERSEDE, state=State.CANCELLED, reason=Reason.SUPERSEDED
)


def _cancelled(facts: JobFacts) -> Ruling | None:
    """With the flag set, or a newer call waiting, every end but done is `cancelled`."""
    if facts.cancel_requested:
        return _CANCELLED
    return _SUPERSEDED if facts.superseded else None


def _later(outcome: Outcome, move: Move, delay: Micros, *, charged: bool = True) -> Ruling:
    state = State.SCHEDULED if delay > 0 else State.READY
    return Ruling(outcome=outcome, move=move, state=state, delay=max(0, delay), charged=charged)


def _hold(facts: JobFacts) -> Ruling:
    if facts.held_for >= HOLD_LIMIT:
        # Nothing ran, so the attempt is given back: a replay shows the count of real runs.
        return Ruling(
            outcome=Outcome.DEAD,
            move=Move.HOLD,
            state=State.DEAD,
            reason=Reason.HELD_TOO_LONG,
            charged=False,
        )
    return _later(Outcome.HOLD, Move.HOLD, hold_delay(facts.holds), charged=False)


def hold_delay(holds: int) -> Micros:
    """How long a job waits that was held `holds` times before: from 1 s, doubling, to 5 min."""
    # The exponent is bounded so that a job held for a week does not build huge integers.
    return min(HOLD_CAP, HOLD_FIRST << min(holds, 16))
