"""Noticing that the file which this process has open is not the one at its path any more, or was written by a
program that is not SQLite.

Who deletes, replaces or overwrites a file under running processes does not disturb them: they go on with what
they have open, and no new process ever reads what they accept. So the writer looks at the path after each
commit, before it answers. The file must be the one that was opened; once a second its log (`-wal`) and the
index of its log (`-shm`) are looked at as well. What was committed into a log that is deleted is not lost
yet: SQLite writes it to the file when the last process closes it.

A copy over the file leaves it the same file. But in WAL mode only checkpoints write to it. So its size and
the time of its last change are noted beside the lock after each checkpoint of ours, and with each commit what
the log says of checkpoints. Where size or time differ now, another program has made a checkpoint, and the log
says so; or the file was overwritten. The content is not read. To open and close the file here would drop the
locks that SQLite holds on it, and an older copy of the same file could not be told from it.
"""

import os
import struct
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import apsw

from windlass.broker.sqlite.descriptors import opening
from windlass.broker.sqlite.filesystem import said
from windlass.broker.sqlite.handle import Connection, Handle
from windlass.broker.sqlite.library import library
from windlass.broker.sqlite.lock import FileLock
from windlass.errors import StoreReplaced

EVERY: Final = 1.0
"""Seconds between the looks of those who only read, and between looks at the log and its index."""
PATIENCE: Final = 0.75
"""Seconds that the file may have changed before the log says that a checkpoint has done it: another program
writes, syncs and only then says so. Nothing is answered meanwhile.
"""
_NO_OPERATION: Final = apsw.SQLITE_CHECKPOINT_NOOP
"""Writes nothing, and tells how many frames the log has and how many of them are in the file."""
_PAUSE: Final = 0.025
_LOG_HEADER: Final = 32
_LOG_MAGICS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_NOTE: Final = struct.Struct("<QQqqQQQQ")
_HEAD: Final = struct.Struct("<QQqq")
"""Of a note all but what it says of the log."""
_PROGRESS: Final = struct.Struct("<QQ")
_PROGRESS_AT: Final = _NOTE.size - _PROGRESS.size

FileId = tuple[int, int]
"""Device and inode."""


class LogState(NamedTuple):
    """What the log says of checkpoints."""

    sequence: int
    """One more each time that it begins anew, which it can once all of it is in the file; 0: it is empty."""
    salt: int
    """Another one then."""
    frames: int
    written: int
    """Of these so many are in the file."""

    def follows(self, earlier: "LogState") -> bool:
        """Whether this can have come after the other one without a checkpoint in between."""
        if (self.sequence, self.salt) == (earlier.sequence, earlier.salt):
            return self.written == earlier.written
        began_anew = self.sequence == earlier.sequence + 1 or not earlier.sequence
        return began_anew and not self.written and earlier.frames == earlier.written


class Note(NamedTuple):
    """What the processes of a file note for each other, in the file of the lock."""

    epoch: int
    """Grows when a process that opens the file finds it changed: it was overwritten under all others.
    0: nobody has noted anything.
    """
    known: int
    """0: a checkpoint is under way, or its process died in it."""
    size: int
    changed: int
    log: LogState


class Identity:
    """The file that a process has opened, and whether it is still the one at its path."""

    def __init__(self, path: Path, lock: FileLock, file: FileId) -> None:
        """`file` is what is at the path, or must be."""
        self._path = path
        self._lock = lock
        self._files: tuple[tuple[str, FileId], ...] = ((str(path), file),)
        """The file, its log and the index of its log."""
        self._generation = -1
        """Of the library, when log and index were looked at: a fork closes all connections, and who opens
        them again may find others.
        """
        self._trouble: str | None = None
        self._is_overwritten = False
        self._epoch: int | None = None
        """None until this process has looked under the lock."""
        self._agreed = (-1, -1)
        """Size and time of the last change that this process has found in order."""
        self._head = b""
        """How a note begins that says what this process has agreed to."""
        self._looked = self._looked_beside = time.monotonic()

    @property
    def file(self) -> FileId:
        """The file that was opened."""
        return self._files[0][1]

    def check(self) -> None:
        """Refuse if it is known that the file is another one: for good, whatever is there now."""
        if self._trouble is not None:
            raise StoreReplaced(self._trouble)

    def look(self, connection: Connection) -> None:
        """Refuse if the file is another one. For the writer, under the lock, after a commit."""
        self.check()
        self._look(connection)
        now = time.monotonic()
        if now - self._looked_beside >= EVERY:
            self._looked_beside = now
            self._compare()
            self._look_into_log()

    def connected(self, connect: Callable[[], Handle]) -> Handle:
        """Make a connection to the file; refuse if another one is at its path, before and after."""
        self.check()
        self._same(*self._files[0])  # a log that is left over must not be written into another file
        handle = connect()
        try:
            if self._generation != library.generation:
                self._see_beside(handle.connection)
            else:
                self._compare()
        except BaseException:
            library.close(handle.connection)
            raise
        return handle

    def _see_beside(self, connection: Connection) -> None:
        """Note which log and index a connection has opened."""
        connection.execute("SELECT name FROM namespace").fetchall()  # from here on there are both
        path = str(connection.filename)
        found = self._same(*self._files[0])
        beside = (str(connection.filename_wal), f"{path}-shm")
        self._files = ((path, self.file), *((each, _id(self._found(each))) for each in beside))
        if self._generation == -1:
            self._agreed = found.st_size, found.st_mtime_ns
        self._generation = library.generation

    def look_now_and_then(self, connection: Connection) -> None:
        """The same once a second at the most. For those who only read, outside of transactions."""
        self.check()
        if time.monotonic() - self._looked >= EVERY:
            self._looked = time.monotonic()
            self.look_now(connection)

    def look_now(self, connection: Connection) -> None:
        """The same at once, for those who have met an error that this may explain."""
        self.check()
        if not connection.getautocommit():
            return
        note = self._note()
        found = self._compare()
        now = found.st_size, found.st_mtime_ns
        if note.known and now != (note.size, note.changed) and now != self._agreed:
            self._wait_for_log(connection, note)  # and the next who writes notes it

    @contextmanager
    def checkpoint(self, connection: Connection) -> Generator[None]:
        """Around a checkpoint, under the lock. If the process dies in it, the next who writes notes what it
        finds.
        """
        note = self._note()
        self._put(note._replace(known=0))
        try:
            yield
        finally:
            found = self._found(self._files[0][0])
            self._agreed = found.st_size, found.st_mtime_ns
            self._put(Note(note.epoch, 1, *self._agreed, self._log(connection)))

    def closing(self, connection: Connection) -> None:
        """Keep SQLite from writing its log to what is in the place of an overwritten file."""
        if self._is_overwritten:
            with suppress(apsw.ConnectionClosedError):
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    # --- the path -------------------------------------------------------------------------------------------

    def _compare(self) -> os.stat_result:
        """The file at its path; refuse if it, or what belongs to it, is another one."""
        found, *_ = [self._same(path, known) for path, known in self._files]
        return found

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

    # --- the content ----------------------------------------------------------------------------------------

    def _look(self, connection: Connection) -> None:
        found = self._same(*self._files[0])
        now = found.st_size, found.st_mtime_ns
        if now != self._agreed or not self._goes_on(connection):
            self._look_closely(connection, now)

    def _goes_on(self, connection: Connection) -> bool:
        """Whether only commits came since this process looked last; if so, the log's length is noted."""
        note = self._lock.note(_NOTE.size)
        before, in_file = _PROGRESS.unpack_from(note, _PROGRESS_AT)
        frames, written = connection.wal_checkpoint(mode=_NO_OPERATION)
        # A log that was empty, or is shorter than before, has a new header.
        if note[: _HEAD.size] != self._head or not 0 < before < frames or written != in_file:
            return False
        self._lock.put_note(_PROGRESS.pack(frames, written), _PROGRESS_AT)
        return True

    def _look_closely(self, connection: Connection, now: tuple[int, int]) -> None:
        self._compare()
        note = self._note()
        if self._epoch is not None and note.epoch > self._epoch:
            self._overwritten(self._files[0][0])
        if not note.known or now != (note.size, note.changed):
            note = self._judge(connection, note, now)
        else:
            self._put(note._replace(log=self._log(connection)))
        self._epoch, self._agreed, self._head = note.epoch, now, _HEAD.pack(note.epoch, 1, *now)

    def _judge(self, connection: Connection, note: Note, now: tuple[int, int]) -> Note:
        """The file has changed since somebody noted how it was: refuse, or note it anew."""
        epoch = note.epoch or self._epoch or 1
        if note.known and self._log(connection).follows(note.log):
            if self._epoch is None and now == self._agreed:
                epoch += 1  # so it was when this process came: it has changed under those who were there
            else:
                self._wait_for_log(connection, note)
        judged = Note(epoch, 1, *now, self._log(connection))
        self._put(judged)
        return judged

    def _wait_for_log(self, connection: Connection, note: Note) -> None:
        """Wait until the log says that there was a checkpoint. If it does not, there was none."""
        end = time.monotonic() + PATIENCE
        while self._log(connection).follows(note.log) and self._note() == note:
            if time.monotonic() >= end:
                self._overwritten(self._files[0][0])
            time.sleep(_PAUSE)

    def _log(self, connection: Connection) -> LogState:
        # -1: this connection has not looked at the log yet.
        frames, written = (max(0, each) for each in connection.wal_checkpoint(mode=_NO_OPERATION))
        header = self._log_header()
        if len(header) < _LOG_HEADER:
            return LogState(0, 0, frames, written)
        # Counted from 1, so that 0 is left for none.
        return LogState(int.from_bytes(header[12:16]) + 1, int.from_bytes(header[16:24]), frames, written)

    def _log_header(self) -> bytes:
        with opening:
            try:
                # SQLite holds no locks on the log itself that opening and closing it could drop.
                descriptor = os.open(self._files[1][0], os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return b""
            try:
                return os.read(descriptor, _LOG_HEADER)
            finally:
                os.close(descriptor)

    def _look_into_log(self) -> None:
        """After a commit the log has a header. Where it was truncated there are zeros."""
        if self._log_header()[:4] not in _LOG_MAGICS:
            self._overwritten(self._files[1][0])

    def _note(self) -> Note:
        epoch, known, size, changed, *log = _NOTE.unpack(self._lock.note(_NOTE.size))
        return Note(epoch, known, size, changed, LogState(*log))

    def _put(self, note: Note) -> None:
        *rest, log = note
        self._lock.put_note(_NOTE.pack(*rest, *log))

    # --- refusing -------------------------------------------------------------------------------------------

    def _overwritten(self, path: str) -> NoReturn:
        self._is_overwritten = True
        self._refuse(path, "was overwritten by a program that is not SQLite")

    def _refuse(self, path: str, happened: str) -> NoReturn:
        belongs = "" if path == self._files[0][0] else f', which belongs to "{self._path}",'
        self._trouble = (
            f'"{path}"{belongs} {happened} while this process had it open. Nothing is accepted any more, '
            "because no other process would see it: stop all processes that use it, restore the file "
            "(docs/backup.md says how), then start them again"
        )
        raise StoreReplaced(self._trouble)


def file_id(path: Path) -> FileId:
    """What is at a path."""
    return _id(path.stat())


def _id(found: os.stat_result) -> FileId:
    return found.st_dev, found.st_ino
