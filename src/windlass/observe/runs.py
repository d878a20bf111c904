"""Who is told of the starts and ends of runs: the log, if it is asked to, and others such as Sentry.

Who listens is looked up when a worker's process begins, so a run pays nothing while nobody does.
"""

import contextlib
import logging
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

from windlass.core.lease import Lease
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND
from windlass.observe.failures import RUNS, Clean, place

RUN = 15
"""The level of starts and ends, between DEBUG and INFO."""
logging.addLevelName(RUN, "RUN")

_runs = logging.getLogger(RUNS)
_log = logging.getLogger("windlass.observe")

End: TypeAlias = Callable[[Settlement], object]
Begin: TypeAlias = Callable[[Lease, Clean], End | None]
"""Called in the context of a run before its code; what it gives is called after it, in the same context."""

_listeners: list[Begin] = []


def runs_are_told_to(begin: Begin) -> None:
    """Call `begin` at the start of every run of the workers that begin from now on."""
    if begin not in _listeners:
        _listeners.append(begin)


def no_more_runs_to(begin: Begin) -> None:
    """Do not call it any more, in workers that begin from now on."""
    if begin in _listeners:
        _listeners.remove(begin)


def listening() -> Sequence[Begin]:
    """Who is to be told, at this moment."""
    return (*((_logged,) if _runs.isEnabledFor(RUN) else ()), *_listeners)


def begun(listeners: Sequence[Begin], lease: Lease, clean: Clean) -> list[End]:
    """A run begins: tell all, and give what is to be called at its end. One that fails is logged."""
    ends: list[End] = []
    for begin in listeners:
        with _guarded(lease):
            end = begin(lease, clean)
            if end is not None:
                ends.append(end)
    return ends


def ended(ends: Sequence[End], lease: Lease, settlement: Settlement) -> None:
    """A run has an outcome: tell those that heard of its start, the last one first."""
    for end in reversed(ends):
        with _guarded(lease):
            end(settlement)


@contextlib.contextmanager
def _guarded(lease: Lease) -> Generator[None]:
    try:
        yield
    except BaseException:  # noqa: BLE001 - whatever it is, the run goes on
        with contextlib.suppress(BaseException):
            _log.exception("job %s: a listener to runs has failed", lease.job)


def _logged(lease: Lease, _clean: Clean) -> End:
    fields = {
        "job": lease.job,
        "task": lease.task,
        "queue": lease.queue,
        "lane": lease.lane,
        "attempt": lease.attempt,
        "max_attempts": lease.max_attempts,
        "fence": lease.fence,
    }
    where = place(lease)
    said = "job %s: task %s (%s) starts (attempt %d of %d)"
    _runs.log(RUN, said, lease.job, lease.task, where, lease.attempt, lease.max_attempts, extra=fields)

    def end(settlement: Settlement) -> None:
        became = fate(lease, settlement).value
        runtime = (settlement.runtime or 0) / SECOND
        more = {**fields, "outcome": became, "runtime": runtime}
        said = "job %s: task %s (%s) ends after %.3f s: %s"
        _runs.log(RUN, said, lease.job, lease.task, where, runtime, became, extra=more)

    return end


def fate(lease: Lease, settlement: Settlement) -> Outcome:
    """What becomes of the job: the store makes a dead letter of the retry of a last attempt."""
    if settlement.outcome is Outcome.RETRY and lease.attempt >= lease.max_attempts:
        return Outcome.DEAD
    return settlement.outcome
