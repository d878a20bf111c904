"""The simulator: seeds that hold, and histories that come out the same wherever they are run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.verify import history
from windlass.verify.checker import INVARIANTS, check_folder
from windlass.verify.simulated import keep_histories
from windlass.verify.simulator import RULES, judge, live, simulate
from windlass.verify.simulator.plan import CALM_EVERY, KINDS, timetable


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
    unseen = [name for name in INVARIANTS if not total.checked[name]]
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


def test_a_calm_seed_has_no_faults_and_no_duplicates() -> None:
    judged = judge(CALM_EVERY)
    assert not judged.verdict.faults
    assert judged.verdict.ok
    assert judged.verdict.findings["a_healthy_run_has_no_duplicates"].holds_for > 5
    assert set(judged.verdict.duplicates) <= {"retry", "snooze", "release", "replay", "its id was used again"}


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
