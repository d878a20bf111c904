"""A file that this process has open, for tests in which somebody deletes or replaces it."""

import subprocess
import sys
from pathlib import Path

import apsw
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.sqlite import SqliteBroker

WARM = 50


class Opened:
    """A file with jobs in it, that this process has open, and a copy of how it was before the last ones."""

    def __init__(self, folder: Path) -> None:
        self.path = new_file(folder)
        self.copy = folder / "copy.db"
        self.broker = SqliteBroker(self.path)
        run(self.broker).declare([QUEUE])
        self.enqueue()
        source, target = apsw.Connection(str(self.path)), apsw.Connection(str(self.copy))
        with target.backup("main", source, "main") as work:
            work.step(-1)
        target.close()
        source.close()
        for _ in range(WARM):
            self.enqueue()
        run(self.broker).counts()

    def beside(self, suffix: str) -> Path:
        return Path(f"{self.path}{suffix}")

    def enqueue(self) -> str:
        return self.broker.blocking.enqueue([[new_job()]])[0][0].job

    def enqueued_by_a_new_process(self, count: int, *, lock_timeout: float) -> list[str]:
        """The jobs that a process which opens the file now enqueues, until it is refused."""
        code = (
            "import asyncio, sys; from pathlib import Path; from windlass.broker.sqlite import SqliteBroker;"
            "from tests.broker.sqlite.children import new_job;"
            "b = SqliteBroker(Path(sys.argv[1]), lock_timeout=float(sys.argv[3]));"
            "[print(b.blocking.enqueue([[new_job()]])[0][0].job) for _ in range(int(sys.argv[2]))];"
            "asyncio.run(b.close())"
        )
        command = [sys.executable, "-c", code, str(self.path), str(count), str(lock_timeout)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()

    def jobs_of_a_new_process(self, more: int = 0) -> int:
        """How many jobs a process that opens the file now finds, and enqueues."""
        code = (
            "import asyncio, sys; from pathlib import Path; from windlass.broker.sqlite import SqliteBroker;"
            "from tests.broker.sqlite.children import new_job; b = SqliteBroker(Path(sys.argv[1]));"
            "[b.blocking.enqueue([[new_job()]]) for _ in range(int(sys.argv[2]))];"
            "print(sum(row.count for row in asyncio.run(b.counts()).rows)); asyncio.run(b.close())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(self.path), str(more)],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)
