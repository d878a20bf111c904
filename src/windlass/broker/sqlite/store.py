"""What one process has open of a file: writer, readers, bells. A child of a fork opens its own."""

import os
import threading
import weakref
from pathlib import Path
from typing import Final

import apsw

from windlass.broker.contract import Options
from windlass.broker.sqlite.bells import Bells
from windlass.broker.sqlite.files import check_library, connect, in_words, prepare
from windlass.broker.sqlite.filesystem import Space, check_place
from windlass.broker.sqlite.lock import FileLock
from windlass.broker.sqlite.log import Log
from windlass.broker.sqlite.readers import Readers
from windlass.broker.sqlite.writer import Writer
from windlass.clock import Clock

LOCK_TIMEOUT: Final = 30.0
_open: "weakref.WeakSet[Store]" = weakref.WeakSet()
_inherited: list[object] = []
"""What a child got from its parent. It is never closed: closing would checkpoint and unlock what is the
parent's.
"""


class Store:
    """A file, opened by this process."""

    def __init__(self, path: Path, options: Options, clock: Clock, lock_timeout: float) -> None:
        check_library(apsw.sqlite_lib_version())
        check_place(path)
        self.path = path
        self.space = Space(path)
        self.lock = FileLock(path, lock_timeout)
        try:
            prepare(path, options.namespace, self.lock)
            self._watching = connect(path, writes=False)
            self._looking = threading.Lock()
            self.bells = Bells(Path(f"{path}-wake"), self._version)
            self.readers = Readers(path, options, clock)
            writing = connect(path, writes=True)
            log = Log(writing.connection, self.space)
            bells = self.bells
            self.writer = Writer(path, writing, log, self.lock, options, clock, bells.arm, bells.ring)
        except BaseException:
            self.lock.close()
            raise
        _open.add(self)

    def close(self) -> None:
        """Let everybody who waits go, then let go of everything."""
        _open.discard(self)
        self.bells.close()
        self.writer.close()
        self.readers.close()
        with self._looking, in_words(self.path):
            self._watching.connection.close()
        self.bells.let_go()
        self.lock.close()

    def _version(self) -> int:
        """A number that changes when another connection has committed."""
        with self._looking:
            return self._watching.cursor.execute("PRAGMA data_version").fetchall()[0][0]


_held: list[Store] = []


def _hold() -> None:
    """Before a fork: wait for what is being written.

    The library keeps a table of the locks that its process holds, and a child inherits it: a transaction
    under way at that
    moment would look to the child like one that another thread of its own never ends.
    """
    for store in list(_open):
        store.writer.hold()
        _held.append(store)


def _go_on() -> None:
    """After a fork, in the parent."""
    while _held:
        _held.pop().writer.let_go()


def _leave_behind() -> None:
    """In a child: nothing of the parent's is touched again, and its lock is not kept by an inherited file."""
    for store in list(_open):
        store.lock.abandon()
        _inherited.append(store)
    _open.clear()
    _held.clear()


os.register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_leave_behind)
