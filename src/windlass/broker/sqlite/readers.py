"""Readers: connections of their own on a snapshot of the file, so that they neither wait nor are
waited for.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TypeVar

import apsw

from windlass.broker.contract import Options
from windlass.broker.sqlite.files import connect, in_words
from windlass.broker.sqlite.handle import Handle
from windlass.broker.sqlite.identity import Identity
from windlass.broker.sqlite.library import library
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.clock import Clock
from windlass.errors import StoreError

_T = TypeVar("_T")
THREADS = 2


class Readers:
    """Snapshot connections, as many as read at the same time."""

    def __init__(self, path: Path, options: Options, clock: Clock, identity: Identity) -> None:
        self._path = path
        self._identity = identity
        self._options = options
        self._clock = clock
        self._idle: list[Handle] = []
        self._guard = Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    def read(self, query: Callable[[Snapshot], _T]) -> _T:
        """Run a query in this thread, on one snapshot."""
        with library, in_words(self._path):
            handle = self._take()
            try:
                self._identity.look_now_and_then(handle.connection)
                handle.cursor.execute("BEGIN")
                try:
                    return query(Snapshot(handle, self._options, self._clock.now()))
                finally:
                    handle.cursor.execute("ROLLBACK")
            except (StoreError, apsw.Error):
                self._identity.look_now(handle.connection)  # that is why, if it is
                raise
            finally:
                self._give(handle)

    async def aread(self, query: Callable[[Snapshot], _T]) -> _T:
        """Run a query on another thread."""
        with self._guard:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, "windlass-sqlite-reader")
            threads = self._threads
        try:
            reading = asyncio.get_running_loop().run_in_executor(threads, self.read, query)
        except RuntimeError:
            # The interpreter is ending, and no thread takes work any more: read here, so that a caller
            # that still asks (an `atexit` handler, a thread that waits) is answered.
            return self.read(query)
        return await reading

    def close(self) -> None:
        """Close the connections. The log is the writer's, which closes after them."""
        with self._guard:
            self._closed = True
            threads, idle, self._idle = self._threads, self._idle, []
        if threads is not None:
            threads.shutdown(wait=True)
        with library, in_words(self._path):
            for handle in idle:
                library.leave(handle.connection)

    def _take(self) -> Handle:
        with self._guard:
            while self._idle:
                handle = self._idle.pop()
                if handle.generation == library.generation:
                    return handle
        return self._identity.connected(lambda: connect(self._path, writes=False))

    def _give(self, handle: Handle) -> None:
        with self._guard:
            if not self._closed:
                self._idle.append(handle)
                return
        library.leave(handle.connection)
