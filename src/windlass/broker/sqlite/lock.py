"""The lock beside the file: writers of many processes queue for it, and it is free when its holder dies.

Two locks, `turn` and `lock`. Who wants to write takes the turn, waits for the lock, and gives the turn back.
So a process that writes without pause cannot take the lock again in front of the one that has the turn.
Waiting is done by the kernel; only who closes the file polls. `flock` belongs to the open file, so a child
closes what it inherits, or it would keep the lock of a parent that died.

A program may close these files without our knowledge. Then the locks that it held are free for all others:
nothing else keeps the same file open (a map would), and a caller that meets an error lets go of both locks.
"""

import contextlib
import errno
import fcntl
import os
import queue
import struct
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from windlass.broker.sqlite.filesystem import in_words_of_system, is_at, said
from windlass.descriptors import identity
from windlass.errors import StoreError, StoreUnavailable
from windlass.forks import renew_after_fork

EVERY: Final = 1.0
"""Seconds between looks whether the files are still the ones at their paths."""
CLOSING: Final = 5.0
"""Seconds that who closes the file waits for the lock."""
_PAUSE: Final = 0.01
_PID = struct.Struct("<q")


class FileLock:
    """The right to write. Taken by one thread of the process at a time, which is the caller's business."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._pid = os.getpid()
        self._helper: _Helper | None = None
        self._open()
        renew_after_fork(self)

    def _open(self) -> None:
        with in_words_of_system(self._path):
            self._turn = _opened(Path(f"{self._path}-turn"))
            try:
                self._lock = _opened(Path(f"{self._path}-lock"))
            except BaseException:
                os.close(self._turn)
                raise
        self._files = {number: identity(number) for number in (self._turn, self._lock)}
        self._let_go = weakref.finalize(self, _let_go, self._files)
        self._let_go.atexit = False
        self._looked = time.monotonic()

    def acquire(self) -> None:
        """Wait for the lock, at most as long as patience lasts."""
        self._check()
        if self._helper is None or not self._helper.busy:
            if time.monotonic() - self._looked >= EVERY:
                self._renew_if_deleted()
            if self.try_acquire():
                return
            if self._helper is None:
                self._helper = _Helper(self._turn, self._lock)
                # Nobody closes a lock whose opening was interrupted: its thread ends when it is dropped.
                weakref.finalize(self, self._helper.stop).atexit = False
        with in_words_of_system(self._path):
            got = self._helper.acquire(self._patience)
        if not got:
            raise StoreUnavailable(
                f'waited {self._patience:g} s to write to "{self._path}": {self.holder()} writes; '
                "see whether it hangs, or raise lock_timeout"
            )
        self._sign()

    def try_acquire(self) -> bool:
        """Take the lock if it is free and no other waits for it."""
        try:
            if not _try(self._turn):
                return False
            try:
                if not _try(self._lock):
                    return False
            finally:
                # Others would find the turn taken while a helper starts; it takes it again itself.
                fcntl.flock(self._turn, fcntl.LOCK_UN)
        except OSError as error:
            _unlock(self._turn, self._lock)
            raise said(error, self._path) from error
        self._sign()
        return True

    def acquire_to_close(self) -> bool:
        """Take the lock if it becomes free within `CLOSING` seconds.

        Looked for again and again, since Python starts no thread any more when it ends. Who finds it taken
        each time is not the last to close the file, or the last one hangs: then there is nothing to do.
        """
        end = time.monotonic() + CLOSING
        with contextlib.suppress(StoreError):
            self._check()
            self._renew_if_deleted()
            while self._helper is None or not self._helper.busy:
                if self.try_acquire():
                    return True
                if time.monotonic() >= end:
                    break
                time.sleep(_PAUSE)
        return False

    def _check(self) -> None:
        """Refuse if the program has closed one of the files, or its number is another file's now."""
        if any(identity(number) != file for number, file in self._files.items()):
            raise said(OSError(errno.EBADF, os.strerror(errno.EBADF)), self._path)

    def _renew_if_deleted(self) -> None:
        """Open the files anew if they are not those at their paths any more.

        Nothing is in danger until then: a process with the lock of a replaced file still needs SQLite's own.
        """
        self._looked = time.monotonic()
        if is_at(self._turn, Path(f"{self._path}-turn")) and is_at(self._lock, Path(f"{self._path}-lock")):
            return
        if not self._path.exists():
            return  # it was moved with all that is beside it, which the next look at it says
        self.close()
        self._helper = None
        self._open()

    def release(self) -> None:
        """Release the lock: the next process may write. If the program has closed the file, there is none."""
        if identity(self._lock) == self._files[self._lock]:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def holder(self) -> str:
        """The process that took the lock last."""
        with contextlib.suppress(OSError, struct.error):
            return f"process {_PID.unpack(os.pread(self._lock, _PID.size, 0))[0]}"
        return "another process"

    def _sign(self) -> None:
        """Write into the file who has the lock, for those who wait in vain. It is not mapped: a process that
        uses a map of a truncated file is killed.
        """
        mine = _PID.pack(self._pid)
        with contextlib.suppress(OSError):
            if os.pread(self._lock, _PID.size, 0) != mine:  # a write takes three times as long
                os.pwrite(self._lock, mine, 0)

    def close(self) -> None:
        """Close the files."""
        if self._helper is not None:
            self._helper.stop()
        self._let_go()

    def renew(self) -> None:
        """In a child: close the files without a word to the lock, which is the parent's."""
        self._let_go()


class _Helper:
    """A thread that waits in the kernel, so that the caller can give up: `flock` knows no timeout."""

    def __init__(self, turn: int, lock: int) -> None:
        self._turn = turn
        self._lock = lock
        self._asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._guard = threading.Condition()
        self._wanted = False
        self._held = False
        self._error: OSError | None = None
        self.busy = False
        """It waits, perhaps for somebody who has given up since."""
        threading.Thread(target=self._run, name="windlass-sqlite-lock", daemon=True).start()

    def acquire(self, patience: float) -> bool:
        with self._guard:
            self._wanted = True
            if not self.busy:
                self.busy = True
                self._asked.put("lock")
            self._guard.wait_for(lambda: self._held or self._error, patience)
            got, self._wanted, self._held = self._held, False, False
            error, self._error = self._error, None
        if error is not None:
            raise error
        return got

    def stop(self) -> None:
        self._asked.put("")

    def _run(self) -> None:
        while self._asked.get():
            try:
                fcntl.flock(self._turn, fcntl.LOCK_EX)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                fcntl.flock(self._turn, fcntl.LOCK_UN)
            except OSError as error:
                _unlock(self._turn, self._lock)
                with self._guard:
                    self.busy, self._error = False, error if self._wanted else None
                    self._guard.notify_all()
                continue
            with self._guard:
                self.busy = False
                if self._wanted:
                    self._held = True
                    self._guard.notify_all()
                else:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)


def _let_go(files: Mapping[int, bytes]) -> None:
    for number, file in files.items():
        if identity(number) == file:  # else the program has closed it
            os.close(number)


def _unlock(*files: int) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
