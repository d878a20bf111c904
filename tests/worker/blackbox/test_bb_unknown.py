"""Jobs that the workers at hand cannot run: held without a hot loop, and run by those who can."""

import textwrap

import pytest
from tests.worker.blackbox.fleet import Fleet, eventually, measured

from windlass import Windlass
from windlass.core.outcome import Outcome
from windlass.core.state import State

pytestmark = pytest.mark.slow
APP = """
from windlass import Windlass
from tests.worker.blackbox.ledger import recorded
app = Windlass(name="deploy")
"""
OLD = """
@app.task
def known(number: int) -> int:
    with recorded():
        return number
"""
NEW = """
@app.task
def known(number: int, more: str = "x") -> int:
    with recorded():
        return number

@app.task
def fresh(number: int) -> int:
    with recorded():
        return number + 1
"""


def _write(fleet: Fleet, name: str, text: str) -> str:
    (fleet.folder / f"{name}.py").write_text(textwrap.dedent(APP + text))
    return f"{name}:app"


def _sender(fleet: Fleet) -> Windlass:
    return Windlass(fleet.url, name="deploy")


def test_unknown_task_is_held_and_runs_when_somebody_knows_it(fleet: Fleet) -> None:
    sender = _sender(fleet)
    fresh = sender.external("fresh")
    old = fleet.start("processes=2", app=_write(fleet, "old_tasks", OLD))
    jobs = [fresh.enqueue(number) for number in range(10)]
    eventually("held twice", lambda: all(_holds(fleet, job.id) >= 2 for job in jobs), hint=fleet.trouble)
    detail = fleet.detail(jobs[0].id)
    assert (detail.state, detail.attempt) in ((State.SCHEDULED, 0), (State.RUNNING, 1), (State.READY, 0))
    assert detail.held is None or "fresh" in detail.held.reason
    # Known jobs go on meanwhile.
    assert sender.external("known").enqueue(7).result(timeout=60) == 7
    # Held for 1 s, 2 s, 4 s …: two holds and a third claim at the most in this time. No hot loop.
    assert all(_holds(fleet, job.id) <= 3 for job in jobs)
    assert not fleet.ledger.of(jobs[0].id)
    fleet.start("processes=1", app=_write(fleet, "new_tasks", NEW))
    assert [job.result(timeout=60) for job in jobs] == list(range(1, 11))
    details = fleet.details([job.id for job in jobs])
    assert all((each.state, each.attempt) == (State.DONE, 1) for each in details.values())
    assert old.process.poll() is None
    sender.close()


def test_payload_of_another_signature_is_held_and_runs_when_somebody_can_read_it(fleet: Fleet) -> None:
    sender = _sender(fleet)
    fleet.start("processes=1", app=_write(fleet, "old_tasks", OLD))
    job = sender.external("known").enqueue(5, more="new")
    eventually("held", lambda: _holds(fleet, job.id) >= 1, hint=fleet.trouble)
    detail = fleet.detail(job.id)
    assert detail.attempt == 0
    assert detail.held is not None
    assert "more" in detail.held.reason
    fleet.start("processes=1", app=_write(fleet, "new_tasks", NEW))
    assert job.result(timeout=60) == 5
    assert fleet.detail(job.id).attempt == 1
    sender.close()


def test_old_and_new_workers_together(fleet: Fleet) -> None:
    """Fault 10: in a rolling deploy nothing is lost and nothing is charged."""
    sender = _sender(fleet)
    fleet.start("processes=1", app=_write(fleet, "old_tasks", OLD))
    fleet.start("processes=1", app=_write(fleet, "new_tasks", NEW))
    known, fresh = sender.external("known"), sender.external("fresh")
    jobs = sender.enqueue_many(
        call for n in range(50) for call in (known.call(n), fresh.call(n), known.call(n, more="y"))
    )
    for job in jobs:
        job.result(timeout=60)
    details = fleet.details([job.id for job in jobs])
    assert all((each.state, each.attempt) == (State.DONE, 1) for each in details.values())
    holds = [sum(d.outcome is Outcome.HOLD for d in each.deliveries) for each in details.values()]
    measured(f"{sum(holds)} holds of {len(holds)} jobs, at most {max(holds)}")
    sender.close()


def _holds(fleet: Fleet, job: str) -> int:
    return sum(each.outcome is Outcome.HOLD for each in fleet.detail(job).deliveries)


def test_expired_job_is_dead_and_never_starts(fleet: Fleet) -> None:
    job = fleet.app.tasks["short"].using(expires=0.2).enqueue()
    mark = fleet.app.tasks["short"].using(delay=0.5).enqueue()
    fleet.start("processes=1")
    mark.result(timeout=60)
    eventually("expired", lambda: fleet.detail(job.id).state is State.DEAD)
    assert not fleet.ledger.of(job.id)
