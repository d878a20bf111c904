"""Programs that fork after they have used an app: what any of their processes was told is kept is there."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.postgres.namespaces import namespaces
from tests.broker.redis.fixtures import redis_server

from windlass import Windlass
from windlass.core.state import State

__all__ = ["namespaces", "redis_server"]
ROOT = Path(__file__).parents[2]
_numbers = itertools.count()


class Place(NamedTuple):
    """A store, and a namespace of the test's own."""

    url: str
    namespace: str

    def knows(self, *jobs: str) -> bool:
        """Whether a process that was not there finds all of these."""
        app = Windlass(self.url, namespace=self.namespace)
        try:
            return {app.job(job).state() for job in jobs} == {State.READY}
        finally:
            app.close()


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    namespace = f"forked{os.getpid()}x{next(_numbers)}"
    if request.param == "redis":
        return Place(request.getfixturevalue("redis_server").url, namespace)
    if request.param == "postgres":
        return Place(request.getfixturevalue("namespaces").server.dsn, namespace)
    return Place(f"sqlite:///{tmp_path / 'windlass.db'}", namespace)


class Program:
    """A program that runs, and all that it says."""

    def __init__(self, process: "subprocess.Popen[bytes]", children: int) -> None:
        self._process = process
        self._children = children
        self.said: list[str] = []

    def hear(self, word: str, times: int = 1) -> None:
        """Listen until it has said a word so many times."""
        assert self._process.stdout is not None
        while times:
            line = self._process.stdout.readline().decode().strip()
            assert line, self.said
            self.said.append(line)
            times -= line == word

    def tell_parent(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"x")
        self._process.stdin.flush()

    def tell_children(self) -> None:
        """Let both go on."""
        os.write(self._children, b"xx")

    def end(self) -> int:
        """Wait until all of its processes have ended; the code of the first."""
        assert self._process.stdout is not None
        self.said += [line.decode().strip() for line in self._process.stdout]
        return self.end_of_parent()

    def end_of_parent(self) -> int:
        """Wait for that alone."""
        return self._process.wait(60)

    def ids(self) -> list[str]:
        """The jobs that were accepted; what is neither this nor a known word is an error."""
        found = [word for word in self.said if word not in ("ready", "closed")]
        assert all(len(word) == 36 for word in found), [word for word in found if len(word) != 36]
        return found


@contextmanager
def program(place: Place, what: str, *more: str) -> Iterator[Program]:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.client.forking", *place, what, *more],
        cwd=ROOT,
        env={**os.environ, "WINDLASS_TEST_CHILDREN": str(reading)},
        pass_fds=[reading],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    os.close(reading)
    try:
        yield Program(process, writing)
    finally:
        os.close(writing)  # children that wait end with an error
        process.kill()
        process.communicate()


def test_a_parent_that_stays(place: Place) -> None:
    with program(place, "stays") as running:
        running.hear("ready", 2)
        running.tell_children()
        assert running.end() == 0
        assert len(running.ids()) == 1 + 2 + 41 + 41 + 2 * 40
        assert place.knows(*running.ids())


@pytest.mark.parametrize("what", ["closes", "exits", "is_killed", "forks_in_a_thread"])
def test_a_parent_that_goes(place: Place, what: str) -> None:
    with program(place, what) as running:
        running.hear("ready", 2)
        running.tell_parent()
        if what == "closes":
            running.hear("closed")
        else:
            assert running.end_of_parent() == (-signal.SIGKILL if what == "is_killed" else 0)
        before = running.ids()
        assert place.knows(*before)  # who opens the store now may take itself for the only one
        running.tell_children()
        assert running.end() in (0, -signal.SIGKILL)
        assert len(running.ids()) == len(before) + 2 * 40
        assert place.knows(*running.ids())


def test_children_of_the_standard_library(place: Place) -> None:
    with program(place, "has_a_pool") as running:
        assert running.end() == 0
        assert len(running.ids()) == 1 + 40 + 20
        assert place.knows(*running.ids())


def test_a_child_that_lets_go_of_the_app(place: Place) -> None:
    with program(place, "is_forgotten_by_its_child") as running:
        assert running.end() == 0
        assert place.knows(*running.ids())


@pytest.mark.parametrize("forks", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_forks_while_threads_enqueue_read_and_open(place: Place, forks: int) -> None:
    with program(place, "forks_meanwhile", str(forks)) as running:
        assert running.end() == 0
        assert place.knows(*running.ids())


@pytest.mark.parametrize("how", ["is_forked_from_c", "is_forked_from_c_in_the_middle_of_a_call"])
def test_sqlite_is_refused_after_a_fork_that_did_not_tell(tmp_path: Path, how: str) -> None:
    place = Place(f"sqlite:///{tmp_path / 'windlass.db'}", "windlass")
    with program(place, how) as running:
        assert running.end() == 0
    refused = [word for word in running.said if word.startswith("refused: ")]
    assert len(refused) == 1
    assert "without Python's fork hooks" in refused[0]
    assert "lazy-apps" in refused[0]
    running.said.remove(refused[0])
    assert len(running.ids()) == 2
    assert place.knows(*running.ids())
