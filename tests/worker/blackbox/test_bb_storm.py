"""Freezes and kills together, and limits while workers die."""

import itertools
import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.worker.blackbox.chaos_monkey import Monkey
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, children_of, eventually, measured, tree_of
from tests.worker.blackbox.ledger import Run

from windlass.core.state import State

pytestmark = pytest.mark.slow
WORKER = "processes=2, concurrency=4"


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("seed", [1, 2])
def test_frozen_and_killed_workers(fleet: Fleet, seed: int) -> None:
    """Some are stopped past their TTL and go on, some are killed: late words are refused, nothing is lost."""
    fleet.settings.update(WINDLASS_SESSION_TTL="1.5s", WINDLASS_BEAT="0.3s")
    for _ in range(2):
        fleet.start(WORKER)
    chance = random.Random(seed)
    monkey = Monkey(fleet, WORKER, seed)
    names = ("short", "ashort", "apart")
    producers = [
        fleet.run(
            "-m", "tests.worker.blackbox.producer", name, "800" if name != "apart" else "100", "20", "0.05"
        )
        for name in names
    ]
    end = time.monotonic() + 25
    frozen = 0
    while time.monotonic() < end and (fleet.unfinished() or any(each.poll() is None for each in producers)):
        alive = [each for each in fleet.supervisors if each.process.poll() is None]
        victim = chance.choice(alive)
        match chance.choice(["tree", "child", "kill", "nothing"]):
            case "tree":
                pids = tree_of(victim.pid)
            case "child":
                pids = [chance.choice(victim.children or [victim.pid])]
            case "kill":
                monkey.kill_a_child()
                continue
            case _:
                time.sleep(0.5)
                continue
        fleet.freeze(*pids)
        time.sleep(chance.choice([0.5, 2.0, 3.0]))
        fleet.thaw(*pids)
        frozen += 1
    assert [producer.wait(60) for producer in producers] == [0, 0, 0]
    fleet.finished(within=120)
    ledger = fleet.ledger
    details = fleet.details(ledger.accepted)
    dead = frozenset(job for job, detail in details.items() if detail.state is State.DEAD)
    assert all(details[job].crashes == details[job].max_attempts for job in dead)
    checker = Checker(ledger, details, may_die=dead)
    measured(f"{checker.summary()}; {frozen} frozen, {len(monkey.killed)} killed, {len(dead)} dead")
    checker.check()
    assert len(dead) <= 5


def _most_at_once(runs: list[Run], dead: dict[int, float]) -> int:
    """Runs at the same moment; one that never ended is over when its process is dead."""
    ends = {id(run): run.end or dead.get(run.pid, run.start) for run in runs}
    moments = sorted([(run.start, 1) for run in runs] + [(ends[id(run)], -1) for run in runs])
    return max(itertools.accumulate(step for _, step in moments))


def test_concurrency_limit_survives_crashes(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.start(WORKER)
    monkey = Monkey(fleet, WORKER, 3)
    app = fleet.app
    jobs = app.enqueue_many(
        app.tasks["short"].using(queue="pair", max_attempts=9).call(0.05) for _ in range(120)
    )
    for _ in range(5):
        aim = len(fleet.ledger.runs) + 15
        eventually("work goes on", lambda aim=aim: len(fleet.ledger.runs) >= aim, hint=fleet.trouble)
        monkey.kill_a_child()
    fleet.finished()
    assert _most_at_once(fleet.ledger.runs, monkey.killed) <= 2
    Checker(fleet.ledger, fleet.details([job.id for job in jobs])).check()


def test_sequence_survives_a_crash(fleet: Fleet) -> None:
    """The head that died is still the head, although others could run elsewhere meanwhile."""
    for _ in range(2):
        fleet.start("processes=1, concurrency=4")
    app = fleet.app
    calls = [
        app.tasks["dies_once" if number in (2, 5) else "short"].using(queue="row", lane="one")
        for number in range(8)
    ]
    jobs = [job.id for job in app.enqueue_many(call.call(0.02) for call in calls)]
    fleet.finished()
    order = [run.job for run in fleet.ledger.runs]
    assert order == [*jobs[:3], *jobs[2:6], *jobs[5:]]
    Checker(fleet.ledger, fleet.details(jobs)).check()


@pytest.mark.parametrize("who", ["child", "supervisor"])
def test_process_of_a_job_dies_with_its_worker(fleet: Fleet, who: str) -> None:
    """Otherwise the job would run twice at once."""
    worker = fleet.start("processes=1, concurrency=4")
    job = fleet.app.tasks["apart"].enqueue(3.0)
    eventually("it runs", lambda: fleet.ledger.of(job.id), hint=fleet.trouble)
    first = fleet.ledger.of(job.id)[0]
    (child,) = worker.children
    assert first.pid in children_of(child)
    os.kill(child if who == "child" else worker.pid, signal.SIGKILL)
    if who == "supervisor":
        worker.process.wait()
        fleet.start("processes=1, concurrency=4")
    eventually("it runs again", lambda: len(fleet.ledger.of(job.id)) == 2, hint=fleet.trouble)
    assert not _is_alive(first.pid)
    fleet.finished()
    Checker(fleet.ledger, {job.id: fleet.detail(job.id)}).check()
    assert fleet.detail(job.id).state is State.DONE


def test_process_that_died_between_jobs_is_charged_to_nobody(fleet: Fleet) -> None:
    worker = fleet.start("processes=1, concurrency=1")
    task = fleet.app.tasks["apart"].using(max_attempts=1)
    task.enqueue().result(timeout=60)
    (child,) = worker.children
    idle = fleet.ledger.runs[0].pid
    os.kill(idle, signal.SIGKILL)
    eventually("it is dead", lambda: not _is_alive(idle))
    assert task.enqueue().result(timeout=60)
    assert worker.children == [child]


def test_interrupt_of_the_whole_group_is_a_stop(fleet: Fleet) -> None:
    """Ctrl-C in a terminal reaches every process: what runs may end."""
    worker = fleet.start("processes=1, concurrency=4", group=True)
    app = fleet.app
    jobs = [app.tasks[name].enqueue(1.0) for name in ("short", "ashort", "apart")]
    eventually("all run", lambda: len(fleet.ledger.runs) == 3, hint=fleet.trouble)
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.process.wait(60) == 0
    for job in jobs:
        detail = fleet.detail(job.id)
        assert (detail.task, detail.state, detail.attempt) == (detail.task, State.DONE, 1)
    assert [run.how for run in fleet.ledger.runs] == ["ok"] * 3


def test_hangup_replaces_the_children_one_by_one(fleet: Fleet) -> None:
    worker = fleet.start(WORKER)
    before = set(worker.children)
    jobs = fleet.app.enqueue_many(fleet.app.tasks["short"].call(0.02) for _ in range(600))
    eventually("jobs run", lambda: len(fleet.ledger.runs) > 20, hint=fleet.trouble)
    worker.process.send_signal(signal.SIGHUP)
    eventually("all are new", lambda: not before & set(worker.children), within=60, hint=fleet.trouble)
    fleet.finished()
    details = fleet.details([job.id for job in jobs])
    Checker(fleet.ledger, details, calm=True).check()
    assert all(detail.attempt == 1 for detail in details.values())
    assert worker.stop() == 0
