"""What one process has open of a file: writer, readers, bells. A child of a fork opens its own."""

import threading
from pathlib import Path
from typing import Final

import apsw

from windlass.broker.contract import Options
from windlass.broker.sqlite.bells import Bells
from windlass.broker.sqlite.descriptors import Descriptors
from windlass.broker.sqlite.files import check_library, connect, in_words, prepare
from windlass.broker.sqlite.filesystem import Space, check_place, in_words_of_system
from windlass.broker.sqlite.handle import Handle
from windlass.broker.sqlite.identity import FileId, Identity, file_id
from windlass.broker.sqlite.library import library
from windlass.broker.sqlite.lock import FileLock
from windlass.broker.sqlite.readers import Readers
from windlass.broker.sqlite.writer import Writer
from windlass.clock import Clock
from windlass.forks import leave_to_parent, renew_after_fork

LOCK_TIMEOUT: Final = 30.0


class Store:
    """A file, opened by this process."""

    def __init__(
        self,
        path: Path,
        options: Options,
        clock: Clock,
        lock_timeout: float,
        expected: FileId | None = None,
    ) -> None:
        """`expected` is the file that was opened before, by the parent of a fork: another one is refused."""
        check_library(apsw.sqlite_lib_version())
        self.path = path
        with in_words_of_system(path):
            check_place(path)
            self._connect(options, clock, lock_timeout, expected)
        renew_after_fork(self)

    def _connect(self, options: Options, clock: Clock, lock_timeout: float, expected: FileId | None) -> None:
        path = self.path
        self.space = Space(path)
        with library:  # a child that never heard of the lock would keep it
            self.lock = FileLock(path, lock_timeout)
        try:
            prepare(path, options.namespace, self.lock)
            self.identity = Identity(path, expected or file_id(path))
            self._watching: Handle | None = None
            self._looking = threading.Lock()
            self.bells = Bells(Path(f"{path}-wake"), self._version)
            self.readers = Readers(path, options, clock, self.identity)
            self.writer = Writer(
                path,
                self.space,
                self.lock,
                Descriptors(path),
                self.identity,
                options,
                clock,
                self.bells.wake,
            )
        except BaseException:
            self.lock.close()
            raise

    def close(self) -> None:
        """Wake all waiters, then close everything."""
        self.bells.close()
        self.writer.finish()
        self.readers.close()
        with library, self._looking, in_words(self.path):
            if self._watching is not None:
                library.leave(self._watching.connection)
        self.writer.close()
        self.bells.let_go()
        self.lock.close()

    def renew(self) -> None:
        """In a child: the broker opens another. This one's threads and bells are the parent's."""
        leave_to_parent(self)

    def _version(self) -> tuple[int, int]:
        """Changes when another connection has committed; and with a fork, after which nobody knows."""
        with library, self._looking, in_words(self.path):
            watching = self._watching
            if watching is None or watching.generation != library.generation:
                watching = self._watching = self.identity.connected(lambda: connect(self.path, writes=False))
            self.identity.look_now_and_then(watching.connection)
            version = watching.cursor.execute("PRAGMA data_version").fetchall()[0][0]
            return watching.generation, version
