"""Tasks that keep the loop or the interpreter for longer than the TTL: one run, others go on elsewhere."""

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually, measured

TTL = 1.5
SHORT_TTL = {"WINDLASS_SESSION_TTL": "1.5s", "WINDLASS_BEAT": "0.3s"}
JOBS = 100


@pytest.mark.parametrize(
    "task", [pytest.param("blocker", marks=pytest.mark.slow), pytest.param("gil", marks=pytest.mark.slow)]
)
def test_rude_task_keeps_its_lease_and_nobody_waits_for_it(fleet: Fleet, task: str) -> None:
    fleet.settings.update(SHORT_TTL)
    fleet.start("processes=2, concurrency=4")
    app = fleet.app
    # In one group: the first short jobs are claimed together with the rude one, and stand behind it.
    rude, *sent = app.enqueue_many(
        [app.tasks[task].call(3 * TTL), *(app.tasks["ashort"].call(0.0) for _ in range(JOBS))]
    )
    shorts = {job.id for job in sent}
    eventually("it runs", lambda: fleet.ledger.of(rude.id), hint=fleet.trouble)
    shorts |= {job.id for job in app.enqueue_many(app.tasks["ashort"].call(0.0) for _ in range(JOBS))}
    fleet.finished()
    ledger, details = fleet.ledger, fleet.details([rude.id, *shorts])
    (run,) = ledger.of(rude.id)
    assert run.end is not None
    waits = sorted(ledger.of(job)[0].start - run.start for job in shorts)
    measured(f"short jobs started up to {waits[-1]:.2f} s after the {task}, of {run.end - run.start:.2f} s")
    # What began in the moment between its first line and its rudeness may be in its process.
    behind = [ledger.of(job)[0] for job in shorts if ledger.of(job)[0].start > run.start + 0.1]
    assert all(short.pid != run.pid for short in behind)
    assert waits[-1] < run.end - run.start, "short jobs waited for it"
    checker = Checker(ledger, details, calm=True)
    checker.check()
    assert all(detail.attempt == 1 for detail in details.values())


@pytest.mark.parametrize("task", ["blocker", "gil"])
@pytest.mark.slow
def test_rude_task_alone_in_its_worker(fleet: Fleet, task: str) -> None:
    """Nobody else can take the short jobs: they wait, and nothing is lost or charged."""
    fleet.settings.update(SHORT_TTL)
    fleet.start("processes=1, concurrency=4")
    app = fleet.app
    rude, *shorts = app.enqueue_many(
        [app.tasks[task].call(3 * TTL), *(app.tasks["short"].call(0.0) for _ in range(JOBS))]
    )
    fleet.finished()
    details = fleet.details([rude.id, *(job.id for job in shorts)])
    assert len(fleet.ledger.of(rude.id)) == 1
    Checker(fleet.ledger, details, calm=True).check()
    assert all(detail.attempt == 1 for detail in details.values())
    # No hot loop of claiming and giving back meanwhile.
    assert max(len(detail.deliveries) for detail in details.values()) < 10
