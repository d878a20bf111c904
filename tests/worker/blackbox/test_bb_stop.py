"""SIGTERM and SIGINT: unstarted jobs go back, running ones may end within the grace, no attempt is spent."""

import signal
import time
from pathlib import Path

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually, measured, tree_of

from windlass.core.outcome import Outcome
from windlass.core.state import State


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_stop_under_load_loses_and_charges_nothing(fleet: Fleet, number: signal.Signals) -> None:
    worker = fleet.start("processes=2, concurrency=8")
    app = fleet.app
    jobs = app.enqueue_many(app.tasks[name].call(0.05) for _ in range(600) for name in ("short", "ashort"))
    eventually("jobs run", lambda: len(fleet.ledger.runs) > 50, hint=fleet.trouble)
    tree = tree_of(worker.pid)
    began = time.monotonic()
    assert worker.stop(number) == 0
    measured(f"stopped within {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < 5 + 5
    assert not [pid for pid in tree if Path(f"/proc/{pid}").exists()], "all its processes have ended"
    ids = [job.id for job in jobs]
    stopped = fleet.details(ids)
    waiting = [detail for detail in stopped.values() if detail.state is not State.DONE]
    assert waiting, "all was done before the stop: nothing was tried"
    assert all((detail.state, detail.attempt) == (State.READY, 0) for detail in waiting)
    ran = {run.job for run in fleet.ledger.runs}
    assert all(stopped[job].state is State.DONE for job in ran), "what had started was let end"
    fleet.start("processes=2, concurrency=8")
    fleet.finished()
    details = fleet.details(ids)
    assert all((detail.state, detail.attempt) == (State.DONE, 1) for detail in details.values())
    Checker(fleet.ledger, details, calm=True).check()


@pytest.mark.slow
def test_what_outlasts_the_grace_is_released_without_a_charge(fleet: Fleet) -> None:
    worker = fleet.start("processes=1, concurrency=8, grace=500_000")
    gate = str(fleet.folder / "gate")
    arguments = {"gated": gate, "agated": gate, "apart": 30.0}
    jobs = {
        name: fleet.app.tasks[name].using(max_attempts=1).enqueue(argument)
        for name, argument in arguments.items()
    }
    eventually("all run", lambda: len(fleet.ledger.runs) == 3, hint=fleet.trouble)
    began = time.monotonic()
    assert worker.stop() == 0
    took = time.monotonic() - began
    measured(f"stopped within {took:.2f} s, grace 0.5 s")
    assert 0.5 <= took < 9
    for name, job in jobs.items():
        detail = fleet.detail(job.id)
        assert (name, detail.state, detail.attempt, detail.crashes) == (name, State.READY, 0, 0)
        assert detail.deliveries[-1].outcome is Outcome.RELEASE
    assert fleet.ledger.of(jobs["agated"].id)[0].how == "CancelledError"


def test_second_signal_means_now(fleet: Fleet) -> None:
    worker = fleet.start("processes=2, concurrency=4, grace=60_000_000")
    gate = str(fleet.folder / "gate")
    jobs = [fleet.app.tasks[name].enqueue(gate) for name in ("gated", "agated") for _ in range(2)]
    eventually("all run", lambda: len(fleet.ledger.runs) == 4, hint=fleet.trouble)
    worker.process.send_signal(signal.SIGTERM)
    eventually("it stops", lambda: worker.said("stopping"), hint=fleet.trouble)
    began = time.monotonic()
    code = worker.stop()
    took = time.monotonic() - began
    measured(f"stopped {took:.2f} s after the second signal, exit code {code}")
    assert took < 5
    assert code == 0
    details = fleet.details([job.id for job in jobs])
    assert all((each.state, each.attempt) == (State.READY, 0) for each in details.values()), details


@pytest.mark.slow
def test_idle_worker_stops_at_once(fleet: Fleet) -> None:
    worker = fleet.start("processes=2")
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < 3


@pytest.mark.slow
def test_signal_during_start_is_heeded(fleet: Fleet) -> None:
    fleet.app.tasks["short"].enqueue()
    worker = fleet.start("processes=2", wait=False)
    eventually("children begin", lambda: worker.children, hint=fleet.trouble)
    assert worker.stop() == 0
    assert fleet.unfinished() <= 1
