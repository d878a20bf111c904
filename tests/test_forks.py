"""Gates: a fork waits for what is under way, and new work waits for the fork."""

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from windlass import forks
from windlass.errors import StoreUnavailable
from windlass.forks import Gate

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Watched(Gate):
    """A gate that remembers what it was told."""

    def __init__(self, patience: float) -> None:
        super().__init__(patience)
        self.quiet = 0

    def on_quiet(self) -> None:
        self.quiet += 1


@pytest.fixture
def gate() -> Iterator[Watched]:
    made = Watched(30.0)
    yield made
    forks._gates.remove(made)


def fork() -> None:
    """A child that does nothing."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_fork_waits_for_work_under_way(gate: Watched) -> None:
    inside, leave = threading.Event(), threading.Event()
    seen: list[int] = []

    def work() -> None:
        with gate:
            inside.set()
            leave.wait(30)
            seen.append(gate.quiet)

    worker, forker = threading.Thread(target=work), threading.Thread(target=fork)
    worker.start()
    assert inside.wait(10)
    forker.start()
    while not gate._forks:
        pass
    leave.set()
    worker.join(10)
    forker.join(10)
    assert (seen, gate.quiet) == ([0], 1)


def test_new_work_waits_for_the_fork(gate: Watched) -> None:
    gate.shut()
    done = threading.Event()

    def work() -> None:
        with gate:
            done.set()

    async def on_loop() -> None:
        async with gate.entered():
            done.set()

    workers = [threading.Thread(target=work), threading.Thread(target=lambda: asyncio.run(on_loop()))]
    for worker in workers:
        worker.start()
    assert not gate.try_to_enter()
    assert not done.is_set()
    gate.reopen()
    for worker in workers:
        worker.join(10)
    assert done.is_set()


def test_two_threads_fork_at_once(gate: Watched) -> None:
    gate.shut()
    gate.shut()
    gate.reopen()
    assert not gate.try_to_enter()  # the other has not forked yet
    gate.reopen()
    assert gate.try_to_enter()


def test_a_fork_does_not_wait_for_ever(gate: Watched) -> None:
    gate._patience = 0.01
    with gate:
        fork()
    assert gate.quiet == 0
    fork()
    assert gate.quiet == 1


def test_work_does_not_wait_for_ever(gate: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "LONGEST_FORK", 0.01)
    gate.shut()
    with pytest.raises(StoreUnavailable, match="about to fork"), gate:
        pass

    async def on_loop() -> None:
        async with gate.entered():
            pass

    with pytest.raises(StoreUnavailable, match="about to fork"):
        asyncio.run(on_loop())
