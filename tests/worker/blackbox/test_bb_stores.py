"""The same kills on stores that are servers. `BB_STORE=url` runs any other test of this folder on one."""

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running
from tests.worker.blackbox.bb_app import build
from tests.worker.blackbox.chaos_monkey import Monkey, restarts
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.conftest import QUICK
from tests.worker.blackbox.fleet import Fleet, eventually, fleet_in, measured

pytestmark = pytest.mark.slow
WORKER = "processes=2, concurrency=8"
JOBS = 500


@pytest.fixture(params=["redis", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a server of its own."""
    if request.param == "redis":
        with running(redis_binary(), "--appendonly", "yes") as server:
            yield server.url
        return
    server = Server(programs())
    try:
        yield server.dsn
    finally:
        server.remove()


@pytest.fixture
def remote(tmp_path: Path, url: str) -> Iterator[Fleet]:
    """On a server, without workers yet."""
    with fleet_in(tmp_path, build, url=url, **QUICK) as made:
        yield made


def test_jobs_of_killed_workers_run_again_on_a_server(remote: Fleet) -> None:
    for worker in [remote.start(WORKER, wait=False) for _ in range(2)]:
        worker.started()
    monkey = Monkey(remote, WORKER, seed=1)
    app = remote.app
    # With attempts for every kill: none of them may be dead.
    tasks = [app.tasks[name].using(max_attempts=9) for name in ("short", "ashort")]
    jobs = app.enqueue_many(task.call(0.1) for task in tasks for _ in range(JOBS // 2))
    acts = [monkey.kill_a_child, monkey.kill_a_supervisor, monkey.kill_a_child, monkey.kill_a_tree]
    for act in acts:
        aim = len(remote.ledger.runs) + JOBS // 10
        eventually("work goes on", lambda aim=aim: len(remote.ledger.runs) >= aim, hint=remote.trouble)
        if act == monkey.kill_a_child:
            eventually("a busy child is killed", act, hint=remote.trouble)
        else:
            act()
    remote.finished(within=90)
    details = remote.details([job.id for job in jobs])
    checker = Checker(remote.ledger, details)
    measured(checker.summary())
    checker.check()
    gaps = restarts(monkey, remote.ledger, details)
    assert gaps, "nothing had started in a child that was killed: nothing was tried"
    measured(f"{len(gaps)} jobs of killed children began again in {statistics.median(gaps):.3f} s (median)")
    assert statistics.median(gaps) < 5
