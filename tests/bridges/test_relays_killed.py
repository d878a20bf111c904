"""A relay's process is killed between what the message broker has taken and the place that is kept."""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.bridges.ends import Ends, kill


class Killing:
    """The message broker is a file."""

    def __init__(self, folder: Path) -> None:
        self._taken, self.hang = folder / "taken", folder / "hang"
        self._taken.touch()
        self.ends = Ends(folder, str(self._taken))

    def start(self, page: int) -> "subprocess.Popen[str]":
        return self.ends.start(page, str(self.hang), stdout=subprocess.PIPE)

    def ids(self) -> list[str]:
        return self._taken.read_text().splitlines()

    def jobs(self) -> list[str]:
        return [each.partition(":")[0] for each in self.ids()]

    def wait_for(self, jobs: list[str]) -> None:
        until = time.monotonic() + 60
        while left := set(jobs).difference(self.jobs()):
            assert time.monotonic() < until, f"{len(left)} ends were never told"
            time.sleep(0.02)


def test_what_was_taken_before_a_kill_comes_again_under_the_same_id(tmp_path: Path) -> None:
    killing = Killing(tmp_path)
    killing.ends.end(25)
    killing.hang.touch()
    for _ in range(2):
        process = killing.start(page=10)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "10\n"
        finally:
            kill(process)
    killing.hang.unlink()
    process = killing.start(page=10)
    try:
        killing.wait_for(killing.ends.jobs)
    finally:
        kill(process)
        killing.ends.app.close()
    jobs = killing.ends.jobs
    assert killing.jobs() == jobs[:10] * 2 + jobs
    assert len(set(killing.ids())) == 25


@pytest.mark.slow
def test_two_that_are_killed_at_any_moment_leave_nothing_out(tmp_path: Path) -> None:
    killing = Killing(tmp_path)
    ends, drawn = killing.ends, random.Random(7)
    running = [killing.start(page=5) for _ in range(2)]
    try:
        for _ in range(40):
            ends.end(60)
            killing.wait_for(ends.jobs[: -drawn.randrange(1, 60)])  # one of them is in the middle of it
            victim = drawn.randrange(2)
            kill(running[victim])
            running[victim] = killing.start(page=5)
        killing.wait_for(ends.jobs)
    finally:
        kill(*running)
        ends.app.close()
    told = killing.ids()
    assert {each.partition(":")[0] for each in told} == set(ends.jobs)
    assert len(set(told)) == len(ends.jobs), "one id for each end"
    # The first time that each is told, they come in the order of the log.
    assert list(dict.fromkeys(killing.jobs())) == ends.jobs
    assert max(Counter(told).values()) > 1, "no kill has hit a page that was under way"
