"""The programs of a run: hosts of workers, and producers. They are started again when they end, as a service
manager does it.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from windlass.verify import history
from windlass.verify.ground import APP, HOST, environment
from windlass.verify.guardian import end_groups
from windlass.verify.history import Journal
from windlass.verify.processes import Started, Starter, freeze_groups, send
from windlass.verify.producer import read_tally

HOSTS = ("a", "b")
PROCESSES, CONCURRENCY = 2, 8
QUEUES = "default=6,lanes=3,limited=2,rated=1,row=2,apart=1"
"""With weights: emptied in their order, the last would wait behind every backlog, and so would a job of it
that a dead worker gave back."""
STYLES = ("blocking", "async")
AGAIN_AFTER = 0.5
"""Seconds between the end of a program and its next start."""
PRODUCER = "windlass.verify.producer"
"""The program of a producer; a test puts a lying one in its place."""
PRODUCERS = "producers"
"""The door of the producers."""


class Staff:
    """Programs by the place they take, and the rule for who is to be there."""

    def __init__(self, starter: Starter, journal: Journal, make: Callable[[str, int], Started]) -> None:
        self._starter = starter
        self._journal = journal
        self._make = make
        self._starts: dict[str, int] = {}
        self._ended_at: dict[str, float] = {}
        self.now: dict[str, Started] = {}
        self.all: list[Started] = []
        self.always: dict[str, str] = {}
        """Variables of all of them."""
        self.closed: set[str] = set()
        """Places that nobody is to take."""

    def keep(self, places: Iterable[str]) -> None:
        """Start who is not there, a moment after its end."""
        for place in places:
            running = self.now.get(place)
            if running is not None and not running.is_running:
                self._gone(place, running)
            late = time.monotonic() - self._ended_at.get(place, 0.0) > AGAIN_AFTER
            if place not in self.now and place not in self.closed and late:
                self._start(place)

    def _start(self, place: str) -> None:
        self._starts[place] = number = self._starts.get(place, 0) + 1
        started = self._make(place, number)
        self.now[place] = started
        self.all.append(started)
        self._journal.write(history.Process(name=started.name, action="started", pid=started.pid))

    def _gone(self, place: str, ended: Started) -> None:
        del self.now[place]
        self._ended_at[place] = time.monotonic()
        code = ended.process.returncode
        self._journal.write(history.Process(name=ended.name, action="ended", pid=ended.pid, code=code))

    @property
    def running(self) -> list[Started]:
        """Who is there."""
        return [each for each in self.now.values() if each.is_running]

    def freeze_all(self) -> list[int]:
        """Stop everybody, also those who have outlived a supervisor that was killed; who was stopped."""
        return freeze_groups({started.group for started in self.all}, self._starter.mark)

    def kill_all(self) -> None:
        """End everybody at once, also what the dead have left behind; places may be taken again."""
        for place, started in list(self.now.items()):
            started.kill_tree()
            self._gone(place, started)
        end_groups({started.group for started in self.all}, self._starter.mark)

    def stop_all(self, within: float) -> bool:
        """Ask everybody to stop, twice if need be; whether all did by themselves."""
        self.closed |= set(self.now)
        willing = True
        for word in (signal.SIGTERM, signal.SIGTERM):
            for started in self.running:
                started.signal(word)
            end = time.monotonic() + within / 2
            for started in self.running:
                started.wait(max(0.0, end - time.monotonic()))
        for place, started in list(self.now.items()):
            if started.is_running:
                willing = False
                started.kill_tree()
            self._gone(place, started)
        return willing

    def close(self) -> None:
        """End what is left of everybody that was ever started."""
        for started in self.all:
            if started.is_running:
                started.kill_tree()
            else:
                started.kill_group()
        self.all = []


class Fleet(Staff):
    """Hosts of workers: `windlass worker`, each through a door of its own."""

    def __init__(self, starter: Starter, journal: Journal, url: Callable[[str], str], namespace: str) -> None:
        super().__init__(starter, journal, self._host)
        self._url = url
        self._namespace = namespace
        self._history = starter.folder.parent / "history"
        self.extra: dict[str, str] = {}
        """Variables of hosts that start from now on: for shifted clocks."""
        self.others: Mapping[str, Callable[[str, int], Started]] = {}
        """Programs beside the hosts that work for the store, by their places."""

    @property
    def places(self) -> tuple[str, ...]:
        """Where somebody is to be."""
        return (*HOSTS, *self.others)

    def _host(self, place: str, number: int) -> Started:
        if place in self.others:
            return self.others[place](place, number)
        command = [sys.executable, "-m", "windlass.verify.host", "worker", APP]
        options = ["--processes", str(PROCESSES), "--concurrency", str(CONCURRENCY), "--queues", QUEUES]
        variables = environment(
            self._url(place), self._namespace, self._history, **{HOST: place}, **self.always, **self.extra
        )
        name = f"host-{place}-{number}"
        return self._starter.start(name, [*command, *options], environment=variables)

    def thaw(self, pids: Iterable[int]) -> None:
        """Let processes go on."""
        for pid in pids:
            send(pid, signal.SIGCONT)


class Producers(Staff):
    """Producers of two styles, at a rate together."""

    def __init__(
        self,
        starter: Starter,
        journal: Journal,
        url: Callable[[str], str],
        namespace: str,
        *,
        rate: float,
        seed: int,
    ) -> None:
        super().__init__(starter, journal, self._producer)
        self._url = url
        self._namespace = namespace
        self._history = starter.folder.parent / "history"
        self._rate = rate / len(STYLES)
        self._seed = seed
        self.extra: dict[str, str] = {}
        """Variables of theirs."""

    def _producer(self, place: str, number: int) -> Started:
        name = f"producer-{place}-{number}"
        seed = self._seed * 1_000 + STYLES.index(place) * 500 + number
        command = [
            sys.executable,
            "-m",
            PRODUCER,
            name,
            place,
            f"{self._rate:g}",
            str(seed),
        ]
        variables = environment(
            self._url(PRODUCERS), self._namespace, self._history, **self.always, **self.extra
        )
        return self._starter.start(name, command, environment=variables)

    @property
    def accepted(self) -> int:
        """Jobs that the store has accepted from all of them."""
        return sum(map(read_tally, self._history.glob("producer-*.tally")))


def remove_tables(sessions: Iterable[str]) -> None:
    """Shared memory that killed workers have left, by the sessions that the store names."""
    from windlass.worker.table import table_path  # noqa: PLC0415 - only at the end

    for session in sessions:
        path: Path = table_path(session)
        path.unlink(missing_ok=True)
