"""Starts and ends of runs: who hears of them, and what the log says of them.

A worker looks once, when it begins, whether anybody listens: a tracer, the log, an integration such as
Sentry. While nobody does, a run calls nothing of this file.
"""

import contextlib
import logging
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeAlias

from windlass.core.lease import Lease
from windlass.core.outcome import Outcome
from windlass.core.settlement import JobFacts, Settlement, rule_settlement
from windlass.core.units import SECOND
from windlass.observe import traces

LOGGER = "windlass.run"
"""The logger of runs: their failures, and their starts and ends."""
RUN = 15
"""The level of starts and ends, between DEBUG and INFO."""
logging.addLevelName(RUN, "RUN")

_log = logging.getLogger(LOGGER)
_own_log = logging.getLogger("windlass.observe")

Clean: TypeAlias = Callable[[str], str]
"""Removes the secrets that a job was called with from a text."""
OnEnd: TypeAlias = Callable[[Settlement], object]
OnStart: TypeAlias = Callable[[Lease, Clean], OnEnd | None]
"""Called in the context of a run, before its code. What it returns is called after it, in that context."""

_added: list[OnStart] = []


def add_run_listener(listener: OnStart) -> None:
    """Call `listener` at the start of every run, in workers that begin from now on."""
    if listener not in _added:
        _added.append(listener)


def remove_run_listener(listener: OnStart) -> None:
    """Do not call it any more, in workers that begin from now on."""
    if listener in _added:
        _added.remove(listener)


def run_listeners() -> Sequence[OnStart]:
    """All that listen at this moment. The tracer comes first, so the others are called inside of its span."""
    spans = traces.active()
    return (
        *(() if spans is None else (_traced_by(spans),)),
        *((_logged,) if _log.isEnabledFor(RUN) else ()),
        *_added,
    )


def run_starts(listeners: Sequence[OnStart], lease: Lease, clean: Clean) -> list[OnEnd]:
    """Call all listeners; returns what is to be called at the end of the run."""
    at_end: list[OnEnd] = []
    for listener in listeners:
        with _guarded(lease):
            on_end = listener(lease, clean)
            if on_end is not None:
                at_end.append(on_end)
    return at_end


def run_ends(at_end: Sequence[OnEnd], lease: Lease, settlement: Settlement) -> None:
    """Call what the listeners returned at the start, in reverse order."""
    for on_end in reversed(at_end):
        with _guarded(lease):
            on_end(settlement)


@contextlib.contextmanager
def _guarded(lease: Lease) -> Generator[None]:
    """A listener that fails is logged; the run goes on."""
    try:
        yield
    except BaseException:  # noqa: BLE001 - it must not decide what becomes of the run
        with contextlib.suppress(BaseException):
            _own_log.exception("job %s: a listener to runs failed", lease.job)


# --- what log lines say of a run ----------------------------------------------------------------------------


class RunNames(Protocol):
    """What a run is found by: a lease has it, and so has a failure."""

    @property
    def job(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def lane(self) -> str: ...
    @property
    def attempt(self) -> int | None: ...
    @property
    def max_attempts(self) -> int | None: ...
    @property
    def fence(self) -> int | None: ...


def fields_of(run: RunNames) -> dict[str, object]:
    """The fields of its log lines."""
    return {
        "job": run.job,
        "task": run.task,
        "queue": run.queue,
        "lane": run.lane,
        "attempt": run.attempt,
        "max_attempts": run.max_attempts,
        "fence": run.fence,
    }


def place_of(run: RunNames) -> str:
    """Its queue and lane, in words."""
    return f"queue {run.queue}, lane {run.lane}" if run.lane else f"queue {run.queue}"


def outcome_of(lease: Lease, settlement: Settlement) -> Outcome:
    """What the store will make of a settlement: the retry of a last attempt is a dead letter."""
    facts = JobFacts(attempt=lease.attempt, max_attempts=lease.max_attempts)
    return rule_settlement(facts, settlement).outcome


def log_correction(level: int, lease: Lease, what: str, *args: object) -> None:
    """Log that the store made something else of a run than its own lines say."""
    _log.log(level, f"job %s: task %s (%s) {what}", *_names(lease), *args, extra=fields_of(lease))


def _logged(lease: Lease, _clean: Clean) -> OnEnd:
    fields, names = fields_of(lease), _names(lease)
    said = "job %s: task %s (%s) starts (attempt %d of %d)"
    _log.log(RUN, said, *names, lease.attempt, lease.max_attempts, extra=fields)

    def end(settlement: Settlement) -> None:
        outcome, runtime = outcome_of(lease, settlement).value, (settlement.runtime or 0) / SECOND
        said = "job %s: task %s (%s) ends after %.3f s: %s"
        more = {**fields, "outcome": outcome, "runtime": runtime}
        _log.log(RUN, said, *names, runtime, outcome, extra=more)

    return end


def _names(lease: Lease) -> tuple[str, str, str]:
    return lease.job, lease.task, place_of(lease)


def _traced_by(spans: traces.Spans) -> OnStart:
    def start(lease: Lease, _clean: Clean) -> OnEnd:
        span = spans.begin(lease)
        return lambda settlement: spans.end(span, settlement)

    return start
