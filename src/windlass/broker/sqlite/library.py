"""The SQLite library in this process: every call of it, and every connection.

The library knows which files its process has open and which locks it holds on them, and it has locks of its
own. The child of a fork inherits this knowledge, but not the kernel's locks: its new connections would hold
none, and the next process that takes itself for the last one would remove the log under them, with all that
the child has committed. So nothing crosses a fork. A fork waits until no call is under way, then closes every
connection; parent and child open theirs again when they next need one.
"""

import contextlib
import os
import weakref
from typing import Any, Final

import apsw

from windlass.broker.sqlite.handle import Connection
from windlass.errors import StoreError
from windlass.forks import Gate, leave_to_parent

PATIENCE: Final = 10.0
"""Seconds that a fork waits for calls under way."""


class Library(Gate):
    """Entered around every call of the library, and around steps that a child must not see half done."""

    def __init__(self, patience: float = PATIENCE) -> None:
        super().__init__(patience)
        self.generation = 0
        """Grows with every fork; connections of an earlier generation are closed."""
        self._open: set[Connection] = set()
        self._pid = os.getpid()
        self._refusal = ""
        """Why this process must not use the library, if it must not."""

    def __enter__(self) -> None:
        if self._refusal or self._pid != os.getpid():
            raise StoreError(f"{self._refusal or _WITHOUT_HOOKS}; {_REMEDY}")
        super().__enter__()

    def open(self, path: str, **arguments: Any) -> Connection:
        """A connection, closed by `close`, `leave` or a fork. Enter first."""
        connection: Connection = apsw.Connection(path, **arguments)
        # Only `close` writes the log to the file; not one that is dropped, or the end of Python.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._open.add(connection)
        return connection

    def close(self, connection: Connection) -> None:
        """Close a connection, if a fork has not. If no process has the file open any more, SQLite writes the
        log to it and deletes the log. Enter first.
        """
        if connection in self._open:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            connection.close()
            self._open.discard(connection)

    def leave(self, connection: Connection) -> None:
        """Close a connection without writing the log to the file. The next process that opens it reads the
        log. Enter first.
        """
        connection.close(force=True)
        self._open.discard(connection)

    def close_with(self, owner: object, connection: Connection) -> None:
        """Close the connection when its owner is gone, too."""
        weakref.finalize(owner, self._abandon, connection).atexit = False

    def _abandon(self, connection: Connection) -> None:
        """Close a connection of which nobody knows any more, unless a fork is about to do so."""
        if connection in self._open and self.try_to_enter():
            try:
                with contextlib.suppress(apsw.Error):  # nobody is there to be told
                    self.leave(connection)
            finally:
                self.__exit__(None, None, None)

    # --- called around a fork -------------------------------------------------------------------------------

    def on_quiet(self) -> None:
        """Close every connection. If one does not close, the child finds it open and refuses the store."""
        self.generation += 1
        for connection in list(self._open):
            with contextlib.suppress(apsw.Error):
                self.leave(connection)

    def renew(self) -> None:
        """In the child: only if all was closed, the library's memory is as good as new."""
        if self._under_way or self._open:
            # Without the hooks nobody waited for a call under way: that is the reason then, whatever was.
            self._refusal = _UNDER_WAY if self._under_way and self._forks else _WITHOUT_HOOKS
            leave_to_parent(self._open)
            self._open = set()
        self._pid = os.getpid()
        super().renew()


_UNDER_WAY: Final = (
    "this process was forked while another thread of its parent was in a call of SQLite (a fork waits "
    f"{PATIENCE:g} s for that), so it cannot use SQLite"
)
_WITHOUT_HOOKS: Final = (
    "this process was forked without Python's fork hooks while its parent had a SQLite file open; what it "
    "writes could be lost"
)
_REMEDY: Final = (
    "use the app only after the fork (uWSGI: lazy-apps = true; gunicorn: without "
    "--preload, or in its hook post_fork), or start the process by spawn"
)
library: Final = Library()
