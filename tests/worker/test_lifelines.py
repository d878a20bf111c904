"""What a worker process lives by is missed when somebody closes it."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.worker.lifelines import Lifelines


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


def test_nothing_is_missed_while_all_is_open(file: int) -> None:
    lifelines = Lifelines()
    lifelines.hold("a file", file)
    loop = lifelines.new_loop("a loop")
    try:
        assert loop.run_until_complete(asyncio.sleep(0, "works")) == "works"
        assert lifelines.broken() is None
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert lifelines.broken() is not None


def test_number_that_was_closed_is_missed(file: int) -> None:
    lifelines = Lifelines()
    copy = os.dup(file)
    lifelines.hold("a file", copy)
    os.close(copy)
    assert lifelines.broken() == f"a file (descriptor {copy}) was closed"


def test_number_of_another_file_is_missed(file: int, tmp_path: Path) -> None:
    lifelines = Lifelines()
    copy = os.dup(file)
    lifelines.hold("a file", copy)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.dup2(other, copy)
    try:
        assert "another file's now" in (lifelines.broken() or "")
    finally:
        os.close(other)
        os.close(copy)


def test_each_number_of_a_loop_is_missed() -> None:
    """Also the one that the loop registers nowhere: threads write into it to wake the loop."""
    for at in range(3):
        lifelines = Lifelines()
        before = _open_numbers()
        loop = lifelines.new_loop("a loop")
        opened = sorted(_open_numbers() - before)
        assert len(opened) == 3
        kept = os.dup(opened[at])
        null = os.open(os.devnull, os.O_RDWR)
        os.close(opened[at])
        try:
            if os.readlink(f"/proc/self/fd/{kept}").startswith("socket:"):  # noqa: PTH115 - no file
                os.close(kept)  # as closed: the other end sees it
                assert lifelines.broken() is not None
                os.dup2(null, opened[at])
            else:
                assert lifelines.broken() is not None
                os.dup2(kept, opened[at])
                os.close(kept)
        finally:
            os.close(null)
            asyncio.set_event_loop(None)
            loop.close()


def _open_numbers() -> set[int]:
    """But for that of the listing, which is closed by then."""
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        with contextlib.suppress(OSError):
            os.fstat(int(name))
            found.add(int(name))
    return found


def test_limit_below_what_is_open_is_missed() -> None:
    ours, theirs = socket.socketpair()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ours, theirs:
        lifelines = Lifelines()
        lifelines.hold("a socket", ours.fileno())
        resource.setrlimit(resource.RLIMIT_NOFILE, (ours.fileno(), before[1]))
        try:
            assert "lowered" in (lifelines.broken() or "")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert lifelines.broken() is None
