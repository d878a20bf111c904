"""Noticing that the file which this process has open is not the one at its path any more.

Who deletes or replaces a file under running processes does not disturb them: they go on with what they have
open, and no new process ever reads what they accept. So the writer looks at the paths after each commit,
before it answers. The file, its log (`-wal`) and the index of its log (`-shm`) must be those that this
process has open: while it has, their numbers are given to no other file. What was committed into a log that
is deleted is not lost yet: SQLite writes it to the file when the last process closes it, unless somebody has
begun another log by then.

The log must be as long as its index says. Into one that was truncated SQLite would write on, behind a hole:
no other process could read what was committed, and the file would be damaged in the end.

A file that was truncated, or overwritten by what is no file of Windlass, is found by its first bytes, once a
second. One that was overwritten in place by another file of Windlass is not found: only its content could
tell, and a look at its size and times took checkpoints of other programs for an overwrite.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import apsw

from windlass.broker.sqlite.descriptors import open_files, opening
from windlass.broker.sqlite.files import APPLICATION_ID
from windlass.broker.sqlite.filesystem import said
from windlass.broker.sqlite.handle import Connection, Handle
from windlass.broker.sqlite.library import library
from windlass.errors import StoreError, StoreReplaced

EVERY: Final = 1.0
"""Seconds between the looks of those who only read, and between looks into the file."""
_HEADER: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_OWNER: Final = slice(68, 72)
"""Where the file says whose it is."""
_LOG: Final = 1
"""The log, to `Connection.read`."""
_LOG_MAGICS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")

FileId = tuple[int, int]
"""Device and inode."""


class Identity:
    """The file that a process has opened, and whether it is still the one at its path."""

    def __init__(self, path: Path, file: FileId) -> None:
        """`file` is what is at the path, or must be."""
        self._path = path
        self._files: tuple[tuple[str, FileId], ...] = ((str(path), file),)
        """The file, its log and the index of its log."""
        self._generation = -1
        """Of the library, when log and index were looked at: a fork closes all connections, and who opens
        them again may find others.
        """
        self._least_log: Callable[[], int] | None = None
        self._measured_in = -1
        """The generation of the library in which `_least_log` was given."""
        self._trouble: str | None = None
        self._is_overwritten = False
        self._looked = self._looked_inside = time.monotonic()

    @property
    def file(self) -> FileId:
        """The file that was opened."""
        return self._files[0][1]

    def measure_log_by(self, least: Callable[[], int] | None) -> None:
        """From here on `least` says how many bytes the log must have, until a fork closes what it reads: then
        another file may have the number of its descriptor. None: nobody says so any more.
        """
        self._least_log, self._measured_in = least, library.generation

    def _least_bytes(self) -> int:
        """How many bytes the log must have. 0: nobody can tell."""
        if self._least_log is None or self._measured_in != library.generation:
            return 0
        return self._least_log()

    def check(self) -> None:
        """Refuse if it is known that the file is another one: for good, whatever is there now."""
        if self._trouble is not None:
            raise StoreReplaced(self._trouble)

    def look_before(self) -> None:
        """Refuse if the file, its log or its index is another one. For the writer, before a transaction:
        others may have gone on with the same log under another index, and it would write over what they have
        committed.
        """
        self.check()
        self._compare()

    def look(self, connection: Connection) -> None:
        """Refuse if the file is another one. For the writer, after a commit."""
        self.check()
        now = time.monotonic()
        if now - self._looked_inside < EVERY:
            self._compare()
        else:
            self._looked_inside = now
            self._look_closely(connection)
        # It may have been truncated after the look before: then it is long enough again, and has no head.
        if _read(connection, _LOG, len(_LOG_MAGICS[0])) not in _LOG_MAGICS and self._least_bytes():
            self._refuse_log()

    def look_now_and_then(self, connection: Connection) -> None:
        """The same once a second at the most. For those who only read, outside of transactions."""
        self.check()
        if time.monotonic() - self._looked >= EVERY:
            self._looked = time.monotonic()
            self._look_closely(connection)

    def look_now(self, connection: Connection) -> None:
        """The same at once, for those who have met an error that this may explain."""
        self.check()
        self._look_closely(connection)

    def connected(self, connect: Callable[[], Handle]) -> Handle:
        """Make a connection to the file; refuse if another one is at its path, before and after."""
        self.check()
        self._same(*self._files[0])  # a log that is left over must not be written into another file
        with opening:  # what another thread opens in between could be another log
            handle = connect()
            try:
                if self._generation != library.generation:
                    self._see_beside(handle.connection)
                else:
                    self._compare()
            except BaseException:
                library.leave(handle.connection)
                raise
        return handle

    def may_write_log(self) -> bool:
        """Whether SQLite may write its log to the file when it closes it. Asked and done under the lock, so
        that nobody commits in between. A process that has done nothing since is told nothing, but must not
        write either.

        Where something was deleted or replaced, only a log is written that nobody else can read any more. One
        that is still at its path is left to the next process: others may have gone on with it.
        """
        with suppress(StoreError):
            self._compare()
        if self._trouble is None:
            return True
        if self._is_overwritten or len(self._files) == 1:
            return False
        path, known = self._files[1]
        log = _stat(path)
        # An empty one is left by an opening that has failed.
        return log is None or (_id(log) != known and log.st_size == 0)

    def _see_beside(self, connection: Connection) -> None:
        """Note which log and index a connection has opened: those at their paths, if it has them open."""
        connection.execute("SELECT name FROM namespace").fetchall()  # from here on there are both
        path = str(connection.filename)
        self._same(*self._files[0])
        beside = (str(connection.filename_wal), f"{path}-shm")
        self._files = ((path, self.file), *((each, _id(self._found(each))) for each in beside))
        ours = open_files()
        for each, found in self._files:
            if ours and found not in ours:
                self._refuse(each, "was replaced by another file")
        self._generation = library.generation

    def _look_closely(self, connection: Connection) -> None:
        self._compare()
        header = _header(connection)
        if header is None:
            return
        # A new file does not say whose it is before its first checkpoint.
        if header[: len(_MAGIC)] != _MAGIC or int.from_bytes(header[_OWNER]) not in (0, APPLICATION_ID):
            self._is_overwritten = True
            self._refuse(self._files[0][0], "was overwritten by what is no file of Windlass")

    def _compare(self) -> None:
        """Refuse if the file at its path, or what belongs to it, is another one, or if the log was cut."""
        least = self._least_bytes()
        found = [self._same(path, known) for path, known in self._files]
        # Another program may have emptied the log in between: then its index says something else by now.
        if len(found) > 1 and found[1].st_size < least == self._least_bytes():
            self._refuse_log()

    def _refuse_log(self) -> NoReturn:
        self._is_overwritten = True  # what is left of the log must not be written to the file
        self._refuse(self._files[1][0], "was truncated")

    def _same(self, path: str, known: FileId) -> os.stat_result:
        found = self._found(path)
        # A file that is mounted by itself stays at its path when it is deleted, without a name.
        if (found.st_dev, found.st_ino) != known or not found.st_nlink:
            self._refuse(path, "was replaced by another file")
        return found

    def _found(self, path: str) -> os.stat_result:
        try:
            return os.stat(path)  # noqa: PTH116 - after each commit: a third of the time
        except (FileNotFoundError, NotADirectoryError):
            self._refuse(path, "was deleted or moved away")
        except OSError as error:
            raise said(error, self._path) from error

    def _refuse(self, path: str, happened: str) -> NoReturn:
        belongs = "" if path == self._files[0][0] else f', which belongs to "{self._path}",'
        self._trouble = (
            f'"{path}"{belongs} {happened} while this process had it open. Nothing is accepted any more, '
            "because no other process would see it: stop all processes that use it, restore the file "
            "(docs/backup.md says how), then start them again"
        )
        raise StoreReplaced(self._trouble)


def _header(connection: Connection) -> bytes | None:
    """How the file begins; None if a connection that is closed is asked, or has not opened it yet."""
    return _read(connection, 0, _HEADER)


def _read(connection: Connection, which: int, count: int) -> bytes | None:
    """The first bytes of the file or its log; none if there are fewer.

    Read by SQLite: to open and close the file here would drop the locks that it holds on it.
    """
    try:
        complete, found = connection.read("main", which, 0, count)
    except (apsw.ConnectionClosedError, apsw.MisuseError):
        return None
    except apsw.IOError:
        return b""
    return found if complete else b""


def file_id(path: Path) -> FileId:
    """What is at a path."""
    return _id(path.stat())


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return None


def _id(found: os.stat_result) -> FileId:
    return found.st_dev, found.st_ino
