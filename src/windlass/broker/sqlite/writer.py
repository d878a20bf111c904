"""The writer: verbs that come at the same time share one transaction and one commit.

    async callers ──▶ queue ──▶ writer thread ──┐
                                                ├─▶ mutex ─▶ lock beside the file ─▶ BEGIN … COMMIT ─▶
                                                answers, wakes
    blocking caller, nobody writing ────────────┘

A blocking caller who finds nobody writing does it in its own thread, and takes along what waits in the queue.
Each verb of a shared transaction has a savepoint of its own: one that fails takes back what it did, and harms
nobody.
"""

import asyncio
import contextlib
import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import apsw

from windlass.broker.contract import Options
from windlass.broker.sqlite.descriptors import Descriptors
from windlass.broker.sqlite.files import connect, in_words, translated
from windlass.broker.sqlite.filesystem import Space
from windlass.broker.sqlite.identity import Identity
from windlass.broker.sqlite.library import library
from windlass.broker.sqlite.lock import FileLock
from windlass.broker.sqlite.log import Log
from windlass.broker.sqlite.transaction import Transaction
from windlass.clock import Clock
from windlass.errors import StoreError, StoreUnavailable

_T = TypeVar("_T")
MOST_VERBS = 256
"""Verbs that share a transaction at the most: the first of them waits for the last."""


class WriterCall:
    """A verb that waits to be done, and what became of it."""

    __slots__ = ("answer", "done", "error", "future", "loop", "verb")

    def __init__(self, verb: Callable[[Transaction], Any]) -> None:
        self.verb = verb
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done: threading.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None

    def outcome(self) -> Any:
        """The answer, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.answer

    def resolve(self) -> None:
        """Answer the waiting coroutine, on its own loop."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)


class Writer:
    """The writing connection of a process."""

    def __init__(
        self,
        path: Path,
        space: Space,
        lock: FileLock,
        descriptors: Descriptors,
        identity: Identity,
        options: Options,
        clock: Clock,
        wake: Callable[..., None],
    ) -> None:
        self._path = path
        self._space = space
        self._descriptors = descriptors
        self._identity = identity
        with library:
            self._open()
        self._lock = lock
        self._options = options
        self._clock = clock
        self._take_lock: Callable[[], None] = lock.acquire
        self._wake = wake
        """Told of the queues that a commit put work into, and whether something finished or was logged."""
        self._mutex = threading.Lock()
        self._queue: queue.SimpleQueue[WriterCall] = queue.SimpleQueue()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Wakes the writer's thread: something waits, or the end has come."""
        self._closed = False
        self._thread: threading.Thread | None = None
        with contextlib.suppress(RuntimeError):  # Python is ending: none can be started
            self._thread = self._started()

    def call(self, verb: Callable[[Transaction], _T]) -> _T:
        """Do a verb and wait for it; in this thread, if nobody is writing."""
        if self._mutex.acquire(blocking=False):
            try:
                call = WriterCall(verb)
                self._execute([call, *self._waiting(MOST_VERBS - 1)])
            finally:
                self._mutex.release()
        else:
            call = WriterCall(verb)
            call.done = threading.Event()
            self._put(call)
            call.done.wait()
        return call.outcome()

    async def submit(self, verb: Callable[[Transaction], _T]) -> _T:
        """Do a verb on the writer's thread, together with what else waits."""
        call = WriterCall(verb)
        call.loop = asyncio.get_running_loop()
        call.future = call.loop.create_future()
        self._put(call)
        return await call.future

    def finish(self) -> None:
        """Do what waits, and take nothing more."""
        self._closed = True
        if self._thread is not None:
            self._bell.put(None)
            self._thread.join()

    def close(self) -> None:
        """Close the connection, as the last one of this process: the last to close a file writes its log to
        it. Under the lock: what others have committed before is seen, and nobody commits meanwhile.
        """
        with self._mutex:
            self._take_lock = self._refuse
            has_lock = self._lock.acquire_to_close()
            try:
                with library, in_words(self._path):
                    self._close(may_write_log=has_lock)
            finally:
                if has_lock:
                    self._lock.release()

    def _close(self, *, may_write_log: bool) -> None:
        if self._handle.generation == library.generation:
            self._descriptors.check()
        if may_write_log and self._identity.may_write_log():
            library.close(self._handle.connection)
        else:
            library.leave(self._handle.connection)
        self._identity.measure_log_by(None)
        self._descriptors.closed()

    def _open(self) -> None:
        self._handle = self._identity.connected(
            lambda: self._descriptors.opened(lambda: connect(self._path, writes=True))
        )
        self._log = Log(self._handle.connection, self._space, self._descriptors.index)
        self._identity.measure_log_by(self._log.least_bytes)

    def _make_sure(self) -> None:
        """See that the connection can be written to: a fork has closed it, or the program its descriptors."""
        if self._handle.generation != library.generation:
            self._open()
        else:
            self._descriptors.check()
            self._identity.look_before()

    def _put(self, call: WriterCall) -> None:
        """Hand a verb to the writer's thread. Without a lock: a signal handler may interrupt this thread
        here, and enqueue itself.
        """
        if self._closed:
            self._refuse()
        self._queue.put(call)
        if self._thread is not None:
            self._bell.put(None)
        if self._thread is None or self._closed:  # nobody else does it
            self.serve()

    def _started(self) -> threading.Thread:
        work = (self._bell, weakref.ref(self))
        thread = threading.Thread(target=_serve, args=work, name="windlass-sqlite-writer", daemon=True)
        thread.start()
        weakref.finalize(self, self._bell.put, None).atexit = False
        return thread

    def serve(self) -> bool:
        """Do what waits. Returns whether more may come.

        It stays in the queue until this thread may write. A thread that calls without pause takes the mutex
        in front of this one again and again, and does then what it finds in the queue.
        """
        is_over = self._closed
        with self._mutex:
            while calls := list(self._waiting(MOST_VERBS)):
                self._execute(calls)
        return not is_over

    def _waiting(self, most: int) -> Iterable[WriterCall]:
        """What waits in the queue, without waiting for it."""
        for _ in range(most):
            try:
                yield self._queue.get_nowait()
            except queue.Empty:
                return

    # a transaction

    def _execute(self, calls: list[WriterCall]) -> None:
        """Do verbs in one transaction, answer their callers, then ring the wakes."""
        tx: Transaction | None = None
        try:
            self._identity.check()
            self._take_lock()
            try:
                with library:
                    self._make_sure()
                    done = self._commit(calls)
                    self._identity.look(self._handle.connection)
                    tx = done
                    self._answer(calls)  # before the log is seen to, which none of them need wait for
                    self._log.tend()
            finally:
                self._lock.release()
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait are told
            told = self._explained(error) if isinstance(error, apsw.Error) else error
            for call in calls:
                # Either nothing was committed, so no verb has happened. Or all of it was, and then the error
                # (Ctrl-C) belongs to the caller in whose thread it was raised, which has not looked yet.
                if tx is None or (call.done is None and call.loop is None):
                    call.answer, call.error = None, call.error or told
            self._answer(calls)
        if tx is not None:
            self._wake(tx.armed, finished=tx.rung)

    def _explained(self, error: apsw.Error) -> StoreError:
        """What an error of SQLite means; if the file is another one, that."""
        try:
            self._identity.look_now(self._handle.connection)
        except StoreError as replaced:
            return replaced
        return translated(error, self._path)

    def _refuse(self) -> NoReturn:
        raise StoreUnavailable(f'the broker of "{self._path}" is closed; open another')

    def _commit(self, calls: list[WriterCall]) -> Transaction:
        """Do verbs and commit, or do none of them."""
        execute = self._handle.cursor.execute
        execute("BEGIN IMMEDIATE")
        try:
            tx = Transaction(self._handle, self._options, self._clock.now())
            if len(calls) == 1:
                calls[0].answer = self._do(tx, calls[0].verb)
            else:
                for call in calls:
                    self._guarded(tx, call)
            tx.finish()
            execute("COMMIT")
        except BaseException as error:
            self._take_back(error)
            raise
        return tx

    def _take_back(self, error: BaseException) -> None:
        self._handle.forget()
        if not self._handle.connection.getautocommit():
            self._handle.cursor.execute("ROLLBACK")
        if isinstance(error, apsw.FullError):
            self._identity.look_now(self._handle.connection)  # nothing is written to another file
            self._log.give_way()

    def _do(self, tx: Transaction, verb: Callable[[Transaction], _T]) -> _T:
        tx.begin_verb(self._clock.now())
        answer = verb(tx)
        tx.end_verb()
        return answer

    def _guarded(self, tx: Transaction, call: WriterCall) -> None:
        """Do a verb so that its failure takes back nothing but itself."""
        cursor = self._handle.cursor
        saved = tx.saved()
        cursor.execute("SAVEPOINT verb")
        try:
            call.answer = self._do(tx, call.verb)
        except Exception as error:
            if self._handle.connection.getautocommit():
                raise  # SQLite itself has taken back the whole transaction
            call.error = translated(error, self._path) if isinstance(error, apsw.Error) else error
            cursor.execute("ROLLBACK TO verb")
            tx.restore(saved)
        cursor.execute("RELEASE verb")

    def _answer(self, calls: list[WriterCall]) -> None:
        """Answer the callers: coroutines once per loop, threads one by one."""
        loops: dict[asyncio.AbstractEventLoop, list[WriterCall]] = {}
        for call in calls:
            if call.done is not None:
                call.done.set()
            elif call.loop is not None:
                loops.setdefault(call.loop, []).append(call)
        for loop, theirs in loops.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, theirs)


def _serve(bell: queue.SimpleQueue[None], writer: weakref.ref[Writer]) -> None:
    """The writer's thread. It does not keep a writer alive that is no longer used."""
    goes_on = True
    while goes_on:
        bell.get()
        found = writer()
        goes_on = found is not None and found.serve()
        del found


def _resolve(calls: list[WriterCall]) -> None:
    for call in calls:
        call.resolve()
