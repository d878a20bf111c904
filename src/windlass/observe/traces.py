"""Traces: OpenTelemetry spans for enqueue and run, and the context that travels with a job.

Nothing is switched on here. A program that has set up OpenTelemetry (a tracer provider) gets spans; one that
has not pays a look into a dictionary per enqueue and nothing per run. `opentelemetry` is never imported by
Windlass itself: `active` looks whether somebody else has.

The names follow the semantic conventions for messaging:

    enqueue QUEUE   producer   `send`: one call, or one batch; its context goes with every job of the batch
    create QUEUE    producer   `create`: a child that a run spawns, which is sent when that run counts
    process QUEUE   consumer   one attempt, a child of the span that made the job: one trace from end to end

The context is kept in the job's headers, `traceparent` and `tracestate` (W3C), so that workers in other
languages can go on with it. A job that brings a `traceparent` of its own keeps it. Spans carry names,
numbers and the class of an error: never arguments, results or an error's text.
"""

import os
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.core.job import NewJob
from windlass.core.lease import Lease
from windlass.core.names import MAX_HEADERS
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

PARENT, STATE = "traceparent", "tracestate"
_FAILED = frozenset((Outcome.RETRY, Outcome.DEAD))

_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
"""Whether the provider is one that OpenTelemetry itself sets up when it is first asked for."""

_active: "Spans | None" = None


def active() -> "Spans | None":
    """How to make spans; None unless this program has set up OpenTelemetry."""
    if _active is not None:
        return _active
    trace: Any = sys.modules.get("opentelemetry.trace")
    return None if trace is None else _found(trace)


def _found(trace: Any) -> "Spans | None":
    """Whether a provider was set; looked at again until one is."""
    global _active  # noqa: PLW0603 - a program has one provider, and sets it once
    # To ask for it reads the environment each time, in every enqueue. Private, so it may not be there.
    if getattr(trace, "_TRACER_PROVIDER", trace) is None and not _NAMED:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    _active = Spans(trace.get_tracer("windlass", __version__, provider))
    return _active


def sending(jobs: Sequence[NewJob]) -> AbstractContextManager[Sequence[NewJob]]:
    """What an enqueue is done in: a span, if there are any; gives the jobs that are to be sent."""
    spans = active()
    return _AsTheyAre(jobs) if spans is None else spans.sending(jobs)


class _AsTheyAre:
    """Sending without a span. A class: a generator would cost three times as much."""

    __slots__ = ("_jobs",)

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self._jobs = jobs

    def __enter__(self) -> Sequence[NewJob]:
        return self._jobs

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""


def forget() -> None:
    """Look for a provider anew: for tests, which set more than one."""
    global _active  # noqa: PLW0603
    _active = None


def current_ids() -> Mapping[str, str]:
    """The ids of the span that the calling code is in, for logs; empty if there is none."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import trace  # noqa: PLC0415 - somebody else has imported it

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }


class Spans:
    """Makes spans with a program's own tracer."""

    def __init__(self, tracer: "Tracer") -> None:
        from opentelemetry import context, trace  # noqa: PLC0415 - see `_found`
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self._tracer = tracer
        self._trace = trace
        self._context = context
        self._propagator = TraceContextTextMapPropagator()

    # --- producing ------------------------------------------------------------------------------------------

    @contextmanager
    def sending(self, jobs: Sequence[NewJob]) -> Generator[list[NewJob]]:
        """A span around an enqueue; yields the jobs with its context in their headers."""
        span = self._produced("enqueue", "send", jobs)
        with self._trace.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield self._stamped(jobs, self._trace.set_span_in_context(span))
            except Exception as error:
                self._failed(span, type(error).__qualname__)
                raise

    def created(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Children that a run spawns, with the context of a span of their own in their headers."""
        span = self._produced("create", "create", jobs)
        span.end()
        return self._stamped(jobs, self._trace.set_span_in_context(span))

    def _produced(self, name: str, kind: str, jobs: Sequence[NewJob]) -> "Span":
        queues = {job.queue for job in jobs}
        attributes: dict[str, Any] = {
            "messaging.system": "windlass",
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
        }
        if len(queues) == 1:
            attributes["messaging.destination.name"] = next(iter(queues))
        if len(jobs) == 1:
            attributes["messaging.message.id"] = jobs[0].id
            attributes["windlass.task"] = jobs[0].task
        else:
            attributes["messaging.batch.message_count"] = len(jobs)
        where = next(iter(queues)) if len(queues) == 1 else "(several)"
        return self._tracer.start_span(
            f"{name} {where}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes
        )

    def _stamped(self, jobs: Sequence[NewJob], context: "Context") -> list[NewJob]:
        carried: dict[str, str] = {}
        self._propagator.inject(carried, context=context)
        if not carried:
            return list(jobs)  # a provider that is switched off
        return [_with(job, carried) for job in jobs]

    # --- consuming ------------------------------------------------------------------------------------------

    def begin(self, lease: Lease) -> "Span":
        """The span of a run, and the current one from here on: of the calling context, which is the run's own
        and ends with it.
        """
        parent = self._propagator.extract(lease.headers, context=self._context.Context())
        span = self._tracer.start_span(
            f"process {lease.queue}",
            context=parent,
            kind=self._trace.SpanKind.CONSUMER,
            attributes={
                "messaging.system": "windlass",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": lease.queue,
                "messaging.message.id": lease.job,
                "windlass.task": lease.task,
                "windlass.lane": lease.lane,
                "windlass.attempt": lease.attempt,
                "windlass.fence": lease.fence,
            },
        )
        self._context.attach(self._trace.set_span_in_context(span, parent))
        return span

    def end(self, span: "Span", settlement: Settlement) -> None:
        """The run has an outcome."""
        span.set_attribute("windlass.outcome", settlement.outcome.value)
        if settlement.error is not None and settlement.outcome is not Outcome.CANCELLED:
            self._failed(span, settlement.error.type)
        elif settlement.outcome in _FAILED:
            self._failed(span, settlement.outcome.value)
        span.end()

    # --- serving --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self, scope: Mapping[str, Any]) -> "AsyncGenerator[Span | None]":
        """A span for an HTTP request, which goes on with the caller's trace. None: something else around this
        server makes them.
        """
        if self._trace.get_current_span().get_span_context().is_valid:
            yield None
            return
        carried = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope.get("headers", ())
        }
        span = self._tracer.start_span(
            scope["method"],
            context=self._propagator.extract(carried),
            kind=self._trace.SpanKind.SERVER,
            attributes={
                "http.request.method": scope["method"],
                "url.path": scope["path"],
                "url.scheme": scope.get("scheme", "http"),
            },
        )
        with self._trace.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            yield span

    def answered(self, span: "Span", scope: Mapping[str, Any], status: int) -> None:
        """The status of an HTTP answer, and the route that it came from."""
        span.set_attribute("http.response.status_code", status)
        route = scope.get("path_template")
        if isinstance(route, str) and route:
            span.set_attribute("http.route", route)
            span.update_name(f"{scope['method']} {route}")
        if status >= 500:
            self._failed(span, str(status))

    def _failed(self, span: "Span", kind: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, kind))


def _with(job: NewJob, carried: Mapping[str, str]) -> NewJob:
    if PARENT in job.headers or len(job.headers) + len(carried) > MAX_HEADERS:
        return job
    return msgspec.structs.replace(job, headers={**job.headers, **carried})


def traced(inner: Any) -> Any:
    """An ASGI application with a span around each request, once OpenTelemetry is set up. Untyped: each
    framework has types of its own for these three.
    """

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        spans = active()
        if spans is None or scope["type"] != "http":
            await inner(scope, receive, send)
            return
        async with spans.serving(scope) as span:

            async def told(message: Any) -> None:
                if span is not None and message["type"] == "http.response.start":
                    spans.answered(span, scope, message["status"])
                await send(message)

            await inner(scope, receive, told)

    return serve
