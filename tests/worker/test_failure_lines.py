"""Each failed run has one line in the log, of logger `windlass.run`; starts and ends do if asked for."""

import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.worker.virtual import Bench, run

from windlass import (
    Depends,
    GiveUp,
    Proceed,
    Retry,
    RetryPolicy,
    RunningJob,
    Secret,
    Windlass,
    current,
    injected,
)
from windlass.broker.memory import MemoryBroker
from windlass.config import Config
from windlass.core.lease import Ask
from windlass.core.operate import Target
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import Beat, SessionInfo
from windlass.core.units import SECOND
from windlass.errors import JobFailed
from windlass.observe import failures, runs, traces
from windlass.observe.failures import Failure
from windlass.observe.logs import JsonFormatter, TextFormatter
from windlass.pace import MachinePace
from windlass.worker.janitor import Janitor
from windlass.worker.pruning import Pruning

ONCE = RetryPolicy(max_attempts=1)
_logger = logging.getLogger(runs.LOGGER)


class Log:
    """What is written, as text and as JSON."""

    def __init__(self) -> None:
        self._text, self._json = io.StringIO(), io.StringIO()
        self.handlers: list[logging.Handler] = []
        for stream, formatter in ((self._text, TextFormatter()), (self._json, JsonFormatter())):
            handler = logging.StreamHandler(stream)
            handler.setFormatter(formatter)
            self.handlers.append(handler)

    @property
    def text(self) -> str:
        return self._text.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._json.getvalue().splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    level = _logger.level
    for handler in made.handlers:
        _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)
    yield made
    for handler in made.handlers:
        _logger.removeHandler(handler)
    _logger.setLevel(level)


def worked(bench: Bench, *calls: Any) -> list[str]:
    """Run these jobs to their ends; their ids."""

    async def work() -> list[str]:
        jobs = await bench.enqueue(*calls)
        async with bench.worker():
            await bench.ended(*jobs)
        return jobs

    return run(work())


def declines(card: str) -> None:
    raise ValueError(f"declined: {card}\nsecond line")


async def adeclines(card: Annotated[str, Secret]) -> None:
    declines(card)


@pytest.mark.parametrize("kind", ["loop", "inline"])
def test_a_failed_run_is_one_line_with_all_that_is_known(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log, kind: str
) -> None:
    charge = app.task(name="charge", run=kind, retry=RetryPolicy(max_attempts=2, base=0.5, jitter="none"))(  # type: ignore[call-overload]
        adeclines
    )
    (job,) = worked(bench(app), charge.using(lane="acme").call("4111 1111"))
    first, second = log.lines
    assert first.pop("traceback").splitlines()[-2:] == ["ValueError: declined: [secret]", "second line"]
    assert isinstance(first.pop("time"), str)
    assert isinstance(first.pop("pid"), int)
    assert first.pop("fence") < second["fence"]
    assert first == {
        "level": "warning", "logger": "windlass.run",
        "message": f"job {job}: task charge (queue default, lane acme) failed (attempt 1 of 2), "
        "next in 0.5 s: ValueError: declined: [secret]",
        "job": job, "task": "charge", "queue": "default", "lane": "acme", "attempt": 1, "max_attempts": 2,
        "error": "ValueError", "error_message": "declined: [secret]\nsecond line",
        "outcome": "retry", "retry_in": 0.5,
    }  # fmt: skip
    assert (second["level"], second["outcome"], second["attempt"]) == ("error", "dead", 2)
    assert "retry_in" not in second
    assert "4111" not in log.text
    assert "in declines" in log.text


def test_a_traceback_has_middleware_dependency_and_task_and_nothing_of_the_worker_between(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log
) -> None:
    def get_value() -> Iterator[int]:
        yield 1

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        return await run()

    @app.task(retry=ONCE)
    async def fails(value: Annotated[int, Depends(get_value)] = injected) -> None:
        raise ValueError(value)

    worked(bench(app), fails.call())
    (line,) = log.lines
    found = re.findall(r'File ".*/(.*)", line \d+, in (\w+)', line["traceback"])
    assert found == [(Path(__file__).name, name) for name in ("around", "get_value", "fails")]


def test_no_secret_is_in_a_line(app: Windlass, bench: Callable[[Windlass], Bench], log: Log) -> None:
    """Of arguments and headers; in message, chain, notes, quoted code, and what the code itself logs."""

    @app.task(retry=ONCE)
    async def compares(password: str, more: dict[str, str]) -> None:
        logging.getLogger("windlass.run").warning("comparing %s", password, extra={"given": more["token"]})
        try:
            _ = {}[more["token"], "written-in-the-code"]
        except KeyError as error:
            error.add_note(f"note: {current.job.headers}")
            raise ValueError(f"no match for {password}") from error

    headers = {"authorization": "Bearer header-4111"}
    word = "written-in-" + "the-code"
    worked(bench(app), compares.using(headers=headers).call(word, {"token": "token-4111"}))
    written = log.text + json.dumps(log.lines)
    assert [secret for secret in (word, "token-4111", "header-4111") if secret in written] == []
    assert '_ = {}[more["token"], "[secret]"]' in log.text
    assert written.count("[secret]") > 8


def test_a_thread_writes_the_same_line(log: Log) -> None:
    app = Windlass("memory://", poll_floor=0.05)
    charge = app.task(name="charge", retry=ONCE)(declines)

    async def main() -> None:
        async with asyncio.timeout(30), app.worker(concurrency=1):
            with pytest.raises(JobFailed):
                await (await charge.aenqueue("visible")).aresult(20)
        await app.aclose()

    asyncio.run(main())
    (line,) = log.lines
    assert (line["task"], line["level"], line["error"]) == ("charge", "error", "ValueError")
    assert "in declines" in line["traceback"]


@pytest.mark.parametrize(
    ("end", "level", "with_traceback"),
    [
        (Retry("soon", after=0.1), "info", False),
        (GiveUp("no such order"), "error", False),
        (SystemExit(3), "error", True),
        (asyncio.CancelledError("stray"), "error", True),
    ],
)
def test_what_a_task_asks_for_is_no_trouble(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log, end: BaseException, level: str, *,
    with_traceback: bool,
) -> None:  # fmt: skip
    attempts = 2 if isinstance(end, Retry) else 1

    @app.task(retry=RetryPolicy(max_attempts=attempts))
    async def ends() -> None:
        raise end

    worked(bench(app), ends.call())
    first, *others = log.lines
    assert first["level"] == level
    assert ("traceback" in first) == with_traceback
    assert [line["level"] for line in others] == ["error"] * (attempts - 1)


def test_runs_that_do_not_fail_have_no_line(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log
) -> None:
    @app.task
    async def works() -> None: ...

    worked(bench(app), works.call())
    assert log.text == ""


def test_starts_and_ends_are_logged_at_their_level(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log
) -> None:
    @app.task
    async def works() -> None:
        await asyncio.sleep(1.5)

    _logger.setLevel(runs.RUN)
    (job,) = worked(bench(app), works.call())
    start, end = log.lines
    assert (start["level"], end["level"]) == ("run", "run")
    assert start["message"] == f"job {job}: task works (queue default) starts (attempt 1 of 5)"
    assert end["message"] == f"job {job}: task works (queue default) ends after 1.500 s: done"
    assert (end["outcome"], end["runtime"]) == ("done", 1.5)
    assert start["fence"] == end["fence"]


# --- when the store says otherwise --------------------------------------------------------------------------


def test_a_failure_whose_lease_was_lost_is_corrected(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log
) -> None:
    @app.task
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("late")

    async def work(bench: Bench) -> None:
        await bench.enqueue(fails.call())
        async with bench.worker() as worker:
            await bench.seen(lambda: bool(worker.table.started()))
            await bench.broker.end_session(worker.session, Cause(CauseKind.LOST))

    run(work(bench(app)))
    failed, corrected = log.lines
    assert (failed["outcome"], failed["error"]) == ("retry", "ValueError")
    assert corrected["message"].endswith("its retry came too late and was refused: the lease was lost")
    assert [(line["job"], line["fence"]) for line in log.lines] == [(failed["job"], failed["fence"])] * 2


def test_a_failure_of_a_job_that_was_cancelled_meanwhile_is_corrected(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log
) -> None:
    @app.task
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("anyway")

    async def work(bench: Bench) -> str:
        (job,) = await bench.enqueue(fails.call())
        async with bench.worker() as worker:
            await bench.seen(lambda: bool(worker.table.started()))
            await bench.broker.cancel([Target(job)])  # no heartbeat tells the worker
            return (await bench.ended(job))[0].state

    assert run(work(bench(app))) == "cancelled"
    failed, corrected = log.lines
    assert failed["outcome"] == "retry"
    assert corrected["message"].endswith("was cancelled meanwhile: no attempt follows")


# --- when the process is gone -------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.time = 1_800_000_000 * SECOND

    def now(self) -> int:
        return self.time


def test_a_job_whose_worker_fell_silent_has_a_line(log: Log) -> None:
    """Of a machine that is gone: whoever sweeps the store finds out."""
    app, clock = Windlass("memory://"), Clock()
    task = app.task(name="charge", retry=ONCE)(declines)
    broker = MemoryBroker(clock=clock)

    async def work() -> str:
        await app.declare(broker)
        job = task.call("4111").job
        await broker.enqueue([[job]])
        await broker.beat([Beat(session="gone", open=SessionInfo(ttl=SECOND))])
        await broker.claim(Ask(queues=("default",), slots=1, limit=1, session="gone", seq=1))
        pace = MachinePace()
        janitor = Janitor(broker, pace, Config(), pruning=Pruning(broker, app, pace))
        for _ in range(20):  # the liveness clock moves by a part of the TTL with each sweep
            clock.time += SECOND // 5
            await janitor.sweep()
        return job.id

    job = asyncio.run(work())
    (line,) = log.lines
    assert (line["job"], line["task"], line["error"]) == (job, "charge", "Lost")
    assert (line["attempt"], line["max_attempts"], line["outcome"]) == (1, 1, "dead")
    assert line["error_message"] == "the worker process that had it fell silent"
    assert line["fence"] > 0


# --- who else listens ---------------------------------------------------------------------------------------


def test_a_listener_that_fails_changes_nothing(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    heard: list[Failure] = []
    monkeypatch.setattr(failures, "_listeners", [])
    monkeypatch.setattr(runs, "_added", [])
    failures.add_failure_listener(lambda failure: heard[-1])
    failures.add_failure_listener(heard.append)
    runs.add_run_listener(lambda _lease, _clean: heard.clear)  # type: ignore[arg-type, return-value]
    fails = app.task(name="fails", run="loop", retry=ONCE)(adeclines)
    (job,) = worked(bench(app), fails.call("4111 1111"))
    assert [failure.job for failure in heard] == [job]
    assert isinstance(heard[0].exception, ValueError)
    assert heard[0].clean("a 4111 1111 b") == "a [secret] b"
    assert f"job {job}: a listener to failures failed" in caplog.text
    assert f"job {job}: a listener to runs failed" in caplog.text


def test_while_nobody_listens_a_run_calls_nothing_of_it(
    app: Windlass, bench: Callable[[Windlass], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_added", [])
    traces.forget()

    @app.task
    async def works() -> None: ...

    assert called_while(lambda: worked(bench(app), *(works.call() for _ in range(50)))) == {
        "run_listeners": 1
    }
    runs.add_run_listener(lambda _lease, _clean: None)
    called = called_while(lambda: worked(bench(app), *(works.call() for _ in range(50))))
    assert (called["run_starts"], called["perform"], called["run_ends"]) == (50, 50, 50)


def called_while(work: Callable[[], object]) -> dict[str, int]:
    """The functions of the files about listeners that were called, and how often."""
    calls: dict[str, int] = {}
    files = ("observe/runs.py", "observe/failures.py", "worker/observed.py", "observe/logs.py")

    def count(frame: Any, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(files):
            calls[frame.f_code.co_name] = calls.get(frame.f_code.co_name, 0) + 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return {name: times for name, times in calls.items() if name != "performer_for"}


def test_lines_of_a_run_have_the_ids_of_its_span(
    app: Windlass, bench: Callable[[Windlass], Bench], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    traces.forget()
    seen: list[str] = []

    @app.task(retry=ONCE)
    async def fails() -> None:
        seen.append(trace.format_span_id(trace.get_current_span().get_span_context().span_id))
        raise ValueError

    _logger.setLevel(runs.RUN)
    worked(bench(app), fails.call())
    traces.forget()
    assert [line["span_id"] for line in log.lines] == seen * 3, "start, failure, end"
    assert len({line["trace_id"] for line in log.lines}) == 1
