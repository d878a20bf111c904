"""The lock beside the file: writers of many processes queue for it, and it is free when its holder dies.

Two locks, `turn` and `lock`. Who wants to write takes the turn, waits for the lock, and gives the turn back.
So a process that writes without pause cannot take the lock again in front of the one that has the turn.
Waiting is done by the kernel; nobody polls. `flock` belongs to the open file, so a child closes what it
inherits, or it would keep the lock of a parent that died.
"""

import contextlib
import fcntl
import mmap
import os
import queue
import struct
import threading
import weakref
from pathlib import Path

from windlass.errors import StoreUnavailable
from windlass.forks import renew_after_fork

_PID = struct.Struct("<q")


class FileLock:
    """The right to write. Taken by one thread of the process at a time, which is the caller's business."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._turn = _opened(Path(f"{path}-turn"))
        self._lock = _opened(Path(f"{path}-lock"))
        if os.fstat(self._lock).st_size < _PID.size:
            os.ftruncate(self._lock, _PID.size)
        self._holder = mmap.mmap(self._lock, _PID.size)
        self._let_go = weakref.finalize(self, _let_go, self._holder, self._turn, self._lock)
        self._let_go.atexit = False
        self._pid = os.getpid()
        self._helper: _Helper | None = None
        renew_after_fork(self)

    def acquire(self) -> None:
        """Wait for the lock, at most as long as patience lasts."""
        if self._helper is None or not self._helper.busy:
            if _try(self._turn):
                if _try(self._lock):
                    fcntl.flock(self._turn, fcntl.LOCK_UN)
                    _PID.pack_into(self._holder, 0, self._pid)
                    return
                # Others would find the turn taken while the helper starts; it takes it again itself.
                fcntl.flock(self._turn, fcntl.LOCK_UN)
            if self._helper is None:
                self._helper = _Helper(self._turn, self._lock)
        if not self._helper.acquire(self._patience):
            raise StoreUnavailable(
                f'waited {self._patience:g} s to write to "{self._path}": process {self.holder()} writes; '
                "see whether it hangs, or raise lock_timeout"
            )
        _PID.pack_into(self._holder, 0, self._pid)

    def release(self) -> None:
        """Let the next one write."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def holder(self) -> int:
        """The process that took the lock last."""
        return _PID.unpack_from(self._holder, 0)[0]

    def close(self) -> None:
        """Let go of the files."""
        if self._helper is not None:
            self._helper.stop()
        self._let_go()

    def renew(self) -> None:
        """In a child: close the files without a word to the lock, which is the parent's."""
        self._let_go()


class _Helper:
    """A thread that waits in the kernel, so that the one who asked can give up: `flock` knows no timeout."""

    def __init__(self, turn: int, lock: int) -> None:
        self._turn = turn
        self._lock = lock
        self._asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._guard = threading.Condition()
        self._wanted = False
        self._held = False
        self.busy = False
        """It waits, perhaps for somebody who has given up since."""
        threading.Thread(target=self._run, name="windlass-sqlite-lock", daemon=True).start()

    def acquire(self, patience: float) -> bool:
        with self._guard:
            self._wanted = True
            if not self.busy:
                self.busy = True
                self._asked.put("lock")
            self._guard.wait_for(lambda: self._held, patience)
            got, self._wanted, self._held = self._held, False, False
            return got

    def stop(self) -> None:
        self._asked.put("")

    def _run(self) -> None:
        while self._asked.get():
            try:
                fcntl.flock(self._turn, fcntl.LOCK_EX)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                fcntl.flock(self._turn, fcntl.LOCK_UN)
            except OSError:
                return  # closed meanwhile
            with self._guard:
                self.busy = False
                if self._wanted:
                    self._held = True
                    self._guard.notify_all()
                else:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)


def _let_go(holder: mmap.mmap, *files: int) -> None:
    holder.close()  # it has a descriptor of its own
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
