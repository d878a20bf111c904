"""How a run ends: what was returned or raised becomes a settlement. No other file decides on an outcome.

A lease that never became a run gets its settlement here, too: given back, held, or dead because it expired.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType

import msgspec

from windlass.core.lease import Lease
from windlass.core.outcome import CANCELLED_ITSELF, Error, Outcome, type_name
from windlass.core.retry import RetryPolicy, crash_delay
from windlass.core.secret import Cleaner, secret_texts
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.units import SECOND, Micros
from windlass.errors import InvalidOption, InvalidPayload
from windlass.observe.failures import Failure, report
from windlass.observe.runs import Clean, outcome_of
from windlass.pace import Pace
from windlass.signals import Cancelled, GiveUp, Retry, Signal, Snooze
from windlass.worker import twins
from windlass.worker.failure import (
    MESSAGE_CHARS,
    RunInterrupted,
    RunTimedOut,
    as_error,
    clipped,
    formatted,
    leaves,
    said,
    shortened,
    users_frames,
)
from windlass.worker.holds import VALUES_KEY, hold_key
from windlass.worker.program import Registered
from windlass.worker.run import Run

_log = logging.getLogger("windlass.worker")

_DONE = Outcome.DONE
"""Before Python 3.12 it takes as long to look up a member of an enumeration as to make the settlement."""


class Concluder:
    """Makes the settlements of runs."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._now = pace.now
        self._pid = twins.pid

    def returned(self, run: Run, task: Registered, value: object) -> Settlement:
        """The settlement of a run that returned: done, even if the job was meanwhile asked to stop."""
        if twins.pid != self._pid:
            twins.end_twin(task.name)
        try:
            result = task.signature.encode_result(value)
        except InvalidPayload as error:
            # The code has run to its end. To run it again would repeat its effects and fail here again.
            # Secrets in what was returned, besides those of the call.
            returned = Cleaner(secret_texts(value, names=task.signature.names))

            def clean(text: str) -> str:
                return returned(run.clean(text))

            kept = as_error(error, retryable=False, clean=clean)
            return _reported(run.lease, self._settlement(run, Outcome.DEAD, error=kept), error, clean)
        lease, runtime = run.lease, int((self._now() - run.started) * SECOND + 0.5)
        if result is None and not run.spawned:
            return Settlement(job=lease.job, fence=lease.fence, outcome=_DONE, runtime=runtime)
        return Settlement(
            job=lease.job,
            fence=lease.fence,
            outcome=_DONE,
            runtime=runtime,
            result=result,
            spawn=run.spawned,
        )

    def raised(self, run: Run, task: Registered, error: BaseException) -> Settlement:
        """The settlement of a run that raised, whatever it raised."""
        if twins.pid != self._pid:
            twins.end_twin(task.name)
        error = _cause(run, task, error)
        try:
            return _reported(run.lease, self._judged(run, task, error), error, run.clean)
        except BaseException as trouble:  # noqa: BLE001
            # A class of exceptions may be written so that even looking at one raises.
            why = shortened(run.clean(formatted(trouble) or type_name(trouble)))
            unread = said(run.clean(type(error).__name__), "its error cannot be read")
            kept = msgspec.structs.replace(unread, traceback=why)
            return _reported(run.lease, self._settlement(run, Outcome.RETRY, delay=SECOND, error=kept))

    def _judged(self, run: Run, task: Registered, error: BaseException) -> Settlement:
        return self._told(run, task, _outcome(run, task, error), error)

    def refused(self, run: Run, task: Registered, why: str) -> Settlement:
        """The settlement of a run that returned, but spawned jobs that the store refuses."""
        error = RuntimeError(f"what it spawned was refused: {why}")
        outcome = _outcome_of_failure(task, error)
        return _reported(run.lease, self._told(run, task, outcome, error), error, run.clean)

    def dropped(self, run: Run | None, settlement: Settlement, why: str) -> Settlement:
        """The settlement of a lease on which the store takes no other word: a dead letter."""
        why = why if run is None else run.clean(why)
        dead = Settlement(
            job=settlement.job,
            fence=settlement.fence,
            outcome=Outcome.DEAD,
            runtime=settlement.runtime,
            error=said("NotSettled", why, retryable=False),
        )
        return dead if run is None else _reported(run.lease, dead)

    def died(self, run: Run, cause: str) -> Settlement:
        """The settlement of a run whose own process died; the worker lives on."""
        if run.released or run.cancelled:
            return self._settlement(run, Outcome.RELEASE if run.released else Outcome.CANCELLED)
        error = said("ProcessDied", f"the process of this job died: {cause}", cause=cause)
        delay = crash_delay(run.lease.attempt)
        return _reported(run.lease, self._settlement(run, Outcome.RETRY, delay=delay, error=error))

    def _told(self, run: Run, task: Registered, outcome: Outcome, error: BaseException) -> Settlement:
        """The settlement of a run that ends so, with what is kept of its error."""
        match outcome:
            case Outcome.RETRY:
                kept = as_error(error, retryable=True, clean=run.clean)
                after = error.after if isinstance(error, Retry) else None
                delay = self._delay(task.options.retry, run, task) if after is None else after
                return self._settlement(run, outcome, delay=delay, error=kept)
            case Outcome.DEAD:
                kept = as_error(error, retryable=False, clean=run.clean)
                return self._settlement(run, outcome, error=kept)
            case Outcome.SNOOZE if isinstance(error, Snooze):
                return self._settlement(run, outcome, delay=error.delay)
            case Outcome.CANCELLED if isinstance(error, Cancelled) and not run.cancelled:
                why = clipped(run.clean(error.why), MESSAGE_CHARS)
                kept = said("Cancelled", f"{CANCELLED_ITSELF}: {why}" if why else CANCELLED_ITSELF)
                return self._settlement(run, outcome, error=kept)
            case _:
                return self._settlement(run, outcome)

    def _delay(self, policy: RetryPolicy, run: Run, task: Registered) -> Micros:
        try:
            return policy.delay(run.lease.attempt, draw=self._pace.jitter())
        except InvalidOption as error:
            why = run.clean(str(error))
            _log.warning("task %s: its backoff failed, so the default delay is used: %s", task.name, why)
            return RetryPolicy().delay(run.lease.attempt, draw=self._pace.jitter())

    def _settlement(self, run: Run, outcome: Outcome, **more: object) -> Settlement:
        return Settlement(
            job=run.lease.job,
            fence=run.lease.fence,
            outcome=outcome,
            runtime=self._runtime(run),
            **more,  # pyright: ignore[reportArgumentType]
        )

    def _runtime(self, run: Run) -> Micros:
        return int((self._now() - run.started) * SECOND + 0.5)  # never below zero: the clock does not go back


def ends_job(run: Run, task: Registered, error: BaseException) -> bool:
    """Whether a run that raises this is the last of its job: for what is around a task's code."""
    outcome = _outcome(run, task, _cause(run, task, error))
    ruled = outcome_of(run.lease, Settlement(job=run.lease.job, fence=run.lease.fence, outcome=outcome))
    return ruled in (Outcome.DEAD, Outcome.CANCELLED)


def _outcome(run: Run, task: Registered, error: BaseException) -> Outcome:
    """The one place where what was raised becomes an outcome.

    RETRY on the last attempt, too: the store counts attempts and makes the job a dead letter.
    """
    if run.released:
        return Outcome.RELEASE
    if run.cancelled:
        return Outcome.CANCELLED
    match error:
        case Cancelled():
            return Outcome.RELEASE if error.lease_lost else Outcome.CANCELLED  # refused, if it is lost
        case Snooze():
            return Outcome.SNOOZE
        case GiveUp():
            return Outcome.DEAD
        case Signal():
            return Outcome.RETRY
        case _:
            return _outcome_of_failure(task, error)


def _outcome_of_failure(task: Registered, error: BaseException) -> Outcome:
    judged = error if isinstance(error, Exception) else _interrupted(error)
    return Outcome.DEAD if task.options.retry.gives_up(judged) else Outcome.RETRY


def _cause(run: Run, task: Registered, error: BaseException) -> BaseException:
    """The error to judge: a timeout stops the code with errors that say nothing of it. A task group raises a
    group: one that holds nothing but signals counts as the first of them.
    """
    inner = leaves(error)
    if all(isinstance(each, Signal) for each in inner):
        return inner[0]
    if not run.timed_out or not isinstance(error, TimeoutError | asyncio.CancelledError):
        return error
    length = (task.options.timeout or 0) / SECOND
    late = RunTimedOut(f"it ran for longer than its timeout of {length:g} s")
    return late.with_traceback(error.__traceback__)  # where the code was at that moment


def _interrupted(error: BaseException) -> RunInterrupted:
    return RunInterrupted(f"{type(error).__name__}: {error}")


def _reported(
    lease: Lease, settlement: Settlement, raised: BaseException | None = None, clean: Clean = str
) -> Settlement:
    """Report the failure that a settlement tells of, if it does; returns the settlement."""
    error = settlement.error
    if error is None or settlement.outcome is Outcome.CANCELLED:
        return settlement
    outcome = outcome_of(lease, settlement)
    report(
        Failure(
            job=lease.job,
            task=lease.task,
            queue=lease.queue,
            lane=lease.lane,
            attempt=lease.attempt,
            max_attempts=lease.max_attempts,
            fence=lease.fence,
            outcome=outcome,
            error=error,
            retry_in=settlement.delay / SECOND if outcome is Outcome.RETRY else None,
            asked_for=isinstance(raised, Signal),
            exception=raised,
            frames=_frames(raised),
            clean=clean,
        )
    )
    return settlement


def _frames(raised: BaseException | None) -> TracebackType | None:
    return None if raised is None else users_frames(raised.__traceback__)


# --- leases that never became a run -------------------------------------------------------------------------


def given_back(lease: Lease) -> Settlement:
    """The settlement of a lease that was not started: another worker gets it, no attempt is spent."""
    return _unstarted(lease, Outcome.RELEASE)


def expired(lease: Lease) -> Settlement:
    """The settlement of a lease that was not started before its job expired."""
    return _unstarted(
        lease, Outcome.DEAD, error=said("Expired", "it was not started in time", retryable=False)
    )


def unknown(lease: Lease) -> Settlement:
    """The settlement of a lease whose task this program does not have."""
    return held(lease, said("UnknownTask", f'no task "{lease.task}" in this app'))


def unreadable(
    lease: Lease, task: Registered, error: Exception, *, patterns: Sequence[str] = ()
) -> Settlement:
    """The settlement of a lease whose payload this code cannot read. The error may come from a type of the
    app and quote the payload, so secrets are removed from it, and what looks private by these patterns.
    """
    clean = Cleaner(task.signature.secrets_in(lease.payload), patterns)
    kept = as_error(error, retryable=True, clean=clean)
    return held(
        lease, kept, why=clean(f"this code cannot read its payload: {error}"), raised=error, clean=clean
    )


def kept_away(lease: Lease, error: Exception) -> Settlement:
    """The settlement of a lease whose payload is in object storage, which is away: it is held until that
    answers again, and no attempt is spent.
    """
    _log.warning("job %s waits: %s", lease.job, error)
    return _unstarted(lease, Outcome.HOLD, hold=HoldKey(VALUES_KEY, clipped(str(error), 500)))


def held(
    lease: Lease,
    error: Error,
    *,
    key: str = "",
    why: str = "",
    raised: BaseException | None = None,
    clean: Clean = str,
) -> Settlement:
    """The settlement of a lease that this worker cannot run, though another may: it is held, under its task's
    key if there is no other, and no attempt is spent. It carries no error, since nothing ran; the error is
    reported.
    """
    hold = HoldKey(key or hold_key(lease.task), clipped(why or error.message, 500))
    settlement = _unstarted(lease, Outcome.HOLD, hold=hold)
    _reported(lease, msgspec.structs.replace(settlement, error=error), raised, clean)
    return settlement


def _unstarted(lease: Lease, outcome: Outcome, **more: object) -> Settlement:
    return Settlement(
        job=lease.job,
        fence=lease.fence,
        outcome=outcome,
        **more,  # pyright: ignore[reportArgumentType]
    )
