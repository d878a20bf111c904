"""`Cancelled`: raised by a task, and by `current.check_cancelled()` when somebody asked for it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from tests.worker.virtual import Bench, run

from windlass import Cancelled, GiveUp, Retry, RetryPolicy, Secret, Snooze, Windlass, current
from windlass.admin.views import job_whole
from windlass.core.job import JobDetail
from windlass.core.outcome import Outcome
from windlass.core.state import State
from windlass.errors import JobCancelled
from windlass.testing import testing
from windlass.worker.run import running


def ended(bench: Bench, *calls: Any) -> list[JobDetail]:
    async def work() -> list[JobDetail]:
        ids = await bench.enqueue(*calls)
        async with bench.worker():
            return await bench.ended(*ids)

    return run(work())


def test_a_task_cancels_its_own_job(
    app: Windlass, bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(retry=RetryPolicy(max_attempts=5))
    async def ship(order: int, token: Annotated[str, Secret]) -> None:
        raise Cancelled(f"order {order} was withdrawn by {token}")

    @app.task
    async def brief() -> None:
        raise Cancelled

    with caplog.at_level(logging.INFO):
        first, second = ended(bench(app), ship.call(7, "ada-lovelace"), brief.call())
    assert (first.state, first.attempt) == (State.CANCELLED, 1)
    assert [delivery.outcome for delivery in first.deliveries] == [Outcome.CANCELLED]
    assert first.error is not None
    assert first.error.message == "cancelled itself: order 7 was withdrawn by [secret]"
    assert (job_whole(first, payload=False).reason, job_whole(first, payload=False).error) == (
        "cancelled itself: order 7 was withdrawn by [secret]",
        None,
    )
    assert job_whole(second, payload=False).reason == "cancelled itself"
    assert not [record for record in caplog.records if record.levelno >= logging.INFO], "it is no failure"


def test_who_waits_for_the_result_is_told() -> None:
    app = Windlass("memory://")

    @app.task
    def ship() -> None:
        raise Cancelled("sold out")

    with testing(app) as t:
        job = ship.enqueue()
        t.drain()
        with pytest.raises(JobCancelled, match="was cancelled: cancelled itself: sold out"):
            job.result(timeout=0)
        assert job.cancel() is False


def test_check_cancelled_raises_when_somebody_asked(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    reached: list[str] = []

    @app.task(run="inline")
    def crawl() -> None:
        current.check_cancelled()
        reached.append("nobody had asked")
        running.get().cancelled = True  # as a heartbeat says
        try:
            current.check_cancelled()
        finally:
            reached.append("cleaned up")
        reached.append("went on")

    (detail,) = ended(bench(app), crawl.call())
    assert reached == ["nobody had asked", "cleaned up"]
    assert detail.state is State.CANCELLED
    assert detail.error is None
    assert job_whole(detail, payload=False).reason == "cancelled on request"


def test_a_run_that_stops_because_its_lease_may_be_lost_goes_back(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """Nobody wants it cancelled; here the worker had it after all."""
    runs: list[int] = []

    @app.task(run="inline")
    def crawl() -> None:
        runs.append(current.attempt)
        if len(runs) == 1:
            running.get().is_lost = lambda: True
        current.check_cancelled()

    (detail,) = ended(bench(app), crawl.call())
    assert detail.state is State.DONE
    assert [delivery.outcome for delivery in detail.deliveries] == [Outcome.RELEASE, Outcome.DONE]
    assert runs == [1, 1], "no attempt is spent"


def test_it_belongs_to_a_run() -> None:
    with pytest.raises(LookupError):
        current.check_cancelled()


async def _raise(error: Exception) -> None:
    raise error


async def _together(*errors: Exception) -> None:
    async with asyncio.TaskGroup() as group:
        for each in errors:
            group.create_task(_raise(each))


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ((Cancelled("sold out"),), "cancelled"),
        ((GiveUp("sold out"),), "dead"),
        ((Snooze(5),), "snooze"),
        ((Retry(after=7), GiveUp("sold out")), "retry"),
        ((Cancelled("sold out"), ValueError("no stock")), "dead"),
    ],
)
def test_a_signal_in_a_task_group_means_what_it_means_outside(
    errors: tuple[Exception, ...], outcome: str
) -> None:
    app = Windlass("memory://")

    @app.task(retry=RetryPolicy(max_attempts=2, give_up_on=ExceptionGroup))
    async def ship() -> None:
        try:
            await _together(*errors)
        except ExceptionGroup as group:  # in one more
            raise ExceptionGroup("outer", [group]) from None

    with testing(app, raises=False) as t:
        job = ship.enqueue()
        t.drain()
        (found,) = t.runs(job)
        assert found.outcome == outcome
        assert found.delay == {"snooze": 5, "retry": 7}.get(outcome)


def test_being_cancelled_is_heard_inside_a_task_group(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    @app.task
    async def crawl() -> None:
        running.get().cancelled = True  # as a heartbeat says
        async with asyncio.TaskGroup() as group:
            group.create_task(_check())

    async def _check() -> None:
        current.check_cancelled()

    (found,) = ended(bench(app), crawl.call())
    assert found.state is State.CANCELLED
