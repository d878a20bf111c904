"""What the machine says of processes: here, and on machines that are made up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.worker.host import Machine

STAT = "{pid} (a) b) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started} 0 0\n"
here = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def made_up(folder: Path, **files: str) -> Machine:
    """A machine whose files a test writes: `proc/...` and `cgroup/...`, with `|` for `/`."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/stat").write_text(STAT.format(pid=1, state="R", started=1))
    for name, text in files.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Machine(proc=folder / "proc", cgroups=folder / "cgroup")


@here
def test_a_process_is_named_by_its_pid_and_start() -> None:
    machine = Machine()
    first = machine.process_started(os.getpid())
    assert first is not None
    assert first == machine.process_started(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started = machine.process_started(child.pid)
        assert started is not None
        assert started >= first
    finally:
        child.kill()
        child.communicate()
    assert machine.process_started(child.pid) is None
    assert machine.boot
    assert machine.pid_namespace.startswith("pid:[")


@here
def test_a_dead_process_is_gone_before_anybody_has_waited_for_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Machine().process_started(child.pid) is None
    child.communicate()


@here
def test_a_stopped_process_is_seen() -> None:
    machine = Machine()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not machine.is_stopped(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert machine.is_stopped(child.pid)
        os.kill(child.pid, signal.SIGCONT)
        os.waitid(os.P_PID, child.pid, os.WCONTINUED)
        assert not machine.is_stopped(child.pid)
    finally:
        child.kill()
        child.communicate()


@here
def test_memory_is_in_bytes() -> None:
    used = Machine().memory(os.getpid())
    assert 4 << 20 < used < 64 << 30
    assert Machine().memory(2**22 + 1) == 0


@pytest.mark.parametrize(("state", "stopped"), [("S", False), ("R", False), ("T", True), ("t", True)])
def test_the_state_is_read_behind_whatever_a_process_calls_itself(
    tmp_path: Path, state: str, stopped: bool
) -> None:
    machine = made_up(tmp_path, proc__42__stat=STAT.format(pid=42, state=state, started=77))
    assert machine.is_stopped(42) is stopped
    assert machine.process_started(42) == 77


@pytest.mark.parametrize(
    ("groups", "file", "text"),
    [
        ("0::/a/b\n", "cgroup__a__b__memory.events", "low 0\noom 9\noom_kill 3\noom_group_kill 8\n"),
        ("0::/outside\n", "cgroup__memory.events", "oom 9\noom_kill 3\n"),
        ("4:memory:/x\n0::/\n", "cgroup__memory__x__memory.oom_control", "under_oom 0\noom_kill 3\n"),
        ("1:cpu:/\n", "proc__vmstat", "nr_dirty 5\noom_kill 3\n"),
    ],
    ids=["second version", "in a container", "first version", "whole machine"],
)
def test_kills_for_want_of_memory_are_counted(tmp_path: Path, groups: str, file: str, text: str) -> None:
    machine = made_up(tmp_path, proc__self__cgroup=groups, **{file: text})
    assert machine.oom_kills() == 3
    (tmp_path / file.replace("__", "/")).write_text(text.replace("oom_kill 3", "oom_kill 4"))
    assert machine.oom_kills() == 4


def test_a_machine_that_says_nothing_of_itself_is_no_error(tmp_path: Path) -> None:
    machine = Machine(proc=tmp_path / "proc", cgroups=tmp_path / "cgroup")
    assert (machine.boot, machine.pid_namespace, machine.oom_kills()) == ("", "", 0)
    assert machine.process_started(os.getpid()) == 0
    assert machine.process_started(2**22 + 1) is None
    assert (machine.is_stopped(os.getpid()), machine.memory(os.getpid())) == (False, 0)
