"""The demo as a newcomer runs it."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.demo.jobs import FIRST, JOBS, KINDS, LATER, OPENING


def test_every_kind_is_enqueued_as_often_as_it_says() -> None:
    first = [call.job.task for call in OPENING.calls()]
    later = [call.job.task for act in LATER for call in act.calls()]
    assert len(first) == FIRST
    assert len(first + later) == JOBS
    for kind in KINDS:
        assert (first + later).count(kind.name) == kind.count


class Demo:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "windlass.demo"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )

    def wait_for(self, text: str) -> str:
        """Read until a line has a text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return line
        raise AssertionError(f"the demo ended before it said {text!r}")

    def workers(self) -> list[int]:
        """Processes that work for this demo: its folder is in their environment."""
        wanted = f"WINDLASS_DEMO_FOLDER={self.folder}".encode()
        found: list[int] = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) not in (os.getpid(), self.process.pid):
                try:
                    environment = (process / "environ").read_bytes()
                except OSError:
                    continue
                if wanted in environment:
                    found.append(int(process.name))
        return found


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    running = Demo(tmp_path)
    yield running
    running.process.kill()
    running.process.wait()
    assert running.process.stdout is not None
    running.process.stdout.close()


@pytest.mark.slow
def test_the_account_closes(demo: Demo) -> None:
    output, _ = demo.process.communicate(timeout=120)
    assert demo.process.returncode == 0, output
    assert f"{JOBS} accepted = {JOBS - 9} done + 9 dead" in output
    assert "The account closes" in output
    assert "\x1b" not in output  # no terminal, no colours
    assert list(demo.folder.iterdir()) == []
    assert demo.workers() == []


@pytest.mark.slow
def test_an_interrupt_ends_it_cleanly(demo: Demo) -> None:
    demo.wait_for("jobs, due in")  # the workers run
    assert demo.workers() != []
    demo.process.send_signal(signal.SIGINT)
    output, _ = demo.process.communicate(timeout=30)
    assert demo.process.returncode == 130
    assert "Interrupted" in output
    assert "Traceback" not in output
    assert list(demo.folder.iterdir()) == []
    assert demo.workers() == []


@pytest.mark.slow
def test_workers_do_not_outlive_a_demo_that_was_killed(demo: Demo) -> None:
    demo.wait_for("jobs, due in")
    ends = [os.pidfd_open(pid) for pid in demo.workers()]
    assert ends
    demo.process.kill()
    for end in ends:
        assert wait_for_exit(end, 20.0)
        os.close(end)


def wait_for_exit(process: int, seconds: float) -> bool:
    return bool(select.select([process], [], [], seconds)[0])
