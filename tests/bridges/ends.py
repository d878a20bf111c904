"""An app whose jobs end when a test says so, and processes that run its relay."""

import subprocess
import sys
from pathlib import Path
from typing import IO

from windlass import Windlass
from windlass.core.operate import Target

ROOT = Path(__file__).parents[2]


class Ends:
    """A store with a relay that is called `ends`."""

    def __init__(self, folder: Path, place: str) -> None:
        """`place` is what its processes are told: the URL of a message broker, or a file."""
        self.store = f"sqlite:///{folder / 'windlass.db'}"
        self._place = place
        self._log = folder / "log"
        self.app = Windlass(self.store)
        self.app.relay(place if "://" in place else "kafka://nowhere/ends", name="ends", on="cancelled")
        self._add = self.app.task(name="add")(lambda: None)
        self.jobs: list[str] = []
        """Those that have ended, in the order of their ends."""

    def end(self, count: int) -> None:
        """Let new jobs be cancelled."""

        async def cancel() -> list[str]:
            ended = [job.id for job in await self.app.aenqueue_many(self._add.call() for _ in range(count))]
            await (await self.app.broker()).cancel([Target(job) for job in ended])
            return ended

        self.jobs += self.app.run(cancel())

    def start(self, page: int, *more: str, stdout: "int | IO[str] | None" = None) -> "subprocess.Popen[str]":
        """A process that runs the relay."""
        given = [self.store, str(page), self._place, *more]
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.bridges.relay_process", *given],
                cwd=ROOT,
                stderr=log,
                stdout=stdout,
                text=True,
            )


def kill(*processes: "subprocess.Popen[str]") -> None:
    """End processes at once."""
    for process in processes:
        process.kill()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
