"""Jobs that kill their worker end as dead letters with the cause; nobody else is charged, work goes on."""

import pytest
from tests.worker.blackbox.checker import GIVEN_BACK, Checker
from tests.worker.blackbox.fleet import Fleet, eventually, measured

from windlass.core.outcome import CauseKind
from windlass.core.state import Reason, State

CAUSES = {
    "exit": "exit code 7",
    "segfault": "signal 11 (SIGSEGV)",
    "kill": "signal 9 (SIGKILL)",
    "memory": "signal",
}


def _is_dead_of(fleet: Fleet, job: str, cause: str) -> None:
    """After all its attempts, each of them a crash, with the cause."""
    detail = fleet.detail(job)
    assert (detail.state, detail.reason) == (State.DEAD, Reason.CRASHED), (detail, fleet.trouble())
    assert detail.attempt == detail.max_attempts == detail.crashes == 3
    assert len(fleet.ledger.of(job)) == 3
    charged = [each for each in detail.deliveries if each.outcome not in GIVEN_BACK]
    assert all(each.cause is not None and each.cause.kind is CauseKind.CRASH for each in charged)
    assert cause in (charged[-1].cause.detail if charged[-1].cause else "")


@pytest.mark.slow
@pytest.mark.parametrize("how", CAUSES)
def test_poison_is_a_dead_letter_with_its_cause(fleet: Fleet, how: str) -> None:
    fleet.start("processes=1, concurrency=4")
    job = fleet.app.tasks["poison"].enqueue(how)
    fleet.finished()
    _is_dead_of(fleet, job.id, CAUSES[how])
    Checker(fleet.ledger, fleet.details([job.id]), may_die=frozenset([job.id])).check()


@pytest.mark.slow
def test_job_that_kills_its_supervisor_is_charged_for_it(fleet: Fleet) -> None:
    job = fleet.app.tasks["poison"].enqueue("supervisor")
    innocent = fleet.app.tasks["short"].using(delay=0.2).enqueue()
    for number in range(3):
        worker = fleet.start("processes=1, concurrency=4", wait=False)
        eventually(
            "its supervisor dies", lambda worker=worker: worker.process.poll() is not None, hint=fleet.trouble
        )
        eventually("its run ended", lambda: fleet.detail(job.id).session is None, hint=fleet.trouble)
        assert fleet.detail(job.id).attempt == number + 1
    assert fleet.detail(job.id).state is State.DEAD
    fleet.start("processes=1")
    fleet.finished()
    _is_dead_of(fleet, job.id, "supervisor died")
    assert fleet.detail(innocent.id).state is State.DONE
    Checker(fleet.ledger, fleet.details([job.id, innocent.id]), may_die=frozenset([job.id])).check()


@pytest.mark.parametrize("crashes", [3, pytest.param(5, marks=pytest.mark.slow)])
def test_one_poison_among_sixty(fleet: Fleet, crashes: int) -> None:
    """Fault 39: none of the sixty loses an attempt that it had not started."""
    fleet.start("processes=1, concurrency=8")
    short, poison = fleet.app.tasks["short"], fleet.app.tasks["poison"].using(max_attempts=crashes)
    calls = [short.call(0.05) for _ in range(60)]
    jobs = fleet.app.enqueue_many([*calls[:5], poison.call("exit"), *calls[5:]])
    fleet.finished(within=60)
    killer, innocents = jobs[5].id, [job.id for job in jobs if job != jobs[5]]
    details = fleet.details([job.id for job in jobs])
    assert (details[killer].state, details[killer].crashes) == (State.DEAD, crashes)
    assert all(details[job].state is State.DONE for job in innocents)
    # From its second crash on it is alone: at most two crashes have touched anybody else.
    assert max(details[job].crashes for job in innocents) <= 2
    Checker(fleet.ledger, details, may_die=frozenset([killer])).check()


@pytest.mark.slow
def test_poisons_die_while_two_thousand_jobs_flow(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.start("processes=2, concurrency=8")
    app = fleet.app
    kinds = [("poison", how) for how in CAUSES] + [("apoison", how) for how in CAUSES]
    poisons: dict[str, str] = {}
    jobs: list[str] = []
    for at, (task, how) in enumerate(kinds):
        poison = app.tasks[task].enqueue(how, 0.02)
        poisons[poison.id] = CAUSES[how]
        for name in ("short", "ashort"):
            sent = app.enqueue_many(app.tasks[name].call(0.01) for _ in range(2_000 // len(kinds) // 2))
            jobs += [job.id for job in sent]
        eventually("work goes on", lambda at=at: len(fleet.ledger.runs) > at * 20, hint=fleet.trouble)
    fleet.finished(within=180)
    for poison, cause in poisons.items():
        _is_dead_of(fleet, poison, cause)
    details = fleet.details([*jobs, *poisons])
    checker = Checker(fleet.ledger, details, may_die=frozenset(poisons))
    checker.check()
    measured(checker.summary())
    assert all(details[job].state is State.DONE for job in jobs)


@pytest.mark.slow
def test_poison_in_a_process_of_its_own_costs_nobody_else(fleet: Fleet) -> None:
    worker = fleet.start("processes=1, concurrency=4")
    before = worker.children
    poisons = {how: fleet.app.tasks["poison_process"].enqueue(how).id for how in ("exit", "segfault", "kill")}
    others = [job.id for job in fleet.app.enqueue_many(fleet.app.tasks["short"].call(0.2) for _ in range(20))]
    fleet.finished()
    for how, job in poisons.items():
        detail = fleet.detail(job)
        assert (detail.state, detail.attempt) == (State.DEAD, 3)
        assert detail.error is not None
        assert CAUSES[how] in detail.error.cause
    assert worker.children == before, "the child itself has survived"
    assert all(detail.attempt == 1 for detail in fleet.details(others).values())
