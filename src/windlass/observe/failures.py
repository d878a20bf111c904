"""Where a failed run is told: one line in the log, and whoever else listens, such as Sentry.

A failure is told once, in the process where the code ran; the supervisor tells of processes that died. A
listener that fails is logged and changes nothing: the settlement of the run is made already.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from types import TracebackType

import msgspec

from windlass.core.lease import Lease
from windlass.core.outcome import Error, Outcome

RUNS = "windlass.run"
"""The logger of runs: failures, and starts and ends. Turn it down to log less of them."""
FIRST_LINE = 200
"""Characters of an error's text in the headline; the whole text is a field of its own."""

_runs = logging.getLogger(RUNS)
_log = logging.getLogger("windlass.observe")

Clean = Callable[[str], str]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A run that failed, or a job that could not be run."""

    job: str
    task: str
    queue: str
    lane: str
    attempt: int | None
    """None: not known, after a crash of which the store could not be asked."""
    max_attempts: int | None
    fence: int | None
    outcome: Outcome
    """What becomes of the job: `retry`, `dead` or `hold`."""
    error: Error
    """As text, without secrets."""
    retry_in: float | None = None
    """Seconds until the next attempt, where that is known."""
    asked_for: bool = False
    """The task itself has asked for this end (`Retry`, `GiveUp`)."""
    exception: BaseException | None = None
    """None: the process died, or nothing was raised."""
    frames: TracebackType | None = None
    """Of the exception, from where it leaves the worker."""
    clean: Clean = str
    """Removes the secrets that the job was called with from a text."""

    @property
    def is_dead(self) -> bool:
        """Whether the job is a dead letter now."""
        return self.outcome is Outcome.DEAD

    @property
    def level(self) -> int:
        """A dead letter is an error. A retry that the task asks for is no trouble; any other is a warning."""
        if self.is_dead:
            return logging.ERROR
        return logging.INFO if self.asked_for else logging.WARNING

    @property
    def traceback(self) -> str:
        """A word of the task, such as `raise Retry(after=5)`, has one only if an exception is behind it."""
        found = self.exception
        if self.asked_for and found is not None and not (found.__cause__ or found.__context__):
            return ""
        return self.error.traceback

    @property
    def fields(self) -> Mapping[str, object]:
        """What a log line has besides its text."""
        found: dict[str, object] = {
            "job": self.job,
            "task": self.task,
            "queue": self.queue,
            "lane": self.lane,
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "fence": self.fence,
            "error": self.error.type,
            "error_message": self.error.message,
            "outcome": self.outcome.value,
            "will_retry": not self.is_dead,
            "retry_in": self.retry_in,
        }
        return {name: value for name, value in found.items() if value is not None}


Listener = Callable[[Failure], object]
_listeners: list[Listener] = []
_flushes: list[Callable[[], object]] = []


def failures_are_told_to(listener: Listener, *, flush: Callable[[], object] | None = None) -> None:
    """Call `listener` with every failure of this process from now on, where the code ran: in a thread, on the
    loop or in a job's own process. `flush` is called before the process ends.
    """
    if listener not in _listeners:
        _listeners.append(listener)
        if flush is not None:
            _flushes.append(flush)


def no_more_failures_to(listener: Listener) -> None:
    """Do not call it any more."""
    if listener in _listeners:
        _listeners.remove(listener)


def tell(failure: Failure) -> None:
    """Log a failure, and tell all who listen."""
    for listener in (_logged, *_listeners):
        try:
            listener(failure)
        except BaseException:  # noqa: BLE001 - whatever it is, the outcome of the run stands
            with contextlib.suppress(BaseException):
                _log.exception("job %s: a listener to failures has failed", failure.job)


def flush() -> None:
    """Let listeners send what they still have, before this process may be gone."""
    for each in _flushes:
        with contextlib.suppress(BaseException):
            each()


def last_words() -> None:
    """Before a process ends: what was told must not be lost."""
    flush()
    logging.shutdown()


def place(lease: Lease | Failure) -> str:
    """Queue and lane in words."""
    return f"queue {lease.queue}, lane {lease.lane}" if lease.lane else f"queue {lease.queue}"


def _logged(failure: Failure) -> None:
    """One record. Its traceback stands where formatters of any program look for it, as text that is clean:
    with `exc_info` they would format the exception themselves, secrets included.
    """
    if not _runs.isEnabledFor(failure.level):
        return
    record = _runs.makeRecord(
        RUNS,
        failure.level,
        "(windlass)",
        0,
        "job %s: task %s (%s) %s: %s",
        (failure.job, failure.task, place(failure), _became(failure), _summary(failure.error)),
        None,
        extra=failure.fields,
    )
    record.exc_text = failure.traceback.rstrip("\n") or None
    _runs.handle(record)


def _became(failure: Failure) -> str:
    if failure.outcome is Outcome.HOLD:
        return "cannot be run here and is held"
    what = "failed"
    if failure.attempt is not None:
        what += f" (attempt {failure.attempt} of {failure.max_attempts})"
    if failure.is_dead:
        return f"{what} and is dead"
    return f"{what}, next soon" if failure.retry_in is None else f"{what}, next in {failure.retry_in:.1f} s"


def _summary(error: Error) -> str:
    """Class and first line: a text of several lines must not look like several records."""
    first = next(iter(error.message.strip().splitlines()), "")
    if len(first) > FIRST_LINE:
        first = first[: FIRST_LINE - 1] + "…"
    return f"{error.type}: {first}" if first else error.type
