"""Workers that die in a test, and jobs that are cancelled."""

import asyncio

import pytest

from windlass import RetryPolicy, Windlass, current
from windlass.core.outcome import Cause, CauseKind
from windlass.errors import InvalidOption, JobNotFound
from windlass.testing import testing
from windlass.testing.store import at_once


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


def test_a_crashed_job_runs_again_at_once(app: Windlass) -> None:
    @app.task
    def work() -> None:
        fences.append(current.fence)

    fences: list[int] = []
    with testing(app) as t:
        job, other = work.enqueue(), work.enqueue()
        t.crash(job)
        t.drain()
        assert [(run.outcome, run.attempt) for run in t.runs(job)] == [("crash", 1), ("done", 2)]
        assert [run.outcome for run in t.runs(other)] == ["done"]
        assert len(fences) == 2  # the first run never came to its code


def test_a_crash_after_the_run_repeats_its_effects(app: Windlass) -> None:
    @app.task
    def work() -> None:
        seen.append((current.idempotency_key, current.fence))

    seen: list[tuple[str, int]] = []
    with testing(app) as t:
        job = work.enqueue()
        t.crash(job, after_run=True)
        t.drain()
    assert {key for key, _ in seen} == {job.id}
    assert seen[0][1] < seen[1][1]


def test_a_job_that_keeps_crashing_is_a_suspect_and_then_dead(app: Windlass) -> None:
    @app.task(retry=RetryPolicy(max_attempts=3))
    def work() -> None: ...

    with testing(app) as t:
        job = work.enqueue()
        t.crash(job, times=3)
        t.drain()
        detail = t.enqueued(work)[0].detail
        assert detail is not None
        assert (detail.state, detail.crashes) == ("scheduled", 2)
        t.finish()
        found = t.enqueued(work)[0].detail
        assert found is not None
        assert (found.state, found.reason) == ("dead", "crashed its worker")
        assert [delivery.cause.detail for delivery in found.deliveries if delivery.cause] == [
            "killed by the test"
        ] * 3


def test_a_suspect_that_behaves_is_done(app: Windlass) -> None:
    @app.task
    def work() -> int:
        return current.job.crashes

    with testing(app) as t:
        job = work.enqueue()
        t.crash(work, times=2)
        t.finish()
        assert job.result() == 2


def test_a_lost_session_is_reaped_after_its_ttl(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        job = work.enqueue()
        t.lose(job)
        t.drain()
        t.advance(29)
        assert (job.state(), t.explain(job)) == ("running", "it is running")
        t.advance(3)
        assert job.state() == "done"
        assert [(run.outcome, run.attempt) for run in t.runs(job)] == [("lost", 1), ("done", 2)]


def test_finish_goes_on_until_a_lost_job_was_found(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        job = work.enqueue()
        start = t.now
        t.lose(job)
        t.finish()
        assert job.state() == "done"
        assert 30 <= (t.now - start).total_seconds() <= 32


def test_the_worker_of_a_test_is_never_reaped(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        for _ in range(100):
            t.advance(1)
        assert t.run(work) is None


def test_a_lost_job_holds_its_concurrency(app: Windlass) -> None:
    @app.task(concurrency=1)
    def work() -> None: ...

    with testing(app) as t:
        first, second = work.enqueue(), work.enqueue()
        t.lose(first)
        t.drain()
        assert (first.state(), second.state()) == ("running", "ready")
        assert t.explain(second) == "its queue is at its concurrency limit"
        t.advance("1m")
        assert (first.state(), second.state()) == ("done", "done")


def test_times_is_a_number(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t, pytest.raises(InvalidOption, match="times"):
        t.crash(work, times=0)


def test_a_session_that_an_operator_ends_is_replaced(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        for session in at_once(t.broker.sessions()):
            at_once(t.broker.end_session(session.id, Cause(CauseKind.STOP, "by hand")))
        job = work.enqueue()
        t.drain()
        assert job.state() == "done"


def test_a_running_job_can_be_cancelled(app: Windlass) -> None:
    @app.task
    async def endless() -> None:
        await asyncio.Event().wait()

    @app.task
    def looking(heeds: bool) -> bool:
        if current.cancelled and heeds:
            raise RuntimeError("stopped half-way")
        return current.cancelled

    with testing(app) as t:
        stopped, heeding, ignoring = endless.enqueue(), looking.enqueue(True), looking.enqueue(False)
        for job in (stopped, heeding, ignoring):
            t.cancel_running(job)
        t.drain()
        assert (stopped.state(), heeding.state()) == ("cancelled", "cancelled")
        assert ignoring.result() is True  # done stands


def test_a_handle_that_outlives_its_block_is_told_apart_from_lost_data() -> None:
    app = Windlass("memory://")

    @app.task
    def work() -> int:
        return 1

    with testing(app):
        job = work.enqueue()
    with pytest.raises(JobNotFound, match="test block that is over"):
        job.state()
