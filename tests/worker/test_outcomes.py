"""What becomes of a run: one outcome, whatever its code does."""

import asyncio
import sys
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from tests.worker.virtual import Bench, run

from windlass import GiveUp, Retry, RetryPolicy, Secret, Snooze, Windlass, current
from windlass.core.job import JobDetail
from windlass.core.outcome import Outcome
from windlass.core.state import Reason, State

ON_LOOP = ["loop", "inline"]


def ended(bench: Bench, *calls: Any, **options: Any) -> list[JobDetail]:
    """Run calls to their end on one worker."""

    async def work() -> list[JobDetail]:
        ids = await bench.enqueue(*calls)
        async with bench.worker(**options):
            return await bench.ended(*ids)

    return run(work())


@pytest.mark.parametrize("where", ON_LOOP)
def test_a_returned_value_is_the_result(
    app: Windlass, bench: Callable[[Windlass], Bench], where: Any
) -> None:
    @app.task(run=where)
    def double(n: int) -> int:
        return 2 * n

    (detail,) = ended(bench(app), double.call(21))
    assert detail.state is State.DONE
    assert double.signature.decode_result(detail.result or b"") == 42
    assert detail.deliveries[-1].outcome is Outcome.DONE


def test_an_error_is_retried_by_the_policy(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    starts: list[tuple[int, float]] = []

    @app.task(retry=RetryPolicy(max_attempts=4, base=10, jitter="none"))
    async def flaky() -> None:
        starts.append((current.attempt, asyncio.get_running_loop().time()))
        if current.attempt < 3:
            raise ValueError("not yet")

    (detail,) = ended(bench(app), flaky.call())
    assert (detail.state, detail.attempt) == (State.DONE, 3)
    assert [attempt for attempt, _ in starts] == [1, 2, 3]
    first, second, third = (at for _, at in starts)
    assert 10 <= second - first < 11.1
    assert 20 <= third - second < 21.1
    error = detail.deliveries[0].error
    assert error is not None
    assert (error.type, error.message, error.retryable) == ("ValueError", "not yet", True)
    assert "in flaky" in error.traceback
    assert "windlass/worker" not in error.traceback


def test_the_last_attempt_is_a_dead_letter(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task(retry=RetryPolicy(max_attempts=2, base=1))
    async def broken() -> None:
        raise ValueError("never")

    (detail,) = ended(bench(app), broken.call())
    assert (detail.state, detail.reason, detail.attempt) == (State.DEAD, Reason.EXHAUSTED, 2)
    assert detail.error is not None
    assert detail.error.message == "never"


def test_classes_to_give_up_on_end_the_job_at_once(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task(retry=RetryPolicy(give_up_on=(KeyError,)))
    async def given_up() -> None:
        raise KeyError("gone")

    @app.task(retry=RetryPolicy(retry_on=(OSError,)))
    async def not_listed() -> None:
        raise ValueError("wrong")

    for detail in ended(bench(app), given_up.call(), not_listed.call()):
        assert (detail.state, detail.reason, detail.attempt) == (State.DEAD, Reason.GAVE_UP, 1)
        assert detail.error is not None
        assert not detail.error.retryable


def test_signals_say_how_a_run_ends(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    seen: list[tuple[str, int, float]] = []

    def start(name: str) -> int:
        seen.append((name, current.attempt, asyncio.get_running_loop().time()))
        return sum(other == name for other, _, _ in seen)

    @app.task
    async def again() -> None:
        if start("again") == 1:
            raise Retry("busy", after=7)

    @app.task
    async def later() -> None:
        if start("later") < 3:
            raise Snooze(60)

    @app.task
    async def never() -> None:
        start("never")
        raise GiveUp("no such customer")

    retried, snoozed, dead = ended(bench(app), again.call(), later.call(), never.call())
    times = {name: [at for other, _, at in seen if other == name] for name in ("again", "later", "never")}
    assert retried.state is State.DONE
    assert [attempt for name, attempt, _ in seen if name == "again"] == [1, 2]
    assert 7 <= times["again"][1] - times["again"][0] < 8.1
    assert snoozed.state is State.DONE
    assert [attempt for name, attempt, _ in seen if name == "later"] == [1, 1, 1], (
        "a snooze spends no attempt"
    )
    assert 60 <= times["later"][1] - times["later"][0] < 61.1
    assert (dead.state, dead.reason) == (State.DEAD, Reason.GAVE_UP)
    assert dead.error is not None
    assert dead.error.message == "no such customer"


def test_what_is_no_exception_counts_as_an_error(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task(retry=RetryPolicy(max_attempts=2, base=0))
    async def leaves() -> None:
        sys.exit(3)

    @app.task(retry=RetryPolicy(max_attempts=2, base=0), run="inline")
    def interrupted() -> None:
        raise KeyboardInterrupt

    @app.task(retry=RetryPolicy(max_attempts=2, base=0))
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    details = ended(bench(app), leaves.call(), interrupted.call(), cancels_itself.call())
    assert [(detail.state, detail.reason, detail.attempt) for detail in details] == [
        (State.DEAD, Reason.EXHAUSTED, 2)
    ] * 3
    assert [detail.error and detail.error.type for detail in details] == [
        "SystemExit",
        "KeyboardInterrupt",
        "asyncio.exceptions.CancelledError",
    ]


def test_a_result_that_cannot_be_kept_is_dead_at_once(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    @app.task
    async def wrong() -> int:
        return "text"  # type: ignore[return-value]

    (detail,) = ended(bench(app), wrong.call())
    assert (detail.state, detail.attempt) == (State.DEAD, 1)
    assert detail.error is not None
    assert "result" in detail.error.message


def test_a_timeout_stops_the_code_and_is_an_error(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    stopped: list[str] = []

    @app.task(timeout=5, retry=RetryPolicy(max_attempts=1))
    async def slow() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            stopped.append("slow")
            raise

    @app.task(timeout=5, retry=RetryPolicy(max_attempts=1))
    async def own_timeout() -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(100)

    @app.task(timeout=5)
    async def in_time() -> float:
        assert current.deadline is not None
        return current.deadline - asyncio.get_running_loop().time()

    late, own, fine = ended(bench(app), slow.call(), own_timeout.call(), in_time.call())
    assert stopped == ["slow"]
    assert late.state is State.DEAD
    assert late.error is not None
    assert late.error.message == "it ran for longer than its timeout of 5 s"
    assert own.error is not None
    assert own.error.type == "TimeoutError"
    assert fine.state is State.DONE
    assert in_time.signature.decode_result(fine.result or b"") == pytest.approx(5, abs=0.01)


def test_a_job_that_swallows_its_timeout_is_done(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task(timeout=1)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "made the best of it"
        return ""

    (detail,) = ended(bench(app), stubborn.call())
    assert detail.state is State.DONE


def test_a_failing_backoff_falls_back_to_the_default(
    app: Windlass, bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    def backoff(_attempt: int) -> int:
        raise ZeroDivisionError

    @app.task(retry=RetryPolicy(max_attempts=2, backoff=backoff))
    async def broken() -> None:
        raise ValueError

    (detail,) = ended(bench(app), broken.call())
    assert (detail.state, detail.attempt) == (State.DEAD, 2)
    assert "its backoff failed" in caplog.text


def test_an_unknown_task_is_held(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    other = Windlass("memory://")

    @other.task
    async def elsewhere() -> None: ...

    @app.task
    async def here() -> None: ...

    async def work(bench: Bench) -> JobDetail:
        job, mine = await bench.enqueue(elsewhere.call(), here.call())
        async with bench.worker():
            await bench.ended(mine)
            await asyncio.sleep(20)
        return await bench.job(job)

    detail = run(work(bench(app)))
    assert (detail.state, detail.attempt) == (State.SCHEDULED, 0)
    assert detail.held is not None
    assert (detail.held.key, detail.held.reason) == ("task:elsewhere", 'no task "elsewhere" in this app')
    assert len(detail.deliveries) == 5, "held at once and after 1, 2, 4 and 8 seconds: no hot loop"


def test_a_payload_for_another_signature_is_held(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    newer = Windlass("memory://")
    ran: list[int] = []

    @newer.task(name="send")
    async def send_to(to: str, copy: str) -> None: ...

    @app.task
    async def send(to: str) -> None:
        ran.append(1)

    async def work(bench: Bench) -> JobDetail:
        (job,) = await bench.enqueue(send_to.call("a", "b"))
        async with bench.worker():
            await asyncio.sleep(2)
        return await bench.job(job)

    detail = run(work(bench(app)))
    assert (detail.state, detail.attempt, ran) == (State.SCHEDULED, 0, [])
    assert detail.held is not None
    assert detail.held.key == "task:send"
    assert "cannot read its payload" in detail.held.reason


def test_children_come_with_the_run_that_is_done(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    ran: list[str] = []

    @app.task
    async def child(name: str) -> None:
        ran.append(name)

    @app.task(retry=RetryPolicy(base=0))
    async def parent() -> str:
        made = current.spawn(child.call(f"of attempt {current.attempt}"))
        if current.attempt == 1:
            raise ValueError
        return made

    async def work(bench: Bench) -> tuple[JobDetail, JobDetail]:
        (job,) = await bench.enqueue(parent.call())
        async with bench.worker():
            (detail,) = await bench.ended(job)
            made = str(parent.signature.decode_result(detail.result or b""))
            return detail, (await bench.ended(made))[0]

    detail, made = run(work(bench(app)))
    assert ran == ["of attempt 2"]
    assert made.parent == detail.id


def test_refused_children_make_the_run_fail(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    elsewhere = app.external("elsewhere", queue="nobody-declared-it")

    @app.task(retry=RetryPolicy(max_attempts=2, base=0))
    async def parent() -> None:
        current.spawn(elsewhere.call())

    (detail,) = ended(bench(app), parent.call())
    assert (detail.state, detail.attempt) == (State.DEAD, 2)
    assert detail.error is not None
    assert "what it spawned was refused" in detail.error.message


def test_an_expired_job_is_not_started(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    ran: list[str] = []

    @app.task
    async def first() -> None:
        await asyncio.sleep(2)
        ran.append("first")

    @app.task(expires=1)
    async def second() -> None:
        ran.append("second")

    _, late = ended(bench(app), first.call(), second.call(), slots=1)
    assert ran == ["first"]
    assert (late.state, late.attempt) == (State.DEAD, 0)


def test_failures_are_logged_once_each_without_secrets(
    app: Windlass, bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(retry=RetryPolicy(max_attempts=2, base=0.7, jitter="none"))
    async def charge(card: Annotated[str, Secret]) -> None:
        raise ValueError(f"card {card} was declined")

    (detail,) = ended(bench(app), charge.call("4111 1111 1111 1111"))
    assert detail.state is State.DEAD
    lines = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    failed = f"job {detail.id}: task charge (queue default) failed"
    assert lines == [
        f"{failed} (attempt 1 of 2), next in 0.7 s: ValueError: card [secret] was declined",
        f"{failed} (attempt 2 of 2) and is dead: ValueError: card [secret] was declined",
    ]
    assert "4111" not in caplog.text


def test_stop_iteration_is_an_error_like_any_other(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """A coroutine around the call would turn it into a `RuntimeError`, and the retry policy would miss it."""

    @app.task(run="inline", retry=RetryPolicy(give_up_on=(StopIteration,)))
    def work() -> None:
        raise StopIteration

    (detail,) = ended(bench(app), work.call())
    assert detail.state is State.DEAD
    assert detail.attempt == 1
    assert detail.error is not None
    assert detail.error.type == "StopIteration"
