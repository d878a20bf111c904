"""Tasks that keep the loop or the interpreter for longer than the TTL: one run, others go on elsewhere."""

import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually, measured

TTL = 1.5
SHORT_TTL = {"WINDLASS_SESSION_TTL": "1.5s", "WINDLASS_BEAT": "0.3s"}
JOBS = 100


@pytest.mark.slow
def test_who_keeps_the_loop_keeps_its_lease_and_nobody_waits_for_it(fleet: Fleet) -> None:
    fleet.settings.update(SHORT_TTL)
    fleet.start("processes=2, concurrency=4")
    app = fleet.app
    # In one group: the first short jobs are claimed together with the rude one, and stand behind it.
    rude, *sent = app.enqueue_many(
        [app.tasks["blocker"].call(3 * TTL), *(app.tasks["ashort"].call(0.0) for _ in range(JOBS))]
    )
    shorts = {job.id for job in sent}
    eventually("it runs", lambda: fleet.ledger.of(rude.id), hint=fleet.trouble)
    shorts |= {job.id for job in app.enqueue_many(app.tasks["ashort"].call(0.0) for _ in range(JOBS))}
    fleet.finished()
    _check(fleet, rude.id, shorts)


def test_who_holds_the_interpreter_keeps_its_lease_and_nobody_waits_for_it(fleet: Fleet) -> None:
    """It takes the interpreter when its worker has nothing to say to the store. In the middle of an exchange
    it takes along what that exchange has claimed, and on SQLite the file's lock: then everybody waits for it,
    as for a process that is stopped there.
    """
    fleet.settings.update(SHORT_TTL)
    fleet.start("processes=2, concurrency=4")
    app = fleet.app
    rude = app.tasks["gil"].enqueue(3 * TTL)
    eventually("it holds on", lambda: fleet.ledger.said("held"), hint=fleet.trouble)
    shorts = {job.id for job in app.enqueue_many(app.tasks["ashort"].call(0.0) for _ in range(JOBS))}
    fleet.finished()
    _check(fleet, rude.id, shorts)


def _check(fleet: Fleet, rude: str, shorts: set[str]) -> None:
    """The rude one ran once, the others meanwhile, in the other process."""
    ledger, details = fleet.ledger, fleet.details([rude, *shorts])
    (run,) = ledger.of(rude)
    assert run.end is not None
    waits = sorted(ledger.of(job)[0].start - run.start for job in shorts)
    length = run.end - run.start
    measured(f"short jobs started up to {waits[-1]:.2f} s after the {run.task}, of {length:.2f} s")
    # Of those that its process had begun before, some may have their first line after its first line.
    behind = [ledger.of(job)[0] for job in shorts if ledger.of(job)[0].start > run.start + 0.1]
    assert all(short.pid != run.pid for short in behind)
    assert waits[-1] < length, "short jobs waited for it"
    Checker(ledger, details, calm=True).check()
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
