"""A program that closes the files of its store behind its back writes nothing into what got their numbers."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.errors import DescriptorClosed


@contextlib.contextmanager
def replaced(ending: str, other: int) -> Iterator[int]:
    """All numbers that lead to a file of the store lead to another file; how many those are."""
    kept: dict[int, int] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").endswith(ending):  # noqa: PTH115 - no file
                kept[int(name)] = os.dup(int(name))
                os.dup2(other, int(name))
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


@pytest.mark.parametrize("ending", ["store.db", "store.db-wal"])
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
