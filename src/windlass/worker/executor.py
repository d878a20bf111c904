"""From a lease to exactly one settlement, in named steps.

refuse       reasons not to start: unknown task, expired, no sign of life from the store for too long
start        the table says so, just before the task's first line
read         payload to arguments
(invoke      the runner's part: in the loop, a thread, a process)
conclude     what was returned, or raised, becomes an outcome: the only place where one is born
"""

import asyncio
import logging
from collections.abc import Callable

from windlass.core.lease import Lease
from windlass.core.outcome import Outcome
from windlass.core.retry import RetryPolicy, crash_delay
from windlass.core.secret import Cleaner, secret_texts
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.units import SECOND, Micros
from windlass.errors import InvalidOption, InvalidPayload, UnreadablePayload
from windlass.signals import GiveUp, Retry, Signal, Snooze
from windlass.worker import twins
from windlass.worker.failure import (
    RunInterrupted,
    RunTimedOut,
    as_error,
    clipped,
    formatted,
    said,
    shortened,
    type_name,
)
from windlass.worker.hand import Ticket
from windlass.worker.holds import hold_key
from windlass.worker.pace import Pace
from windlass.worker.program import Program, Registered
from windlass.worker.run import Reporter, Run
from windlass.worker.table import Table

_log = logging.getLogger("windlass.worker")

Arguments = tuple[tuple[object, ...], dict[str, object]]

_DONE = Outcome.DONE
"""Before Python 3.12 to ask an enumeration for a member takes as long as to make the settlement."""


class Concluder:
    """The last step."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._now = pace.now
        self._pid = twins.pid

    def returned(self, run: Run, task: Registered, value: object) -> Settlement:
        """The outcome of a run that returned. Done stands, whatever was asked of it meanwhile."""
        if twins.pid != self._pid:
            twins.end_twin(task.name)
        try:
            result = task.signature.encode_result(value)
        except InvalidPayload as error:
            # Its effects have happened and would happen again: running it once more mends nothing.
            clean = Cleaner(secret_texts(value))  # of what was returned, besides those of the call
            kept = as_error(error, retryable=False, clean=lambda text: clean(run.clean(text)))
            return self._settlement(run, Outcome.DEAD, error=kept)
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
        """The outcome of a run that raised, whatever that is."""
        if twins.pid != self._pid:
            twins.end_twin(task.name)
        try:
            return self._judged(run, task, error)
        except Exception as trouble:  # noqa: BLE001
            # An exception can be written so that it cannot even be looked at.
            why = shortened(run.clean(formatted(trouble) or type_name(trouble)))
            _log.error("job %s (%s): its error cannot be read\n%s", run.lease.job, task.name, why)
            unread = said(run.clean(type(error).__name__), "its error cannot be read")
            return self._settlement(run, Outcome.RETRY, delay=SECOND, error=unread)

    def _judged(self, run: Run, task: Registered, error: BaseException) -> Settlement:
        if run.released:
            return self._settlement(run, Outcome.RELEASE)
        if run.cancelled:
            return self._settlement(run, Outcome.CANCELLED)
        if isinstance(error, Signal):
            return self._signalled(run, task, error)
        if run.timed_out and isinstance(error, TimeoutError | asyncio.CancelledError):
            length = (task.options.timeout or 0) / SECOND
            error = RunTimedOut(f"it ran for longer than its timeout of {length:g} s")
        return self._failed(run, task, error)

    def refused(self, run: Run, task: Registered, why: str) -> Settlement:
        """The outcome of a run that was done, and whose children the store does not accept."""
        return self._failed(run, task, RuntimeError(f"what it spawned was refused: {why}"))

    def died(self, run: Run, cause: str) -> Settlement:
        """The outcome of a run whose own process died; its worker goes on."""
        if run.released or run.cancelled:
            return self._settlement(run, Outcome.RELEASE if run.released else Outcome.CANCELLED)
        error = said("ProcessDied", f"the process of this job died: {cause}", cause=cause)
        return self._settlement(run, Outcome.RETRY, delay=crash_delay(run.lease.attempt), error=error)

    def _signalled(self, run: Run, task: Registered, signal: Signal) -> Settlement:
        match signal:
            case Snooze():
                return self._settlement(run, Outcome.SNOOZE, delay=signal.delay)
            case GiveUp():
                kept = as_error(signal, retryable=False, clean=run.clean)
                return self._settlement(run, Outcome.DEAD, error=kept)
            case Retry() if signal.after is not None:
                kept = as_error(signal, retryable=True, clean=run.clean)
                return self._settlement(run, Outcome.RETRY, delay=signal.after, error=kept)
            case _:
                delay = self._delay(task.options.retry, run, task)
                kept = as_error(signal, retryable=True, clean=run.clean)
                return self._settlement(run, Outcome.RETRY, delay=delay, error=kept)

    def _failed(self, run: Run, task: Registered, error: BaseException) -> Settlement:
        policy = task.options.retry
        judged = error if isinstance(error, Exception) else _interrupted(error)
        stop = policy.gives_up(judged)
        kept = as_error(error, retryable=not stop, clean=run.clean)
        if stop:
            return self._settlement(run, Outcome.DEAD, error=kept)
        # On the last attempt, too: the store, which counts them, makes it a dead letter with that reason.
        return self._settlement(run, Outcome.RETRY, delay=self._delay(policy, run, task), error=kept)

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


class Executor(Concluder):
    """All steps but the runner's; it holds no state of a run."""

    def __init__(
        self,
        table: Table,
        reporter: Reporter,
        pace: Pace,
        *,
        is_lost: Callable[[], bool],
        program: Program,
    ) -> None:
        super().__init__(pace)
        self._program = program
        self._table = table
        self._reporter = reporter
        self._is_lost = is_lost

    def refuse(self, ticket: Ticket) -> Settlement | None:
        """What becomes of a lease that this worker does not start."""
        lease = ticket.lease
        if lease.expires_in is not None:
            late = (self._pace.now() - ticket.received) * SECOND - lease.expires_in
            if late > 0:
                return _ended(
                    lease, Outcome.DEAD, error=said("Expired", "it was not started in time", retryable=False)
                )
        if self._is_lost():
            return given_back(lease)
        return None

    def start(self, ticket: Ticket) -> Run | None:
        """Mark it as started. None: the supervisor has taken it back."""
        now, rules, lease = self._now(), ticket.task.options, ticket.lease
        soft, hard = rules.timeout, rules.hard_timeout
        if not self._table.start(ticket.slot, 0.0 if hard is None else now + hard / SECOND):
            return None
        return Run(
            lease=lease,
            started=now,
            deadline=None if soft is None else now + soft / SECOND,
            reporter=self._reporter,
            is_lost=self._is_lost,
            program=self._program,
            memos=dict(lease.memos) if lease.memos else {},
        )

    def read(self, ticket: Ticket) -> Arguments | Settlement:
        """The arguments. After the start: reading may run users' code, and what that does is the job's."""
        try:
            return ticket.task.signature.decode(ticket.lease.payload)
        except (UnreadablePayload, InvalidPayload) as error:
            return unreadable(ticket.lease, ticket.task, error)


def given_back(lease: Lease) -> Settlement:
    """The settlement of a lease that was not started."""
    return _ended(lease, Outcome.RELEASE)


def unknown(lease: Lease) -> Settlement:
    """The settlement of a lease whose task this program does not have."""
    return _hold(lease, f'no task "{lease.task}" in this app')


def unreadable(lease: Lease, task: Registered, error: Exception) -> Settlement:
    """The settlement of a lease whose payload is not for this code. Types of the app may have said why, and
    quoted what they were given.
    """
    clean = Cleaner(task.signature.secrets_in(lease.payload))
    return _hold(lease, clean(f"this code cannot read its payload: {error}"))


def _ended(lease: Lease, outcome: Outcome, **more: object) -> Settlement:
    return Settlement(
        job=lease.job,
        fence=lease.fence,
        outcome=outcome,
        **more,  # pyright: ignore[reportArgumentType]
    )


def unfit(lease: Lease, why: str) -> Settlement:
    """The settlement of a lease that no process could be made ready for: that is not the job's doing."""
    return _hold(lease, why)


def _hold(lease: Lease, why: str) -> Settlement:
    return _ended(lease, Outcome.HOLD, hold=HoldKey(hold_key(lease.task), clipped(why, 500)))


def _interrupted(error: BaseException) -> RunInterrupted:
    return RunInterrupted(f"{type(error).__name__}: {error}")
