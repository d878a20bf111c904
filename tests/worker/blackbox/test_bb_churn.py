"""Workers that come and go in peace: nothing runs twice, nothing is charged, nothing waits."""

import itertools
import signal
import statistics

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually, measured

from windlass.core.state import State

pytestmark = pytest.mark.slow


def _calm(fleet: Fleet, jobs: list[str]) -> None:
    details = fleet.details(jobs)
    Checker(fleet.ledger, details, calm=True).check()
    assert all((each.state, each.attempt, each.crashes) == (State.DONE, 1, 0) for each in details.values())


def test_rolling_restarts_under_load(fleet: Fleet) -> None:
    """Stopped by SIGTERM and started again, in turns, while a backlog is worked off."""
    workers = [fleet.start("processes=2, concurrency=8", wait=False) for _ in range(2)]
    app = fleet.app
    jobs = app.enqueue_many(app.tasks[name].call(0.01) for name in ("short", "ashort") for _ in range(2_000))
    for turn in range(6):
        aim = fleet.written + 300 * 320
        eventually("work goes on", lambda aim=aim: fleet.written >= aim, hint=fleet.trouble)
        assert workers[turn % 2].stop() == 0
        workers[turn % 2] = fleet.start("processes=2, concurrency=8", wait=False)
    fleet.finished(within=120)
    _calm(fleet, [job.id for job in jobs])


def test_children_that_are_replaced_all_the_time(fleet: Fleet) -> None:
    worker = fleet.start("processes=2, concurrency=4, max_jobs=10")
    app = fleet.app
    jobs = app.enqueue_many(
        app.tasks[name].call(0.02) for name in ("short", "ashort", "apart") for _ in range(60)
    )
    eventually("work has begun", lambda: len(fleet.ledger.runs) > 20, hint=fleet.trouble)
    for _ in range(3):
        worker.process.send_signal(signal.SIGHUP)
    fleet.finished(within=120)
    _calm(fleet, [job.id for job in jobs])
    measured(f"{len({run.pid for run in fleet.ledger.runs})} processes ran 180 jobs")
    assert worker.stop() == 0


@pytest.mark.parametrize("task", ["short", "ashort"])
def test_job_for_an_idle_worker_starts_at_once(fleet: Fleet, task: str) -> None:
    """Not at the next poll: a wake that is lost would show as a wait of up to a second."""
    fleet.start("processes=2, concurrency=4")
    waits: list[float] = []
    for _ in range(60):
        job = fleet.app.tasks[task].enqueue()
        sent = fleet.now()
        job.result(timeout=60)
        waits.append(fleet.ledger.of(job.id)[0].start - sent)
    late = [wait for wait in waits if wait > 0.4]
    measured(
        f"{task}: from enqueue to start {statistics.median(waits) * 1000:.1f} ms (median), "
        f"{max(waits):.3f} s (longest)"
    )
    assert len(late) <= 3, late


def test_retries_and_delays_do_not_wait_for_a_poll(fleet: Fleet) -> None:
    fleet.start("processes=1, concurrency=4")
    jobs = fleet.app.enqueue_many(fleet.app.tasks["says"].call("retry now", 2) for _ in range(20))
    fleet.finished()
    gaps = [
        after.start - before.end
        for job in jobs
        for before, after in itertools.pairwise(fleet.ledger.of(job.id))
        if before.end is not None
    ]
    measured(
        f"a retry without a delay starts after {statistics.median(gaps):.3f} s, at most {max(gaps):.3f} s"
    )
    assert len(gaps) == 40
    assert statistics.median(gaps) < 0.5
