"""Two producers, two workers, and kill -9 at random: nothing is lost, every duplicate is explained."""

import statistics
import time

import pytest
from tests.worker.blackbox.chaos_monkey import Monkey, restarts
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.fleet import Fleet, eventually, measured

from windlass.core.state import State

WORKER = "processes=2, concurrency=8"
BYTES = 320
"""What a run writes to the ledger, about."""


def _unleash(
    fleet: Fleet,
    *,
    jobs: int,
    children: int,
    supervisors: int,
    trees: int,
    pause: float,
    seed: int,
    within: float,
) -> tuple[Monkey, list[float]]:
    for worker in [fleet.start(WORKER, wait=False) for _ in range(2)]:
        worker.started()
    monkey = Monkey(fleet, WORKER, seed)
    producers = [
        fleet.run("-m", "tests.worker.blackbox.producer", task, str(jobs // 2), "50", str(pause))
        for task in ("short", "ashort")
    ]
    acts = monkey.shuffled(
        [monkey.kill_a_child] * children
        + [monkey.kill_a_supervisor] * supervisors
        + [monkey.kill_a_tree] * trees
    )
    # Spread over the run by what was done, not by time: a slow machine is not spared.
    gap = jobs * BYTES * 5 // 10 // (len(acts) + 1)
    for act in acts:
        aim = fleet.written + gap
        eventually("work goes on", lambda aim=aim: fleet.written >= aim, within=within, hint=fleet.trouble)
        act()
    assert [producer.wait(within) for producer in producers] == [0, 0]
    fleet.finished(within=within)
    ledger = fleet.ledger
    assert len(ledger.accepted) == jobs
    details = fleet.details(ledger.accepted)
    # With so many kills an innocent job may be hit by all of its attempts: then it says so.
    dead = {job for job, detail in details.items() if detail.state is State.DEAD}
    assert len(dead) <= jobs // 5_000
    assert all(details[job].crashes == details[job].max_attempts for job in dead)
    checker = Checker(ledger, details, may_die=frozenset(dead))
    checker.check()
    gaps = restarts(monkey, ledger, details)
    measured(checker.summary())
    if gaps:
        measured(
            f"{len(gaps)} jobs of killed children began again in {statistics.median(gaps):.3f} s (median), "
            f"{max(gaps):.3f} s (longest)"
        )
    return monkey, gaps


def test_jobs_of_killed_workers_run_again(fleet: Fleet) -> None:
    _, gaps = _unleash(fleet, jobs=500, children=3, supervisors=1, trees=1, pause=0.1, seed=1, within=90)
    assert gaps, "nothing had started in a child that was killed: nothing was tried"
    assert statistics.median(gaps) < 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_thousand_jobs_survive_many_kills(fleet: Fleet, seed: int) -> None:
    began = time.monotonic()
    monkey, gaps = _unleash(
        fleet, jobs=20_000, children=40, supervisors=6, trees=4, pause=0.02, seed=seed, within=120
    )
    measured(
        f"{time.monotonic() - began:.1f} s, {len(monkey.killed)} children, {monkey.supervisors} supervisors"
    )
    assert gaps
    assert statistics.median(gaps) < 5
