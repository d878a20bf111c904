"""A program that closes the files of its store behind its back writes nothing into what got their numbers."""

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.broker.sqlite.lock import FileLock
from windlass.errors import DescriptorClosed, StoreError


@contextlib.contextmanager
def replaced(ending: str, other: int) -> Iterator[int]:
    """All numbers that lead to a file of the store lead to another file; how many those are."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").endswith(ending):  # noqa: PTH115 - no file
                found.append(int(name))
    kept = {number: os.dup(number) for number in found}
    for number in found:
        os.dup2(other, number)
    try:
        yield len(kept)
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Windlass]:
    made = Windlass(f"sqlite:///{tmp_path}/store.db", name="shop")

    @made.task
    def add(a: int) -> int:
        return a

    add.enqueue(1)
    yield made
    made.close()


@pytest.mark.parametrize("ending", ["store.db", "store.db-wal", "store.db-shm"])
def test_nothing_is_written_when_a_number_is_another_file(app: Windlass, ending: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine" * 4096)
    other = os.open(mine, os.O_RDWR)
    try:
        with replaced(ending, other) as count:
            assert count
            with pytest.raises(DescriptorClosed, match="has closed descriptor"):
                app.tasks["add"].enqueue(2)
    finally:
        os.close(other)
    assert mine.read_bytes() == b"mine" * 4096
    app.tasks["add"].enqueue(3)
    app.close()  # the second SQLite of this process drops the locks of the first when it closes the file
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_closed_lock_is_an_error_of_ours(app: Windlass) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        with replaced("store.db-lock", null):  # a device that knows no such lock would do, or a closed number
            numbers = [number for number in range(3, 256) if _leads_to(number, os.devnull)]
            copies = {number: os.dup(number) for number in numbers if number != null}
            for number in copies:
                os.close(number)
            with pytest.raises(DescriptorClosed, match="closed the lock"):
                app.tasks["add"].enqueue(2)
            for number, copy in copies.items():
                os.dup2(copy, number)
                os.close(copy)
    finally:
        os.close(null)
    app.tasks["add"].enqueue(3)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[tuple[FileLock, FileLock]]:
    """The locks of two processes."""
    ours, theirs = (FileLock(tmp_path / "store.db", patience=20.0) for _ in range(2))
    (tmp_path / "store.db").touch()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize("closed", ["lock", "turn"])
def test_a_lock_that_was_closed_while_it_was_held_is_free_for_others(
    shared: tuple[FileLock, FileLock], closed: str
) -> None:
    ours, theirs = shared
    ours.acquire()
    os.close(vars(ours)[f"_{closed}"])
    ours.release()
    with pytest.raises(DescriptorClosed, match="closed the lock"):
        ours.acquire()
    theirs.acquire()


def test_a_lock_that_was_closed_while_its_turn_was_waited_for_is_free_for_others(
    shared: tuple[FileLock, FileLock],
) -> None:
    ours, theirs = shared
    theirs_turn, our_lock = vars(theirs)["_turn"], vars(ours)["_lock"]
    fcntl.flock(theirs_turn, fcntl.LOCK_EX)
    told: list[BaseException] = []

    def wait() -> None:
        try:
            ours.acquire()
        except StoreError as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while vars(ours)["_helper"] is None or not vars(ours)["_helper"].busy:
        pass
    os.close(our_lock)
    fcntl.flock(theirs_turn, fcntl.LOCK_UN)
    waiting.join()
    assert [type(error) for error in told] == [DescriptorClosed]
    theirs.acquire()


def test_a_turn_that_is_closed_in_the_moment_of_locking_leaves_nothing_locked(
    shared: tuple[FileLock, FileLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = shared
    turn = vars(ours)["_turn"]

    def lock(number: int, how: int) -> None:
        if (number, how) == (turn, fcntl.LOCK_UN):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(number, how)

    flock = fcntl.flock
    with monkeypatch.context() as closing:
        closing.setattr(fcntl, "flock", lock)
        with pytest.raises(DescriptorClosed):
            ours.acquire()
    os.close(turn)
    theirs.acquire()


def test_a_number_that_is_another_file_is_neither_locked_nor_closed(
    shared: tuple[FileLock, FileLock], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.broker.sqlite.lock.EVERY", 0.0)  # it looks at its files at once
    ours, theirs = shared
    mine = os.open(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
    numbers = [vars(ours)["_turn"], vars(ours)["_lock"]]
    for number in numbers:
        os.dup2(mine, number)
    with pytest.raises(DescriptorClosed, match="closed the lock"):
        ours.acquire()
    theirs.acquire()
    ours.close()
    assert [os.path.sameopenfile(mine, number) for number in numbers] == [True, True]
    for number in (mine, *numbers):
        os.close(number)


def test_wakes_go_on_when_their_files_were_closed(app: Windlass, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.touch()
    other = os.open(mine, os.O_RDWR)
    app.tasks["add"].enqueue(2)  # from here on there is one
    fifo = next(str(path) for path in (tmp_path / "store.db-wake").iterdir())
    try:
        with replaced(fifo, other) as count:
            assert count
            app.tasks["add"].enqueue(2)
    finally:
        os.close(other)
    assert mine.read_bytes() == b""


def _leads_to(number: int, path: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}") == path  # noqa: PTH115 - no file
    except OSError:
        return False


def test_apps_on_one_file_do_not_take_each_others_descriptors_for_their_own(tmp_path: Path) -> None:
    """Threads that open and close an app of their own each, beside others that enqueue."""
    errors: list[BaseException] = []

    def use() -> None:
        try:
            for _ in range(40):
                app = Windlass(f"sqlite:///{tmp_path}/shared.db")
                app.task(name="add")(print)
                for _ in range(3):
                    app.tasks["add"].enqueue()
                app.close()
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
