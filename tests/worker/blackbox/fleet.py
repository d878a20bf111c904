"""Workers as an operator runs them: a folder, an app, processes. Ended by the pids that were started."""

import contextlib
import fcntl
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from tests.worker.blackbox.ledger import LEDGER, Ledger, read

from windlass import Windlass
from windlass.core.job import JobDetail
from windlass.core.query import JobQuery
from windlass.core.session import SessionState, SessionView
from windlass.core.state import State
from windlass.worker.table import table_path

ROOT = Path(__file__).parents[3]
APP = "tests.worker.blackbox.bb_app:app"
STORE = "BB_STORE"
"""The environment variable with the URL of a server to test on; a SQLite file in the folder without it."""
T = TypeVar("T")
_fleets = itertools.count(1)

START = """
import ctypes, logging, sys
ctypes.CDLL(None).prctl(1, 9)  # end with the test, however that ends
from windlass.worker.options import WorkerOptions
from windlass.worker.command import supervise
logging.basicConfig(level="INFO", format="%(asctime)s %(process)d %(levelname)s %(message)s")
sys.exit(supervise(sys.argv[1], eval(sys.argv[2])))
"""


def eventually(
    what: str,
    found: Callable[[], T],
    *,
    within: float = 60.0,
    every: float = 0.02,
    hint: Callable[[], str] = str,
) -> T:
    """Wait for a condition that some other process brings about; its value."""
    end = time.monotonic() + within
    while not (value := found()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {what} {hint()}")
        time.sleep(every)
    return value


def measured(text: str) -> None:
    """Tell a figure to whoever runs the tests with `-s`."""
    sys.stdout.write(f"{text}\n")


def children_of(pid: int) -> list[int]:
    """The pids of a process's children, oldest first."""
    found: list[tuple[int, int]] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append((int(fields[19]), int(stat.parent.name)))
    return [child for _, child in sorted(found)]


def tree_of(pid: int) -> list[int]:
    """A process and all that descend from it."""
    return [pid, *(found for child in children_of(pid) for found in tree_of(child))]


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def cpu_of(pid: int) -> float:
    """Seconds of processor time that the threads of a process have used, to the nanosecond."""
    total = 0
    for threads in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(threads.read_text().split()[0])
    return total / 1e9


def _is_free(lock: Path) -> bool:
    """Whether nobody holds a lock for longer than a write takes."""
    end = time.monotonic() + 0.5
    with lock.open("rb") as file:
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(0.01)
    return False


class Supervisor:
    """`windlass worker`, running."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def children(self) -> list[int]:
        return children_of(self.pid)

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def started(self, within: float = 60.0) -> "Supervisor":
        """Wait until it claims."""
        eventually(
            "worker started",
            lambda: self.said("worker started") or self.process.poll() is not None,
            within=within,
            hint=self.log.read_text,
        )
        assert self.process.poll() is None, self.log.read_text()
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM, *, within: float = 60.0) -> int:
        """Ask it to stop and wait for that; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(within)

    def kill_tree(self) -> None:
        """End everything of it at once, as a power cut would."""
        if self.process.poll() is not None:
            return
        pids = tree_of(self.pid)
        for pid in pids:
            send(pid, signal.SIGSTOP)  # so that nobody says a last word
        for pid in {*pids, *tree_of(self.pid)}:
            send(pid, signal.SIGKILL)
        self.process.wait()


class Fleet:
    """A folder with a store, a ledger, and workers."""

    def __init__(self, folder: Path, url: str, app: Windlass, **settings: str) -> None:
        self.folder = folder
        self.url = url
        self.app = app
        self.ledger_path = folder / "ledger.jsonl"
        self.settings = settings
        self.supervisors: list[Supervisor] = []
        self._helpers: list[subprocess.Popen[bytes]] = []

    def environment(self, **more: str) -> dict[str, str]:
        """Of every process: no settings but those of the test."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
        return {
            **clean,
            "WINDLASS_URL": self.url,
            LEDGER: str(self.ledger_path),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **self.settings,
            **more,
        }

    def start(
        self,
        options: str = "",
        *,
        app: str = APP,
        wait: bool = True,
        group: bool = False,
        **environment: str,
    ) -> Supervisor:
        """Start a worker, with the keywords of `WorkerOptions` as text."""
        log = self.folder / f"worker-{len(self.supervisors)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", START, app, f"WorkerOptions({options})"],
                cwd=self.folder,
                env=self.environment(**environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=group,
            )
        supervisor = Supervisor(process, log)
        self.supervisors.append(supervisor)
        return supervisor.started() if wait else supervisor

    def run(self, *command: str) -> "subprocess.Popen[bytes]":
        """Start another program in the folder, such as a producer."""
        process = subprocess.Popen(
            [sys.executable, *command], cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL
        )
        self._helpers.append(process)
        return process

    def close(self) -> None:
        """End all that was started."""
        for supervisor in self.supervisors:
            supervisor.kill_tree()
        for helper in self._helpers:
            if helper.poll() is None:
                helper.kill()
                helper.wait()
        self._sweep_up()
        self.app.close()

    def _sweep_up(self) -> None:
        """Nobody starts here again who would remove what workers that were killed have left in memory."""
        for session in self._sessions():
            table_path(session.id).unlink(missing_ok=True)

    def _sessions(self) -> Sequence[SessionView]:
        async def ask() -> Sequence[SessionView]:
            return await (await self.app.connection.broker()).sessions()

        return self.app.connection.run(ask())

    def sessions(self) -> int:
        """How many worker processes the store knows to be alive."""
        return sum(each.state is SessionState.ALIVE for each in self._sessions())

    def freeze(self, *pids: int) -> None:
        """Stop processes, but not while one of them holds the file's lock: that would stop everybody."""
        # A server has no such lock that a client holds: each of its steps is one message.
        locks = [self.folder / "windlass.db-turn", self.folder / "windlass.db-lock"]
        locks = [lock for lock in locks if lock.exists()]

        def frozen() -> bool:
            for pid in pids:
                send(pid, signal.SIGSTOP)
            if all(_is_free(lock) for lock in locks):
                return True
            self.thaw(*pids)
            return False

        eventually("stopped outside of a write", frozen)

    def thaw(self, *pids: int) -> None:
        """Let stopped processes go on."""
        for pid in pids:
            send(pid, signal.SIGCONT)

    # --- public reads ---------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        return read(self.ledger_path)

    def now(self) -> float:
        """On the ledger's clock."""
        return time.monotonic()

    @property
    def written(self) -> int:
        """Bytes of the ledger: a cheap measure of what was done."""
        return self.ledger_path.stat().st_size if self.ledger_path.exists() else 0

    def details(self, jobs: list[str]) -> dict[str, JobDetail]:
        """What the store says of jobs."""

        async def ask() -> list[JobDetail | None]:
            broker = await self.app.connection.broker()
            found: list[JobDetail | None] = []
            for at in range(0, len(jobs), 1_000):
                found += await broker.get(jobs[at : at + 1_000])
            return found

        found = self.app.connection.run(ask())
        missing = [job for job, detail in zip(jobs, found, strict=True) if detail is None]
        assert not missing, f"{len(missing)} accepted jobs are unknown: {missing[:3]}"
        return {detail.id: detail for detail in found if detail is not None}

    def detail(self, job: str) -> JobDetail:
        return self.details([job])[job]

    def listed(self, **query: object) -> list[str]:
        """Ids of all jobs that match."""

        async def ask() -> list[str]:
            broker = await self.app.connection.broker()
            found: list[str] = []
            page = await broker.list(JobQuery(**query))  # pyright: ignore[reportArgumentType]
            found += [job.id for job in page.jobs]
            while page.cursor is not None:
                page = await broker.list(JobQuery(**query), page.cursor)  # pyright: ignore[reportArgumentType]
                found += [job.id for job in page.jobs]
            return found

        return self.app.connection.run(ask())

    def counts(self) -> dict[str, int]:
        """Jobs by state."""

        async def ask() -> dict[str, int]:
            found: dict[str, int] = {str(state): 0 for state in State}
            for row in (await (await self.app.connection.broker()).counts()).rows:
                found[str(row.state)] += row.count
            return found

        return self.app.connection.run(ask())

    def unfinished(self) -> int:
        """How many jobs have not ended."""
        counts = self.counts()
        return sum(counts[state] for state in ("blocked", "scheduled", "ready", "running"))

    def finished(self, *, within: float = 60.0) -> None:
        """Wait until every job has ended."""
        eventually("all jobs end", lambda: not self.unfinished(), within=within, hint=self.trouble)

    def trouble(self) -> str:
        """For a failed test: where things stand, and the end of each log."""
        logs = [f"--- {each.log.name}\n{each.log.read_text()[-3_000:]}" for each in self.supervisors]
        return "\n".join([str(self.counts()), *logs])


@contextlib.contextmanager
def fleet_in(
    folder: Path, build: Callable[[str], Windlass], *, url: str | None = None, **settings: str
) -> Iterator[Fleet]:
    """A fleet for a test; all of it ends with the test. On a server it has a namespace of its own."""
    url = url or os.environ.get(STORE)
    with pytest.MonkeyPatch.context() as patch:
        if url is None:
            url = f"sqlite:///{folder}/windlass.db"
        else:
            settings["WINDLASS_NAMESPACE"] = f"bb{os.getpid()}x{next(_fleets)}"
            patch.setenv("WINDLASS_NAMESPACE", settings["WINDLASS_NAMESPACE"])
        fleet = Fleet(folder, url, build(url), **settings)
        try:
            yield fleet
        finally:
            fleet.close()
