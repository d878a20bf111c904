"""The descriptors of a file that this process writes to, and a look at them before each transaction.

A program may close them behind our back (`os.closerange`, a number closed twice). Files that it opens next
get the same numbers. SQLite would write its pages into those files, and tell all other processes that they
are in its log: that damages both. And without the index of the log nothing works any more, for reasons that
SQLite does not tell. So nothing is written unless all numbers are still the same files.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from windlass.descriptors import identity
from windlass.errors import DescriptorClosed

_T = TypeVar("_T")
opening = threading.RLock()
"""Held while any thread of this process opens something of a store, for good or for a moment. Only inside the
library, so that no fork falls into it.
"""


class Descriptors:
    """Those of the writer of one file: the file, its log and the index of its log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[bytes, list[int]] = {}
        """By file. More than one if another thread has opened it in the same moment: which of them is ours is
        not known, so it is enough that one is left.
        """
        self.index: int | None = None
        """That of the index of the log, if the system tells."""

    def opened(self, connect: Callable[[], _T]) -> _T:
        """Open a connection, and hold what SQLite has opened for it. One at a time: it tells no numbers, so
        they are the new ones that lead to the file or to its log. It may take over the file from a
        connection that was closed before; that number is then not known, the log's always is. The index is
        open once for all connections of the process.
        """
        with opening:
            before = _numbers()
            connection = connect()
            files = {_file(self._path), _file(Path(f"{self._path}-wal"))} - {None}
            index = {_file(Path(f"{self._path}-shm"))} - {None}
            self._held, self.index = {}, None
            for number in sorted(_numbers()):
                leads_to = _leads_to(number)
                if leads_to in (index if number in before else files | index):
                    self._held.setdefault(identity(number), []).append(number)
                if leads_to in index:
                    self.index = number
            return connection

    def closed(self) -> None:
        """The connection was closed: there is nothing to look at any more."""
        self._held, self.index = {}, None

    def check(self) -> None:
        """Raise `DescriptorClosed` if one of them was closed, or is another file now."""
        for file, numbers in self._held.items():
            if not any(identity(number) == file for number in numbers):
                raise DescriptorClosed(
                    f'this program has closed descriptor {numbers[0]}, which it had open of "{self._path}"; '
                    "nothing was written: find what closes descriptors that are not its own, and start the "
                    "program anew"
                )


def open_files() -> set[tuple[int, int]]:
    """Device and inode of all that this process has open; nothing, where the system does not tell."""
    return {file for number in _numbers() if (file := _leads_to(number))}


def _leads_to(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _numbers() -> set[int]:
    """All that this process has open; nothing, where the system does not tell. Not the number of the listing
    itself, which is closed by then and is given out next.
    """
    try:
        names = os.listdir("/dev/fd")  # noqa: PTH208 - numbers, no paths
    except OSError:
        return set()
    return {number for number in map(int, names) if identity(number)}
