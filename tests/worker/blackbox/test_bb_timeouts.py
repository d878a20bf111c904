"""Timeouts and cancelling: in the loop, in threads, in processes."""

import time
from pathlib import Path

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually, measured

from windlass.core.outcome import CauseKind, Outcome
from windlass.core.state import Reason, State
from windlass.errors import JobCancelled, JobFailed

LONG = 20.0


@pytest.mark.parametrize(
    "task", ["slow_async", "slow_thread", "slow_process", "slow_async_thread", "slow_async_process"]
)
def test_soft_timeout_ends_a_run(shop: Fleet, task: str) -> None:
    """Of 0.4 s. A thread has to look at its deadline."""
    job = shop.app.tasks[task].enqueue(LONG)
    with pytest.raises(JobFailed, match=r"(?i)timeout|deadline"):
        job.result(timeout=60)
    detail = shop.detail(job.id)
    (run,) = shop.ledger.of(job.id)
    assert run.end is not None
    assert run.end - run.start < 5
    assert (detail.state, detail.reason) == (State.DEAD, Reason.EXHAUSTED)
    assert detail.error is not None
    assert detail.crashes == 0


def test_coroutine_is_told_by_its_loop_alone_that_time_is_up(shop: Fleet) -> None:
    """The signal that tells its process comes at the same moment: it would tear it out of its tidying up."""
    assert shop.app.tasks["signalled_async"].enqueue().result(timeout=60)


@pytest.mark.parametrize("task", ["slow_async", "slow_thread"])
def test_quick_run_is_not_timed_out(shop: Fleet, task: str) -> None:
    assert shop.app.tasks[task].enqueue(0.01).result(timeout=60)


@pytest.mark.slow
def test_what_a_process_takes_to_start_does_not_count(fleet: Fleet) -> None:
    """Longer than the soft and the hard timeout, of 1.5 and 2 s: those are the run's."""
    worker = fleet.start("processes=1, concurrency=2", BB_SLOW_IMPORT="4")
    children = worker.children
    assert fleet.app.tasks["patient_process"].enqueue(0.01).result(timeout=60)
    assert worker.children == children


def test_hard_timeout_kills_a_process_that_swallows_the_soft_one(shop: Fleet) -> None:
    children = shop.supervisors[0].children
    job = shop.app.tasks["stubborn_process"].enqueue(LONG)
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    ledger = shop.ledger
    assert [line for line in ledger.said("swallowed") if line["job"] == job.id], "it was told first"
    assert shop.supervisors[0].children == children, "only its own process was killed"
    detail = shop.detail(job.id)
    assert detail.error is not None
    assert "time" in f"{detail.error.type} {detail.error.message}".lower()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["stubborn_thread", "stubborn_async"])
def test_overrun_costs_its_process_and_no_neighbour(fleet: Fleet, task: str) -> None:
    """Past its hard timeout (1 s) a thread cannot be stopped: its process ends, its neighbours first."""
    worker = fleet.start("processes=1, concurrency=8")
    before = worker.children
    neighbours = fleet.app.enqueue_many(
        fleet.app.tasks[name].call(1.5) for name in ("short", "ashort") for _ in range(2)
    )
    job = fleet.app.tasks[task].enqueue(60.0)
    eventually("all run", lambda: len(fleet.ledger.runs) == 5, hint=fleet.trouble)
    behind = fleet.app.enqueue_many(fleet.app.tasks["short"].call() for _ in range(20))
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    fleet.finished()
    (run,) = fleet.ledger.of(job.id)
    detail = fleet.detail(job.id)
    assert (detail.state, detail.attempt) == (State.DEAD, 1)
    cause = detail.deliveries[-1].cause
    assert "timeout" in (cause.detail if cause else str(detail.error)).lower()
    assert not set(before) & set(worker.children), "the process was replaced"
    others = fleet.details([each.id for each in [*neighbours, *behind]])
    assert all((each.state, each.attempt, each.crashes) == (State.DONE, 1, 0) for each in others.values())
    Checker(fleet.ledger, {**others, job.id: detail}, may_die=frozenset([job.id])).check()
    assert run.how is None


def test_cancel_of_a_waiting_job_is_immediate(shop: Fleet) -> None:
    job = shop.app.tasks["short"].using(delay=60).enqueue()
    assert job.cancel()
    assert job.state() is State.CANCELLED
    with pytest.raises(JobCancelled):
        job.result(timeout=5)
    assert not shop.ledger.of(job.id)
    assert not job.cancel()


@pytest.mark.parametrize(
    ("task", "argument"),
    [
        ("ashort", LONG),
        ("apart", LONG),
        ("slow_forever", LONG),
        ("ashort_thread", LONG),
        ("ashort_process", LONG),
    ],
)
def test_cancel_of_a_running_job_stops_it(shop: Fleet, task: str, argument: float) -> None:
    job = shop.app.tasks[task].enqueue(argument)
    eventually("it runs", lambda: shop.ledger.of(job.id), hint=shop.trouble)
    pid = shop.ledger.of(job.id)[0].pid
    began = time.monotonic()
    assert job.cancel()
    with pytest.raises(JobCancelled):
        job.result(timeout=60)
    measured(f"{task} was cancelled within {time.monotonic() - began:.2f} s")
    detail = shop.detail(job.id)
    assert (detail.state, detail.deliveries[-1].outcome) == (State.CANCELLED, Outcome.CANCELLED)
    (run,) = shop.ledger.of(job.id)
    match task:
        case "ashort" | "ashort_thread":
            assert run.how == "CancelledError"
        case "apart" | "ashort_process":
            assert run.how is None
            eventually("its process is killed", lambda: not Path(f"/proc/{pid}").exists())
        case _:
            assert [line for line in shop.ledger.said("saw cancelled") if line["job"] == job.id]


def test_done_stands_although_cancel_was_asked(shop: Fleet) -> None:
    gate = shop.folder / "done-gate"
    job = shop.app.tasks["gated"].enqueue(str(gate))
    eventually("it runs", lambda: shop.ledger.of(job.id), hint=shop.trouble)
    assert job.cancel()
    gate.touch()
    assert job.result(timeout=60) == shop.ledger.of(job.id)[0].fence


@pytest.mark.slow
def test_cancelled_while_its_worker_dies(fleet: Fleet) -> None:
    """With the flag set every end but done is cancelled."""
    worker = fleet.start("processes=1, concurrency=2", WINDLASS_BEAT="1.5s")
    gate = str(fleet.folder / "gate")
    job = fleet.app.tasks["gated"].enqueue(gate)
    eventually("it runs", lambda: fleet.ledger.of(job.id), hint=fleet.trouble)
    assert job.cancel()
    worker.kill_tree()
    fleet.start("processes=1, concurrency=2")
    with pytest.raises(JobCancelled):
        job.result(timeout=60)
    cause = fleet.detail(job.id).deliveries[-1].cause
    assert cause is not None
    assert cause.kind is CauseKind.CRASH
    assert len(fleet.ledger.of(job.id)) == 1
