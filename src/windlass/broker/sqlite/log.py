"""The write-ahead log: how long it may get before its pages are written to the file.

SQLite would do so within a commit, while callers wait. Here they have their answers first. A page that many
commits change is written to the file once, so a long log is cheaper; but while the file of the log still
grows, a sync takes up to twice as long. So the file is made longer in steps, ahead of the commits.

It is done under the lock. Beside another process's commits it would never reach the end of the log, and
nobody could begin it anew.
"""

import contextlib
import os
import struct
from typing import Final

import apsw

from windlass.broker.sqlite.descriptors import opening
from windlass.broker.sqlite.filesystem import Space
from windlass.broker.sqlite.handle import Connection

MOST_PAGES: Final = 4_000
"""Pages that a commit leaves in the log at the most."""
FEW_PAGES: Final = 1_000
"""The same while the disk is nearly full."""
AGAIN_PAGES: Final = 100
"""How much longer it gets before the next try, where a reader was in the way of the last: it is begun anew by
a commit that finds all of it in the file and nobody reading it. A try is two more syncs.
"""

ROOM_PAGES: Final = 256
"""Pages for which room is made at once, at the most."""
_NEAR = 16
_HEADER = 32
_FRAME_HEADER = 24
_LAST_FRAME = struct.Struct("=I")
_LAST_FRAME_AT = 16
"""Where the index of the log says how many frames the log has (https://sqlite.org/walformat.html)."""


class Log:
    """The log of a file, as the writing connection of a process sees it."""

    def __init__(self, connection: Connection, space: Space, index: int | None = None) -> None:
        """`index` is a descriptor of the index of the log."""
        self._connection = connection
        self._index = index
        self._space = space
        self._pages = 0
        self._tried = 0
        """How long it was when its pages were last written to the file."""
        self._room = 0
        """For how many pages there is room in its own file, as far as this process knows."""
        self._path: str = connection.filename_wal
        self._frame: int = _FRAME_HEADER + connection.pragma("page_size")
        connection.set_wal_hook(self._committed)  # in the place of SQLite's own

    def least_bytes(self) -> int:
        """How long its file must be, by its index: a process that begins the log anew writes to the index
        first. 0: nobody can tell.
        """
        if self._index is None:
            return 0
        try:
            (frames,) = _LAST_FRAME.unpack(os.pread(self._index, _LAST_FRAME.size, _LAST_FRAME_AT))
        except (OSError, struct.error):  # closed: the next look at the descriptors says so
            return 0
        return _HEADER + frames * self._frame if frames else 0

    def tend(self) -> None:
        """See to it after a commit, under the lock."""
        pages = self._pages
        if pages < self._tried:
            self._tried = 0
        if pages + _NEAR >= self._room:
            self._make_room()
        if pages >= FEW_PAGES and pages - self._tried >= AGAIN_PAGES:
            self._shorten()

    def _shorten(self) -> None:
        """Write its pages to the file if there are too many, so that the next commit begins it anew.

        What is committed stays so whatever happens here: if it fails (a full disk), the log goes on, and the
        next try comes soon.
        """
        with contextlib.suppress(apsw.Error, OSError):
            if self._pages >= MOST_PAGES or self._space.shortage() is not None:
                self._tried = self._pages
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def give_way(self) -> None:
        """Write its pages to the file, however few, after a commit for which the disk had no room.

        Most of them have their place in the file, so that this needs none; and then the log has its own file
        to begin anew in. Without it every commit would fail as the last one did.
        """
        with contextlib.suppress(apsw.Error):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _make_room(self) -> None:
        """Write zeros behind its end, which is near, so that the next syncs need not make its file longer.

        SQLite takes the zeros for the rest of an earlier log. They are only appended, so that they never
        overwrite what another program has added.
        """
        # If there is none to be had, the next commit says so, if it matters.
        with opening, contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                self._room = os.fstat(file).st_size // self._frame
                if self._pages + _NEAR >= self._room:
                    more = min(max(self._pages, _NEAR), ROOM_PAGES)
                    self._room += os.write(file, bytes(more * self._frame)) // self._frame
            finally:
                os.close(file)

    def _committed(self, _connection: Connection, _database: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK
