"""Nothing outlives a run, and nothing is touched that a run did not start."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windlass.verify.guardian import MARK, Guardian, end_groups, groups_left, members
from windlass.verify.processes import Starter, freeze_groups, freeze_tree, tree_of, until

SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
PARENT = (
    sys.executable,
    "-c",
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])",
)


def holds(condition: Callable[[], bool]) -> None:
    assert until(condition, 30)


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    made = Guardian()
    yield made
    made.close()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_groups_left_are_those_that_were_not_seen_to_end() -> None:
    assert groups_left(["+10\n", "+11\n", "-10\n", "nonsense\n", "+1\n", "+0\n"]) == {11}


def test_a_tree_is_frozen_and_killed_whole(tmp_path: Path, guardian: Guardian) -> None:
    started = Starter(tmp_path, guardian).start("tree", PARENT)
    holds(lambda: len(tree_of(started.pid)) == 2)
    tree = freeze_tree(started.pid)
    assert len(tree) == 2
    started.kill_tree()
    assert all(is_gone(pid) for pid in tree)


def test_orphans_of_a_killed_parent_are_frozen_and_killed_with_its_group(
    tmp_path: Path, guardian: Guardian
) -> None:
    starter = Starter(tmp_path, guardian)
    started = starter.start("tree", PARENT)
    holds(lambda: len(tree_of(started.pid)) == 2)
    (orphan,) = started.children
    os.kill(started.pid, signal.SIGKILL)
    assert started.wait(30)
    assert freeze_groups({started.group}, starter.mark) == [orphan]
    assert Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    assert end_groups({started.group}, starter.mark)
    assert is_gone(orphan)


def test_the_guardian_ends_a_frozen_process_when_its_run_is_killed(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from windlass.verify.guardian import Guardian
from windlass.verify.processes import Starter
started = Starter(Path({str(tmp_path)!r}), Guardian()).start("one", {SLEEPER!r})
print(started.pid, flush=True)
time.sleep(600)
"""
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    holds(lambda: "up" in (tmp_path / "one.log").read_text())
    os.kill(pid, signal.SIGSTOP)
    run.kill()
    run.wait()
    run.stdout.close()
    holds(lambda: is_gone(pid))


def test_a_number_that_has_become_another_process_is_left_alone(guardian: Guardian) -> None:
    stranger = subprocess.Popen(SLEEPER, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        assert members({stranger.pid}, guardian.mark) == []
        guardian.watch(stranger.pid)
        guardian.close()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_members_carry_the_mark(tmp_path: Path, guardian: Guardian) -> None:
    started = Starter(tmp_path, guardian).start("one", SLEEPER, environment={**os.environ, MARK: "other"})
    try:
        holds(lambda: members({started.pid}, guardian.mark) == [started.pid])
        assert members({started.pid}, "another") == []
    finally:
        started.kill_tree()
