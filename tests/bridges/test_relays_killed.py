"""A relay's process is killed between what the message broker has taken and the place that is kept."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.core.operate import Target

ROOT = Path(__file__).parents[2]


class Killing:
    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder / 'windlass.db'}"
        self.taken, self.hang = folder / "taken", folder / "hang"
        self.taken.touch()
        self.app = Windlass(self.store)
        self.app.relay("kafka://nowhere/ends", name="ends", on="cancelled")
        self.add = self.app.task(name="add")(lambda: None)

    def start(self, page: int) -> "subprocess.Popen[str]":
        given = [self.store, str(page), str(self.taken), str(self.hang)]
        command = [sys.executable, "-m", "tests.bridges.relay_process", *given]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def ends(self, count: int) -> list[str]:
        """New jobs that are cancelled, in the order of their ends."""
        jobs = [job.id for job in self.app.enqueue_many(self.add.call() for _ in range(count))]

        async def cancel() -> None:
            await (await self.app.broker()).cancel([Target(job) for job in jobs])

        self.app.run(cancel())
        return jobs

    def ids(self) -> list[str]:
        return self.taken.read_text().splitlines()

    def jobs(self) -> list[str]:
        return [each.partition(":")[0] for each in self.ids()]

    def wait_for(self, jobs: set[str]) -> None:
        until = time.monotonic() + 60
        while not jobs <= set(self.jobs()):
            assert time.monotonic() < until, f"{len(jobs - set(self.jobs()))} ends were never told"
            time.sleep(0.02)


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()


def test_what_was_taken_before_a_kill_comes_again_under_the_same_id(tmp_path: Path) -> None:
    killing = Killing(tmp_path)
    jobs = killing.ends(25)
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
        killing.wait_for(set(jobs))
    finally:
        kill(process)
    assert killing.jobs() == jobs[:10] * 2 + jobs
    assert len(set(killing.ids())) == 25
    killing.app.close()


@pytest.mark.slow
def test_two_that_are_killed_at_any_moment_leave_nothing_out(tmp_path: Path) -> None:
    killing = Killing(tmp_path)
    drawn = random.Random(7)
    running = [killing.start(page=5) for _ in range(2)]
    jobs: list[str] = []
    try:
        for _ in range(40):
            jobs += killing.ends(60)
            killing.wait_for(set(jobs[: -drawn.randrange(1, 60)]))  # one of them is in the middle of it
            victim = drawn.randrange(2)
            kill(running[victim])
            running[victim] = killing.start(page=5)
        killing.wait_for(set(jobs))
    finally:
        for process in running:
            kill(process)
    told = killing.ids()
    assert {each.partition(":")[0] for each in told} == set(jobs)
    assert len(set(told)) == len(jobs), "one id for each end"
    # The first time that each is told, they come in the order of the log.
    assert list(dict.fromkeys(killing.jobs())) == jobs
    assert max(Counter(told).values()) > 1, "no kill has hit a page that was under way"
    killing.app.close()
