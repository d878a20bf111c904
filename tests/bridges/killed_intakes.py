"""Processes that run an intake while tests kill them, and the account of what they took."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.bridges.killed_app import FORMAT, STORE, URL, build
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running

from windlass import Windlass
from windlass.core.job import JobDetail
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.state import State
from windlass.core.units import Cursor

PATIENCE = 120.0
QUICK = {"WINDLASS_SESSION_TTL": "3s", "WINDLASS_BEAT": "0.5s"}


class SomeStore(NamedTuple):
    """A store that processes share."""

    url: str
    away: Callable[[], AbstractContextManager[None]]
    """Nobody reaches it meanwhile."""


@contextmanager
def store_of_kind(kind: str, folder: Path) -> Iterator[SomeStore]:
    """A store of its own."""
    if kind == "sqlite":
        file = folder / "windlass.db"
        yield SomeStore(f"sqlite:///{file}", lambda: _locked(file))
    elif kind == "redis":
        with running(redis_binary(), "--appendonly", "yes") as server:
            yield SomeStore(server.url, lambda: _frozen(server.process.pid))
    else:
        # It crashes: what it has accepted must be there afterwards, as a message was acknowledged for it.
        postgres = Server(programs(), synchronous_commit="on")
        try:
            yield SomeStore(postgres.dsn, lambda: _crashed(postgres))
        finally:
            postgres.remove()


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Somebody holds the lock of all writers."""
    link = sqlite3.connect(file, isolation_level=None, timeout=60)
    link.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        link.execute("ROLLBACK")
        link.close()


@contextmanager
def _frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def _crashed(postgres: Server) -> Iterator[None]:
    postgres.stop(signal.SIGQUIT)
    try:
        yield
    finally:
        postgres.start()


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SomeStore]:
    """Each store in turn."""
    with store_of_kind(request.param, tmp_path) as store:
        yield store


def number_of(job: JobDetail) -> int:
    """The argument of a job."""
    payload = msgspec.json.decode(job.payload)
    return int(payload["k"]["n"])


class Intakes:
    """Processes with the same intake."""

    def __init__(
        self, folder: Path, store: str, url: str, form: str = "messages", *, command: str = "intake"
    ) -> None:
        """`command`: `worker` runs their jobs, too."""
        self.app: Windlass = build(store, url, form)
        self._environment = {**os.environ, **QUICK, STORE: store, URL: url, FORMAT: form}
        self._command = command
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self.kills = 0

    def start(self) -> None:
        """One more."""
        with (self._folder / "intakes.log").open("ab") as log:
            command = [sys.executable, "-m", "windlass", self._command, "tests.bridges.killed_app:app"]
            self._running.append(
                subprocess.Popen(
                    command,
                    env=self._environment,
                    cwd=Path(__file__).parents[2],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def kill_one(self, draw: random.Random) -> None:
        """Kill one at once, and start another."""
        victim = self._running.pop(draw.randrange(len(self._running)))
        victim.kill()
        victim.wait()
        self.kills += 1
        self.start()

    def stop(self) -> None:
        """End them all."""
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()
        self.app.close()

    # --- the account ----------------------------------------------------------------------------------------

    def taken(self) -> int:
        """How many jobs there are."""
        return sum(self._counted().values())

    def in_state(self, state: State) -> int:
        """How many jobs are in a state."""
        return self._counted()[state]

    def _counted(self) -> Counter[State]:
        async def counted() -> Counter[State]:
            found = Counter[State]()
            for row in (await (await self.app.broker()).counts()).rows:
                found[row.state] += row.count
            return found

        return self.app.run(counted())

    def jobs(self) -> list[JobDetail]:
        """All jobs."""

        async def listed() -> list[JobDetail]:
            broker, found = await self.app.broker(), list[JobDetail]()
            after: Cursor | None = FIRST_PAGE
            while after is not None:
                page = await broker.list(JobQuery(), after=after, limit=1_000)
                ids = [job.id for job in page.jobs]
                for first in range(0, len(ids), 100):
                    found += [each for each in await broker.get(ids[first : first + 100]) if each]
                after = page.cursor
            return found

        return self.app.run(listed())

    def numbers(self, state: State = State.READY) -> Counter[int]:
        """The arguments of all jobs, which are all in one state."""
        jobs = self.jobs()
        assert {job.state for job in jobs} <= {state}
        return Counter(number_of(job) for job in jobs)

    def wait_for(self, count: int, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until so many jobs are there."""
        until = time.monotonic() + PATIENCE
        while (there := self.taken()) < count:
            assert time.monotonic() < until, f"of {count} messages {there} became jobs: {self.last_words()}"
            meanwhile()
            time.sleep(0.05)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for it."""
        until = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < until, self.last_words()
            time.sleep(0.2)

    def wait_until_they_read(self) -> None:
        """Wait until the first of them has said that it runs."""
        said = "intakes started" if self._command == "intake" else "worker started"
        self.until(lambda: said in (self._folder / "intakes.log").read_text())

    def last_words(self) -> str:
        """The end of what they logged."""
        return (self._folder / "intakes.log").read_text()[-2_000:]
