"""The simulator: seeds that hold, and histories that come out the same wherever they are run."""

import asyncio
import io
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.broker.memory import MemoryBroker
from windlass.verify import history
from windlass.verify.checker import INVARIANTS, check_folder
from windlass.verify.history import Journal
from windlass.verify.simulated import keep_histories
from windlass.verify.simulator import RULES, judge, live, simulate
from windlass.verify.simulator.loop import SimLoop, SimProcess, StoreClock
from windlass.verify.simulator.plan import CALM_EVERY, KINDS, STORMY, STORMY_EVERY, timetable
from windlass.verify.simulator.wire import Network, Weather, Wire

ONLY_HTTP = {"deadlines_are_kept"}
"""Invariants of those who speak HTTP, of whom there are none here; see `test_verify_http.py`."""


@pytest.mark.parametrize("seed", [3, CALM_EVERY, 29])
def test_a_seed_gives_the_same_bytes_twice(seed: int) -> None:
    first, second = live(seed), live(seed)
    assert first.files == second.files
    assert first.digest != live(seed + 1).digest


def test_a_seed_gives_the_same_bytes_in_another_process() -> None:
    """Where strings hash otherwise, and objects live elsewhere."""
    program = "from windlass.verify.simulator import live; print(live(7).digest)"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "11"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == live(7).digest


def test_seeds_hold() -> None:
    total = simulate(range(1, 41), processes=1)
    assert total.seeds == 40
    assert total.ok, [(judged.seed, judged.verdict.lines()) for judged in total.failed]
    unseen = {name for name in INVARIANTS if not total.checked[name]} - ONLY_HTTP
    assert not unseen, f"nothing was seen of {unseen}"
    assert total.runs > total.jobs > 40 * 10


def test_processes_do_not_change_what_comes_out() -> None:
    heard: dict[int, str] = {}
    total = simulate(range(1, 7), processes=2, told=lambda judged: heard.update({judged.seed: judged.digest}))
    assert total.seeds == 6
    assert heard == {seed: live(seed).digest for seed in range(1, 7)}


def test_time_ends_a_simulation() -> None:
    total = simulate(iter(range(1, 10_000)), processes=1, seconds=0.0)
    assert total.seeds == 1


def test_a_history_that_is_left_in_a_folder_is_judged_alike(tmp_path: Path) -> None:
    found = simulate([7], processes=1)
    assert keep_histories(found, range(7, 8), tmp_path) == [tmp_path / "seed-7"]
    assert check_folder(tmp_path / "seed-7", RULES) == judge(7).verdict
    assert not keep_histories(simulate([1, 2], processes=1), range(1, 3), tmp_path), "nothing failed"


def test_a_failover_is_survived_by_sessions_that_go_on() -> None:
    """Nobody restarts the workers: the store and they find out what was forgotten."""
    seeds = [seed for seed in range(1, 120) if any(f.kind == "failover" for f in timetable(seed).faults)]
    total = simulate(seeds, processes=1)
    assert total.ok, [(judged.seed, judged.verdict.lines()) for judged in total.failed]
    assert total.faults["failover"] > 10
    assert total.duplicates["the store was set back"] > 5


def test_a_copy_of_a_request_does_not_outlive_its_server() -> None:
    """A replica hears only who asks now; but as long as the server is the same a copy arrives."""
    for takes_over, passes in ((False, 2), (True, 1)):
        loop = SimLoop()
        file = io.BytesIO()
        journal = Journal(file.write, role="harness", name="x", clock=lambda loop=loop: round(loop.now * 1e6))
        store = MemoryBroker(clock=StoreClock(loop))
        network = Network(loop, random.Random(1), store, journal)
        network.weather = Weather(twice=1.0)
        wire = Wire(network, SimProcess("caller"))

        async def ask(wire: Wire = wire, network: Network = network, takes_over: bool = takes_over) -> None:
            await wire.sweep(limit=1)
            network.era += takes_over
            await asyncio.sleep(60.0)

        try:
            loop.run_until_complete(ask())
        finally:
            loop.end([])
        assert network.steps == passes
        # Nobody waits for the answer to the copy: the history has the pass all the same.
        told = [line.event for line in history.read_file(file.getvalue().splitlines(keepends=True), "x")]
        assert [type(event) for event in told] == [history.Sweep, history.Swept] * (passes - 1)


@pytest.mark.parametrize("seed", [4102, 5692, 5775, 6050, 6871, 7220, 8150, 8743])
def test_seeds_that_were_violated_once_hold(seed: int) -> None:
    """What each of them found: tokens that came back late and whole (4102, 7220, 8150), copies that outlived
    their server (5692), passes that nobody had written down (5775), a fire under way at the end (6050), and
    a last queue that waited for its turn (6871, 8743).
    """
    verdict = judge(seed).verdict
    assert verdict.ok, verdict.lines()


def test_a_calm_seed_has_no_faults_and_no_duplicates() -> None:
    judged = judge(CALM_EVERY)
    assert not judged.verdict.faults
    assert judged.verdict.ok
    assert judged.verdict.findings["a_healthy_run_has_no_duplicates"].holds_for > 5
    assert set(judged.verdict.duplicates) <= {"retry", "snooze", "release", "replay", "its id was used again"}


def test_storms_are_survived() -> None:
    """Faults in the middle of each other: every sixteenth seed has more of them than any other can."""
    storms = range(STORMY, STORMY + 12 * STORMY_EVERY, STORMY_EVERY)
    assert min(len(timetable(seed).faults) for seed in storms) > 4
    total = simulate(storms, processes=1)
    assert total.ok, [(judged.seed, judged.verdict.lines()) for judged in total.failed]
    assert sum(total.faults.values()) > 50


def test_timetables_know_every_kind_of_fault() -> None:
    drawn = {fault.kind for seed in range(1, 200) for fault in timetable(seed).faults}
    assert drawn == set(KINDS)


def test_a_history_has_a_file_per_process() -> None:
    lived = live(3)
    names = {line.source.name for line in lived.lines()}
    assert {"harness", "operator", "producer-1"} <= names
    assert any("supervisor" in name for name in names)
    workers = [line.event for line in lived.lines() if line.source.role == "worker"]
    assert any(isinstance(event, history.Start) for event in workers)
    assert any(isinstance(event, history.Claimed) for event in workers)
