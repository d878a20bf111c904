"""A flow of 1,000 jobs whose workers are killed again and again: every join begins when all that it waits for
is done, ends once, and reads what each of them returned.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.chaos_monkey import Monkey
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.conftest import QUICK
from tests.worker.blackbox.fleet import Fleet, eventually, fleet_in, measured

from windlass import FlowState, chain, group
from windlass.core.state import State

pytestmark = pytest.mark.slow
WORKER = "processes=2, concurrency=8"
WIDE = (495, 500)
"""Jobs side by side, twice; with what is before, between and behind them 1,000."""
CHEAP = (100, 900)
"""Widths of two groups whose cost per edge is compared."""


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """On a store of its own, without workers yet."""
    if request.param == "sqlite":
        with fleet_in(tmp_path, build, **QUICK) as made:
            yield made
    elif request.param == "redis":
        with (
            running(redis_binary(), "--appendonly", "yes") as server,
            fleet_in(tmp_path, build, url=server.url, **QUICK) as made,
        ):
            yield made
    else:
        server = Server(programs())
        try:
            with fleet_in(tmp_path, build, url=server.dsn, **QUICK) as made:
                yield made
        finally:
            server.remove()


def test_a_flow_of_a_thousand_jobs_under_kills(remote: Fleet) -> None:
    for worker in [remote.start(WORKER, wait=False) for _ in range(2)]:
        worker.started()
    monkey = Monkey(remote, WORKER, seed=1)
    # With attempts for every kill: none of them may be dead.
    one, tally = (remote.app.tasks[name].using(max_attempts=30) for name in ("one", "tally"))
    flow = chain(
        one.call(),
        group(one.call(0.1) for _ in range(WIDE[0])),
        tally.call(),
        group(one.call(0.1) for _ in range(WIDE[1])),
        tally.call(),
        tally.call(),
        one.call(),
    ).enqueue(flow="thousand")
    assert len(flow.jobs) == 1_000
    acts = [monkey.kill_a_child, monkey.kill_a_supervisor, monkey.kill_a_child, monkey.kill_a_tree]
    for act in monkey.shuffled([*acts, *acts]):
        aim = len(remote.ledger.runs) + 70
        eventually(
            "work goes on",
            lambda aim=aim: len(remote.ledger.runs) >= aim or not remote.unfinished(),
            hint=remote.trouble,
        )
        act()
    remote.finished(within=120)
    assert monkey.supervisors == 4
    assert flow.state() is FlowState.DONE
    _compare(remote, [job.id for job in flow.jobs])


def _compare(remote: Fleet, ids: list[str]) -> None:
    details, ledger = remote.details(ids), remote.ledger
    checker = Checker(ledger, details)
    measured(checker.summary())
    checker.check()
    assert all(job.state is State.DONE for job in details.values())
    runs = ledger.by_job()
    ended = {
        job: next(run.end for run in runs[job] if run.fence == detail.fence)
        for job, detail in details.items()
    }
    joins = [detail for detail in details.values() if detail.task == "tally"]
    assert [len(join.after) for join in joins] == [WIDE[0], WIDE[1], 1]
    tallied = {(line["job"], line["fence"]): line["results"] for line in ledger.said("tallied")}
    for join, results in zip(joins, ([1] * WIDE[0], [1] * WIDE[1], [WIDE[1]]), strict=True):
        assert tallied[join.id, join.fence] == results
        latest = max(ended[edge.parent] or 0.0 for edge in join.after)
        assert all(run.start >= latest for run in runs[join.id]), "it began before its parents were done"


def test_the_cost_of_an_edge_does_not_grow(remote: Fleet) -> None:
    """Producer's processor time for each edge of a narrow join and of a wide one; what the store spends on it
    is measured by `windlass bench`.
    """
    one, tally = remote.app.tasks["one"], remote.app.tasks["tally"]
    chain(one.call(), one.call()).enqueue()  # opens the store
    costs: dict[int, list[float]] = {width: [] for width in CHEAP}
    for _ in range(5):
        for width in CHEAP:
            shape = chain(group(one.call() for _ in range(width)), tally.call())
            begun = time.process_time()
            shape.enqueue()
            costs[width].append((time.process_time() - begun) / width)
    narrow, wide = (statistics.median(costs[width]) for width in CHEAP)
    measured(f"{narrow * 1e6:.1f} and {wide * 1e6:.1f} µs of the producer for an edge")
    assert wide < 2 * narrow
