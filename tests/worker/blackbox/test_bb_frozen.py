"""Workers that are stopped past their TTL and go on: refused, and the second run's result stands."""

from pathlib import Path

import pytest
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually, fleet_in, measured, tree_of

from windlass.core.outcome import CauseKind, Outcome
from windlass.core.state import State
from windlass.core.units import SECOND

SLACK = 2.0
"""Seconds for a busy machine."""


@pytest.mark.parametrize(
    ("what", "task"),
    [
        ("tree", "gated"),
        pytest.param("tree", "agated", marks=pytest.mark.slow),
        pytest.param("child", "gated", marks=pytest.mark.slow),
    ],
)
def test_late_settle_is_refused(fleet: Fleet, what: str, task: str) -> None:
    fleet.settings.update(WINDLASS_SESSION_TTL="1.5s", WINDLASS_BEAT="0.3s")
    first = fleet.start("processes=1, concurrency=4")
    gate = fleet.folder / "gate"
    job = fleet.app.tasks[task].enqueue(str(gate))
    eventually("it runs", lambda: fleet.ledger.of(job.id), hint=fleet.trouble)
    frozen = fleet.ledger.of(job.id)[0].pid
    pids = tree_of(first.pid) if what == "tree" else [frozen]
    fleet.freeze(*pids)
    gate.touch()
    if what == "tree":
        fleet.start("processes=1, concurrency=4")
    result = job.result(timeout=60)
    assert len(fleet.ledger.of(job.id)) == 2
    assert result == fleet.ledger.of(job.id)[1].fence
    before = fleet.detail(job.id)
    fleet.thaw(*pids)
    if what == "tree":
        eventually("its late word is refused", lambda: first.said("came too late"), hint=fleet.trouble)
        assert [run.how for run in fleet.ledger.of(job.id)] == ["ok", "ok"]
    after = fleet.detail(job.id)
    assert (after.state, after.result, after.fence) == (State.DONE, before.result, before.fence)
    lost, done = after.deliveries
    assert lost.cause is not None
    assert (lost.cause.kind, done.outcome) == (CauseKind.LOST, Outcome.DONE)
    Checker(fleet.ledger, {job.id: after}).check()
    # It is of use again, under a session of its own.
    for other in fleet.supervisors[1:]:
        assert other.stop() == 0
    again = fleet.app.tasks["short"].enqueue()
    assert again.result(timeout=60)
    eventually("the frozen process is gone", lambda: not Path(f"/proc/{frozen}").exists(), hint=fleet.trouble)
    assert first.stop() == 0


@pytest.mark.slow
def test_short_stop_costs_nothing(fleet: Fleet) -> None:
    """Stopped for less than the TTL: the lease is kept, and nothing runs twice."""
    worker = fleet.start("processes=1, concurrency=4")
    fleet.start("processes=1, concurrency=4")
    gate = fleet.folder / "gate"
    jobs = [fleet.app.tasks["gated"].enqueue(str(gate)) for _ in range(4)]
    eventually("they run", lambda: len(fleet.ledger.runs) == 4, hint=fleet.trouble)
    pids = tree_of(worker.pid)
    fleet.freeze(*pids)
    mark = fleet.app.tasks["short"].enqueue(1.0)  # a second passes
    mark.result(timeout=60)
    fleet.thaw(*pids)
    gate.touch()
    fleet.finished()
    details = fleet.details([job.id for job in [*jobs, mark]])
    Checker(fleet.ledger, details, calm=True).check()
    assert all(detail.attempt == 1 for detail in details.values())


@pytest.mark.slow
def test_child_without_a_heart_starts_nothing_and_knows_it(fleet: Fleet) -> None:
    """Only the supervisor is stopped: its child fences itself before its session can be given to others."""
    fleet.settings.update(WINDLASS_SESSION_TTL="3s", WINDLASS_BEAT="0.5s")
    first = fleet.start("processes=1, concurrency=8")
    gate = fleet.folder / "gate"
    app = fleet.app
    job = app.tasks["watches_its_lease"].enqueue(str(gate))
    eventually("it runs", lambda: fleet.ledger.of(job.id), hint=fleet.trouble)
    (child,) = first.children
    fleet.freeze(first.pid)
    eventually("it knows", lambda: fleet.ledger.said("lease lost"), hint=fleet.trouble)
    knew = fleet.ledger.said("lease lost")[0]["at"]
    later = app.enqueue_many(app.tasks["short"].call() for _ in range(20))
    fleet.start("processes=1, concurrency=8")
    eventually("it runs elsewhere", lambda: len(fleet.ledger.of(job.id)) == 2, hint=fleet.trouble)
    gate.touch()
    assert job.result(timeout=60) == fleet.ledger.of(job.id)[-1].fence
    for one in later:
        one.result(timeout=60)
    second = fleet.ledger.of(job.id)[-1]
    assert second.pid != child
    assert knew < second.start, "it knew before somebody else had the job"
    assert all(fleet.ledger.of(one.id)[0].pid != child for one in later), "it has started nothing since"
    fleet.thaw(first.pid)
    eventually("it is of use again", lambda: first.children and first.children != [child], hint=fleet.trouble)
    for other in fleet.supervisors[1:]:
        assert other.stop() == 0
    assert app.tasks["short"].enqueue().result(timeout=60)
    assert first.stop() == 0
    assert fleet.detail(job.id).state is State.DONE


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "frozen"), [(2, 1), (5, 4)])
def test_a_lost_host_is_noticed_within_the_ttl_and_three_seconds(
    tmp_path: Path, hosts: int, frozen: int
) -> None:
    """With the settings that everybody has. Each host runs a job that the others must take over."""
    with fleet_in(tmp_path, build) as fleet:
        ttl = fleet.app.config.session_ttl / SECOND
        workers = [fleet.start("processes=1, concurrency=1", wait=False) for _ in range(hosts)]
        for worker in workers:
            worker.started()
        gate = fleet.folder / "gate"
        jobs = [fleet.app.tasks["gated"].enqueue(str(gate)) for _ in range(hosts)]
        eventually("each host runs one", lambda: len(fleet.ledger.runs) == hosts, hint=fleet.trouble)
        pids = [pid for worker in workers[:frozen] for pid in tree_of(worker.pid)]
        began = fleet.now()
        fleet.freeze(*pids)
        gate.touch()  # those who are left have room
        for job in jobs:
            job.result(timeout=3 * ttl)
        starts = [run.start for run in fleet.ledger.runs]
        assert len(starts) == hosts + frozen
        measured(f"{frozen} of {hosts} hosts lost: redelivered after {max(starts) - began:.1f} s")
        assert max(starts) - began <= ttl + 3 + SLACK
        fleet.thaw(*pids)
