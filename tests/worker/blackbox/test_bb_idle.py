"""An idle worker costs next to nothing."""

import time

import pytest
from tests.worker.blackbox.fleet import Fleet, cpu_of, measured, tree_of


@pytest.mark.slow
def test_idle_worker_takes_less_than_half_a_percent_of_a_core(fleet: Fleet) -> None:
    fleet.settings.clear()  # as it comes: beat 5 s, TTL 30 s
    worker = fleet.start("processes=2")
    fleet.app.tasks["short"].enqueue().result(timeout=60)
    fleet.app.close()
    time.sleep(5)  # settle down
    pids = tree_of(worker.pid)
    before = {pid: cpu_of(pid) for pid in pids}
    began = time.monotonic()
    time.sleep(30)
    took = time.monotonic() - began
    used = {pid: cpu_of(pid) - before[pid] for pid in pids}
    share = sum(used.values()) / took
    measured(
        f"idle for {took:.0f} s: {share:.2%} of a core ({[f'{each / took:.2%}' for each in used.values()]})"
    )
    assert tree_of(worker.pid) == pids
    assert share < 0.01  # the aim is 0.5 %; a busy machine counts a little more
