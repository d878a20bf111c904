"""Fairness and limits as jobs see them: when they start."""

import itertools
import time
from typing import Any

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, measured
from tests.worker.blackbox.ledger import Run

from windlass import Call

AMONG = 25


def _ranks(fleet: Fleet, few: list[str]) -> list[int]:
    """The places of some jobs among all starts, from 1."""
    return [place for place, run in enumerate(fleet.ledger.runs, 1) if run.job in set(few)]


@pytest.mark.parametrize("many", [600, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ten_jobs_are_not_behind_ten_thousand(fleet: Fleet, many: int) -> None:
    app = fleet.app
    heavy, light = (app.tasks["short"].using(lane=lane) for lane in ("heavy", "light"))
    # Of 5 ms: a thread that is about to write down its start must not be overtaken by many others.
    jobs = app.enqueue_many(heavy.call(0.005) for _ in range(many))
    few = app.enqueue_many(light.call(0.005) for _ in range(10))
    fleet.start("processes=1, concurrency=4")
    fleet.finished(within=120)
    ranks = _ranks(fleet, [job.id for job in few])
    measured(f"the ten of the quiet lane started as {ranks}")
    assert len(ranks) == 10
    assert ranks[-1] <= AMONG
    Checker(fleet.ledger, fleet.details([job.id for job in [*jobs, *few]]), calm=True).check()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["short", "ashort", "tiny"])
def test_starts_follow_the_order_of_the_claim(fleet: Fleet, task: str) -> None:
    """Also of jobs that take no time, in as many threads as there are by default."""
    app = fleet.app
    heavy, light = (app.tasks[task].using(lane=lane) for lane in ("heavy", "light"))
    app.enqueue_many(heavy.call() for _ in range(2_000))
    few = app.enqueue_many(light.call() for _ in range(10))
    fleet.start("processes=1")
    fleet.finished(within=60)
    ranks = _ranks(fleet, [job.id for job in few])
    measured(f"the ten of the quiet lane, {task}, started as {ranks}")
    assert ranks[-1] <= 2 * AMONG


@pytest.mark.slow
@pytest.mark.parametrize("many", [600, 10_000])
def test_ten_jobs_that_come_one_at_a_time(fleet: Fleet, many: int) -> None:
    """Each is among the next starts after it was accepted: the backlog of the other lane does not count."""
    app = fleet.app
    heavy, light = (app.tasks["ashort"].using(lane=lane) for lane in ("heavy", "light"))
    app.enqueue_many(heavy.call(0.02) for _ in range(many))
    fleet.start("processes=1, concurrency=4")
    passed: list[int] = []
    for _ in range(10):
        before = len(fleet.ledger.runs)
        job = light.enqueue(0.0)
        job.result(timeout=60)
        passed.append(_ranks(fleet, [job.id])[0] - before)
    measured(f"starts from each accepted job of the quiet lane to its own: {passed}")
    assert fleet.counts()["ready"] > many // 10, "the backlog is gone: nothing was tried"
    assert sum(passed) / len(passed) <= AMONG


@pytest.mark.slow
def test_rate_of_five_a_second_is_five_a_second(fleet: Fleet) -> None:
    """Fault 40: with one idle worker, not one per polling floor."""
    fleet.start("processes=1, concurrency=4")
    app = fleet.app
    five = app.tasks["short"].using(queue="five")
    app.enqueue_many(five.call() for _ in range(16))
    fleet.finished(within=20)
    starts = [run.start for run in fleet.ledger.runs]
    took = starts[-1] - starts[0]
    measured(f"16 jobs at 5/s within {took:.2f} s")
    assert 15 / 5 - 0.25 <= took <= 15 / 5 + 1.5
    # In any window of w seconds at most rate * w + burst, and the machine's delay between claim and start.
    for first, last in itertools.combinations(range(16), 2):
        assert last - first + 1 <= 5 * (starts[last] - starts[first] + 0.3) + 1


@pytest.mark.slow
def test_concurrency_of_a_queue_holds_over_processes(fleet: Fleet) -> None:
    fleet.start("processes=2, concurrency=4")
    app = fleet.app
    app.enqueue_many(
        app.tasks[name].using(queue="pair").call(0.05) for name in ("short", "ashort") for _ in range(15)
    )
    fleet.finished(within=90)
    most = _most_at_once(fleet.ledger.runs)
    assert most == 2


@pytest.mark.slow
def test_lane_concurrency_is_mutual_exclusion(fleet: Fleet) -> None:
    fleet.start("processes=2, concurrency=4")
    app = fleet.app
    lanes = [f"lane{number}" for number in range(3)]
    sent = {lane: {job.id for job in app.enqueue_many(_calls(fleet, lane, 12))} for lane in lanes}
    fleet.finished(within=90)
    runs = fleet.ledger.runs
    for ids in sent.values():
        assert _most_at_once([run for run in runs if run.job in ids]) == 1
    assert _most_at_once(runs) > 1, "lanes run side by side"


def _calls(fleet: Fleet, lane: str, count: int) -> list[Call[Any]]:
    task = fleet.app.tasks["short"].using(queue="lanes", lane=lane)
    return [task.call(0.03) for _ in range(count)]


def _most_at_once(runs: list[Run]) -> int:
    """Runs at the same moment, by what the runs themselves wrote down."""
    moments = sorted([(run.start, 1) for run in runs] + [(run.end or run.start, -1) for run in runs])
    return max(itertools.accumulate(step for _, step in moments))


@pytest.mark.slow
def test_sequence_is_the_order_of_enqueue_also_after_a_failure(fleet: Fleet) -> None:
    fleet.start("processes=2, concurrency=4")
    app = fleet.app
    row = app.tasks["says"].using(queue="row", lane="one")
    calls = [row.call("value error", 1 if number == 2 else 0) for number in range(8)]
    jobs = [job.id for job in app.enqueue_many(calls)]
    fleet.finished(within=90)
    order = [run.job for run in fleet.ledger.runs]
    assert order == [*jobs[:3], *jobs[2:]], "the one that failed once kept its place"
    assert _most_at_once(fleet.ledger.runs) == 1


@pytest.mark.slow
def test_priority_goes_first(fleet: Fleet) -> None:
    app = fleet.app
    app.enqueue_many(app.tasks["short"].call() for _ in range(200))
    urgent = app.enqueue_many(app.tasks["short"].using(priority=9).call() for _ in range(10))
    fleet.start("processes=1, concurrency=1")
    fleet.finished()
    assert _ranks(fleet, [job.id for job in urgent]) == list(range(1, 11))


@pytest.mark.slow
def test_jobs_do_not_start_before_they_are_due(fleet: Fleet) -> None:
    fleet.start("processes=1, concurrency=4")
    began = time.monotonic()
    jobs = {delay: fleet.app.tasks["short"].using(delay=delay).enqueue() for delay in (0.2, 0.5, 1.0, 1.5)}
    fleet.finished()
    late = {delay: fleet.ledger.of(job.id)[0].start - began - delay for delay, job in jobs.items()}
    shown = {delay: f"{seconds:.3f} s" for delay, seconds in late.items()}
    measured(f"late by {shown}")
    assert all(0 <= seconds < 2 for seconds in late.values())
