"""A process that dies while it is idle costs the job that was on its way to it nothing."""

import os
import signal

from tests.worker.blackbox.fleet import Fleet, eventually

from windlass.core.state import State


def test_a_job_that_never_reached_its_process_is_not_charged(fleet: Fleet) -> None:
    fleet.start("processes=1, concurrency=1")
    apart = fleet.app.tasks["apart"]
    apart.enqueue(0.0)
    fleet.finished()
    (first,) = fleet.ledger.runs
    os.kill(first.pid, signal.SIGSTOP)  # alive, as far as its worker can tell
    job = apart.enqueue(0.0)
    eventually("it was handed over", lambda: job.state() == State.RUNNING, hint=fleet.trouble)
    os.kill(first.pid, signal.SIGKILL)
    fleet.finished()
    detail = fleet.detail(job.id)
    assert (detail.state, detail.attempt, detail.crashes) == (State.DONE, 1, 0)
    (run,) = fleet.ledger.of(job.id)
    assert run.pid != first.pid
