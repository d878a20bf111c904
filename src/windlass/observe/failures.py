"""Failed runs: one line in the log for each, and a call to each listener, such as Sentry.

A failure is reported once, in the process where the code ran, with the exception itself. Where that process
died, a supervisor reports it. A listener that fails is logged and changes nothing.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from types import TracebackType

import msgspec

from windlass.core.outcome import Error, Outcome
from windlass.observe.runs import LOGGER, Clean, fields_of, place_of

FIRST_LINE = 200
"""Characters of an error's text in the message of a line; the whole text is a field of its own."""

_log = logging.getLogger(LOGGER)
_own_log = logging.getLogger("windlass.observe")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A run that failed, or a job that this code cannot run."""

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
    """The task itself asked for this end (`Retry`, `GiveUp`)."""
    exception: BaseException | None = None
    """None: the process died, or nothing was raised."""
    frames: TracebackType | None = None
    """Of the exception, without those of the worker."""
    clean: Clean = str

    @property
    def is_dead(self) -> bool:
        """Whether the job is a dead letter now."""
        return self.outcome is Outcome.DEAD

    @property
    def level(self) -> int:
        """A dead letter is an error, a retry a warning. A retry that the task asked for is information."""
        if self.is_dead:
            return logging.ERROR
        return logging.INFO if self.asked_for else logging.WARNING

    @property
    def traceback(self) -> str:
        """The traceback. Empty for `raise Retry(after=5)`, and for a job that is held because its arguments
        do not fit, unless another exception caused it. It would show the code of Windlass alone.
        """
        raised = self.exception
        if raised is not None and (self.asked_for or self.outcome is Outcome.HOLD):
            cause = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)
            if cause is None:
                return ""
        return self.error.traceback

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields of its log line, without unknown fields."""
        fields = {
            **fields_of(self),
            "error": self.error.type,
            "error_message": self.error.message,
            "outcome": self.outcome.value,
            "retry_in": self.retry_in,
        }
        return {name: value for name, value in fields.items() if value is not None}


Listener = Callable[[Failure], object]
_listeners: list[Listener] = []
_flushes: list[Callable[[], object]] = []


def add_failure_listener(listener: Listener, *, flush: Callable[[], object] | None = None) -> None:
    """Call `listener` with every failure that this process reports, on the thread where the code ran.
    `flush` is called before the process ends.
    """
    if listener not in _listeners:
        _listeners.append(listener)
    if flush is not None and flush not in _flushes:
        _flushes.append(flush)


def remove_failure_listener(listener: Listener) -> None:
    """Stop calling a listener."""
    if listener in _listeners:
        _listeners.remove(listener)


def report(failure: Failure) -> None:
    """Log a failure, and call all listeners."""
    for listener in (_logged, *_listeners):
        try:
            listener(failure)
        except BaseException:  # noqa: BLE001 - whatever it is, the outcome of the run stands
            with contextlib.suppress(BaseException):
                _own_log.exception("job %s: a listener to failures failed", failure.job)


def must_flush() -> bool:
    """Whether a listener may have something to send before this process ends."""
    return bool(_flushes)


def flush_listeners() -> None:
    """Let listeners send what they still have: this process is about to end."""
    for flush in _flushes:
        with contextlib.suppress(BaseException):
            flush()


def flush_all() -> None:
    """Let listeners and log handlers send what they still have."""
    flush_listeners()
    logging.shutdown()


def _logged(failure: Failure) -> None:
    """One record. Its traceback is text, where formatters of any program look for it: with `exc_info` they
    would format the exception themselves, secrets included.
    """
    if not _log.isEnabledFor(failure.level):
        return
    record = _log.makeRecord(
        LOGGER,
        failure.level,
        "(windlass)",
        0,
        "job %s: task %s (%s) %s: %s",
        (failure.job, failure.task, place_of(failure), _what_follows(failure), _summary(failure.error)),
        None,
        extra=failure.fields,
    )
    record.exc_text = failure.traceback.rstrip("\n") or None
    _log.handle(record)


def _what_follows(failure: Failure) -> str:
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
