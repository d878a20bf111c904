"""Sentry: `sentry_sdk.init(..., integrations=[WindlassIntegration()])` in the module of the app.

One event for each dead letter, or for each failure with `failures="all"`. Every run has a scope of its own,
with tags (job, task, queue, lane, attempt), and a transaction where the program traces. Secrets that the job
was called with are removed from every event of its run, and values of local variables are not sent: they hold
the arguments. Needs sentry-sdk 2: `pip install 'windlass-queue[sentry]'`.
"""

import datetime as dt
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, Literal, cast

from windlass.extras import lacking

try:
    import sentry_sdk
    from sentry_sdk.integrations import Integration
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.utils import (
        AnnotatedValue,  # pyright: ignore[reportPrivateImportUsage] - the SDK's own integrations import it so
        event_from_exception,
        safe_repr,
    )
except ModuleNotFoundError as missing:
    raise lacking("windlass.sentry", missing, "windlass-queue[sentry]") from missing

from windlass.core.lease import Lease
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.errors import InvalidOption
from windlass.observe.failures import Failure, add_failure_listener
from windlass.observe.runs import LOGGER, Clean, OnEnd, add_run_listener, outcome_of

FLUSH = 2.0
"""Seconds that events are waited for before a process ends."""
DEEPEST = 12
_PLAIN = (int, float, bool, type(None), dt.datetime)
_STATUS = {
    Outcome.DONE: "ok",
    Outcome.SNOOZE: "ok",
    Outcome.CANCELLED: "cancelled",
    Outcome.RELEASE: "cancelled",
    Outcome.HOLD: "invalid_argument",
}


class WindlassIntegration(Integration):
    """Sends failed runs to Sentry. Give it to `sentry_sdk.init(integrations=[...])`."""

    identifier = "windlass"
    origin = "auto.queue.windlass"
    choices: ClassVar[tuple[str, ...]] = ("dead", "all")

    def __init__(self, failures: Literal["dead", "all"] = "dead") -> None:
        """`failures`: which of them become events. "dead": dead letters. "all": retried runs, too."""
        if failures not in self.choices:
            raise InvalidOption(f'failures must be "dead" or "all", not {failures!r}')
        self.failures = failures

    @staticmethod
    def setup_once() -> None:
        """Called by the SDK, once in a process."""
        ignore_logger(LOGGER)  # its lines are the same failures: each would be an event once more
        add_run_listener(_start)
        add_failure_listener(_failed, flush=_flush)


def _flush() -> None:
    sentry_sdk.flush(timeout=FLUSH)


def _integration() -> WindlassIntegration | None:
    """Its settings now; None: Sentry was set up anew without it."""
    return sentry_sdk.get_client().get_integration(WindlassIntegration)


# --- runs ---------------------------------------------------------------------------------------------------


def _start(lease: Lease, clean: Clean) -> OnEnd | None:
    """A scope for the run, in its own context: what it leaves there reaches no other job."""
    if _integration() is None:
        return None
    stack = ExitStack()
    scope = stack.enter_context(sentry_sdk.isolation_scope())
    scope.clear_breadcrumbs()
    scope.add_event_processor(_cleaner(clean))
    _describe(scope, lease)
    transaction = sentry_sdk.continue_trace(
        dict(lease.headers),
        op="queue.task.windlass",
        name=lease.task,
        source="task",
        origin=WindlassIntegration.origin,
    )
    span = stack.enter_context(sentry_sdk.start_transaction(transaction))
    span.set_data("messaging.system", "windlass")
    span.set_data("messaging.destination.name", lease.queue)
    span.set_data("messaging.message.id", lease.job)
    span.set_data("messaging.message.retry.count", lease.attempt - 1)

    def end(settlement: Settlement) -> None:
        span.set_status(_STATUS.get(outcome_of(lease, settlement), "internal_error"))
        stack.close()

    return end


def _describe(scope: Any, of: Lease | Failure) -> None:
    """Tags are for searching; a fence is of use only beside them."""
    tags = {
        "job": of.job,
        "task": of.task,
        "queue": of.queue,
        "lane": of.lane,
        "attempt": of.attempt,
    }
    scope.set_tags({name: str(value) for name, value in tags.items() if value not in ("", None)})
    context = {"job": of.job, "attempt": of.attempt, "max_attempts": of.max_attempts, "fence": of.fence}
    scope.set_context("windlass", context)
    scope.set_transaction_name(of.task, source="task")


# --- failures -----------------------------------------------------------------------------------------------


def _failed(failure: Failure) -> None:
    integration = _integration()
    if integration is None or (integration.failures == "dead" and not failure.is_dead):
        return
    event, hint = _event(failure)
    with sentry_sdk.new_scope() as scope:
        # Again, though the scope of the run does it: of a process that died, another one reports.
        scope.add_event_processor(_cleaner(failure.clean))
        _describe(scope, failure)
        scope.set_context("windlass", {**failure.fields})
        sentry_sdk.capture_event(event, hint=hint)


def _event(failure: Failure) -> tuple[Any, Any]:
    mechanism = {"type": WindlassIntegration.identifier, "handled": False}
    level = logging.getLevelName(failure.level).lower()
    raised = failure.exception
    if raised is None:
        kind, text = failure.error.type, failure.error.message
        value = {"type": kind, "value": text, "mechanism": mechanism}
        event = {"exception": {"values": [value]}, "fingerprint": ["windlass", failure.task, kind]}
        return {**event, "level": level}, {}
    event, hint = event_from_exception(
        (type(raised), raised, failure.frames),
        client_options=sentry_sdk.get_client().options,
        mechanism=mechanism,
    )
    return {**event, "level": level}, hint


# --- what may not leave -------------------------------------------------------------------------------------


def _cleaner(clean: Clean) -> Callable[[Any, Any], Any]:
    def cleaned(event: Any, _hint: Any) -> Any:
        return _without(event, clean, depth=0)

    return cleaned


def _without(value: object, clean: Clean, *, depth: int) -> object:
    """A part of an event without secrets, and without the values of local variables. Objects become text
    here: later the SDK would do it, and nobody would look at it.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, AnnotatedValue):
        return AnnotatedValue(_without(value.value, clean, depth=depth + 1), value.metadata)
    if depth < DEEPEST and isinstance(value, Mapping):
        parts = cast("Mapping[object, object]", value)
        return {
            name: _without(part, clean, depth=depth + 1) for name, part in parts.items() if name != "vars"
        }
    if depth < DEEPEST and isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_without(part, clean, depth=depth + 1) for part in cast("Sequence[object]", value)]
    return clean(safe_repr(value))
