"""Traces: one from an HTTP request through enqueue and run to a child; and nothing where nobody asked."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from windlass import Retry, RetryPolicy, Windlass, current
from windlass.api.options import ServeOptions
from windlass.api.server import build
from windlass.errors import JobFailed
from windlass.observe import traces

_exporter = InMemorySpanExporter()
_provider = TracerProvider()
_provider.add_span_processor(SimpleSpanProcessor(_exporter))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], dict[str, ReadableSpan]]]:
    """The spans that have ended, by name. A provider is set once in a process, so its place is lent here."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", _provider)
    traces.forget()
    _exporter.clear()

    def ended() -> dict[str, ReadableSpan]:
        found = _exporter.get_finished_spans()
        named = {span.name: span for span in found}
        assert len(named) == len(found), [span.name for span in found]
        return named

    yield ended
    traces.forget()


@pytest.fixture
def app() -> Iterator[Windlass]:
    made = Windlass("memory://", poll_floor=0.05)
    yield made
    made.close()


def run(app: Windlass, story: Any) -> Any:
    async def main() -> Any:
        try:
            async with asyncio.timeout(30):
                return await story()
        finally:
            await app.aclose()

    return asyncio.run(main())


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def test_one_trace_goes_from_a_request_to_the_child_of_its_job(
    app: Windlass, spans: Callable[[], dict[str, ReadableSpan]]
) -> None:
    noted = threading.Event()
    app.queue("children")

    @app.task(queue="mail")
    async def send(to: str) -> None:
        current.spawn(note.using(lane="acme").call(to))

    @app.task(queue="children")
    def note(to: str) -> str:
        with trace.get_tracer("the task").start_as_current_span("work of the task"):
            noted.set()
            return to

    asked = f"00-{'ab' * 16}-{'cd' * 8}-01"

    async def story() -> str:
        server = build(app, ServeOptions(sweep=False, token="the-token"))
        transport = httpx.ASGITransport(server, client=("127.0.0.1", 50_000))
        async with (
            server.lifespan(),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            app.worker(concurrency=2),
        ):
            body = {"type": "send", "payload": {"to": "a secret address"}}
            headers = {"traceparent": asked, "authorization": "Bearer the-token"}
            answer = await client.post("/enqueue", json=body, headers=headers)
            assert answer.status_code == 201, answer.text
            job = answer.json()["task_id"]
            assert await asyncio.to_thread(noted.wait, 20)
            return job

    job = run(app, story)
    found = spans()
    chain = ["POST /enqueue", "enqueue mail", "process mail", "create children", "process children"]
    before = int("cd" * 8, 16)
    for name in [*chain, "work of the task"]:
        span = found[name]
        assert span.context is not None
        assert span.context.trace_id == int("ab" * 16, 16), name
        assert parent_of(span) == before, name
        before = own(span)
    kinds = [found[name].kind for name in chain]
    assert kinds == [
        SpanKind.SERVER, SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.PRODUCER, SpanKind.CONSUMER,
    ]  # fmt: skip
    sent, ran = dict(found["enqueue mail"].attributes or {}), dict(found["process mail"].attributes or {})
    assert sent == {
        "messaging.system": "windlass",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": job,
        "windlass.task": "send",
    }
    fence = ran.pop("windlass.fence")
    assert isinstance(fence, int)
    assert ran == {
        "messaging.system": "windlass",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": job,
        "windlass.task": "send",
        "windlass.lane": "",
        "windlass.attempt": 1,
        "windlass.outcome": "done",
    }
    assert dict(found["POST /enqueue"].attributes or {})["http.response.status_code"] == 201
    assert "a secret address" not in "".join(span.to_json() for span in found.values())


def test_a_batch_is_one_span_whose_context_all_jobs_carry(
    app: Windlass, spans: Callable[[], dict[str, ReadableSpan]]
) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    jobs = app.enqueue_many(add.call(number) for number in range(3))

    async def headers() -> list[Any]:
        return [job.headers for job in await (await app.broker()).get([each.id for each in jobs]) if job]

    found = spans()["enqueue default"]
    assert dict(found.attributes or {})["messaging.batch.message_count"] == 3
    assert found.context is not None
    parent = f"00-{found.context.trace_id:032x}-{found.context.span_id:016x}-"
    carried = app.run(headers())
    assert [set(each) for each in carried] == [{"traceparent"}] * 3
    assert all(each["traceparent"].startswith(parent) for each in carried)


def test_every_attempt_is_a_span_and_a_failure_tells_its_class_alone(
    app: Windlass, spans: Callable[[], dict[str, ReadableSpan]]
) -> None:
    @app.task(retry=RetryPolicy(max_attempts=3, base=0))
    def fail(what: str) -> None:
        if current.attempt < 3:
            raise Retry(after=0)
        raise LookupError(f"cannot find {what}")

    async def story() -> None:
        async with app.worker(concurrency=1):
            with pytest.raises(JobFailed):
                await (await fail.aenqueue("hunter2")).aresult(timeout=20)

    run(app, story)
    runs = [span for span in _exporter.get_finished_spans() if span.kind is SpanKind.CONSUMER]
    assert [dict(span.attributes or {})["windlass.attempt"] for span in runs] == [1, 2, 3]
    assert len({span.context.trace_id for span in runs if span.context}) == 1
    last = runs[-1]
    assert dict(last.attributes or {})["error.type"] == "LookupError"
    assert (last.status.status_code, last.status.description) == (StatusCode.ERROR, "LookupError")
    assert "hunter2" not in "".join(span.to_json() for span in _exporter.get_finished_spans())


def test_a_traceparent_that_a_job_brings_is_kept(
    app: Windlass, spans: Callable[[], dict[str, ReadableSpan]]
) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    theirs = f"00-{'12' * 16}-{'34' * 8}-01"
    job = add.using(headers={"traceparent": theirs, "x": "1"}).enqueue(1)

    async def headers() -> Any:
        return (await (await app.broker()).get([job.id]))[0].headers  # type: ignore[union-attr]

    assert app.run(headers()) == {"traceparent": theirs, "x": "1"}


def test_a_refused_enqueue_is_a_failed_span(
    app: Windlass, spans: Callable[[], dict[str, ReadableSpan]]
) -> None:
    elsewhere = app.external("there", queue="nowhere")
    with pytest.raises(Exception, match="nowhere"):
        elsewhere.enqueue()
    found = spans()["enqueue nowhere"]
    assert found.status.status_code is StatusCode.ERROR
    assert dict(found.attributes or {})["error.type"] == "EnqueueRefused"


def test_jobs_carry_nothing_unless_a_program_has_set_up_opentelemetry(app: Windlass) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    traces.forget()
    assert traces.active() is None
    job = add.enqueue(1)

    async def headers() -> Any:
        return (await (await app.broker()).get([job.id]))[0].headers  # type: ignore[union-attr]

    assert app.run(headers()) == {}


def test_windlass_never_imports_opentelemetry_by_itself() -> None:
    """With the worker, the server's rooms aside: what nobody set up is not even loaded."""
    program = """
import asyncio, sys
from windlass import Windlass
app = Windlass("memory://")
@app.task
def add(a: int) -> int:
    return a
async def main():
    async with app.worker(concurrency=1):
        assert await (await add.aenqueue(1)).aresult(timeout=20) == 1
    await app.aclose()
asyncio.run(main())
assert not [name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
