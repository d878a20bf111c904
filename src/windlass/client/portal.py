"""A door from blocking code to async code: one event loop on a thread of its own."""

import asyncio
import atexit
import contextlib
import contextvars
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from windlass.client.uninterrupted import Uninterrupted
from windlass.errors import ContractError, StoreError
from windlass.forks import keep_for_ever
from windlass.threads import LoopThreads, check_gevent

_T = TypeVar("_T")
_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
"""Those of all portals."""
DROPPING = 1.0
"""Seconds that a loop goes on after its portal was dropped. The thread that drops a portal drops its async
generators a moment later, on a busy machine some tenths of a second. asyncio makes a task of each, which must
end before the loop does.
"""


class PortalClosed(Exception):
    """Nothing was begun: ask the portal that took its place."""


class Portal:
    """Runs coroutines for threads. Started when first used, closed once; not shared over a fork.

    A daemon, so that a program that never closes its app ends; and it ends with the last reference to it.
    """

    def __init__(self, calls: Uninterrupted) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ends_in_order = threading.Event()

    def submit(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> Future[_T]:
        """Begin a coroutine on the portal's loop."""
        return self._calls.call(lambda: self._submit(work))

    def _submit(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> Future[_T]:
        future: Future[_T] = Future()
        with self._lock:
            if self._closed:
                raise PortalClosed
            loop = self._loop or self._start()
            # Under the lock, so that nothing is begun behind the end that `close` puts into the same line.
            loop.call_soon_threadsafe(_begin, loop, work, future)
        return future

    def wait(self, future: Future[_T]) -> _T:
        """Wait for what was begun."""
        self._refuse_itself()
        return self._calls.call(future.result)

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine and wait for it; it does not go on when the waiting thread is interrupted."""
        self._refuse_itself()
        future = self.submit(work)
        try:
            return self._calls.call(future.result)
        except BaseException:
            self._calls.call(future.cancel)
            raise

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End every wait with an error; then run `last`, and end the loop and its thread."""
        self._refuse_itself()
        self._calls.call(lambda: self._close(last))

    def _close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._lock:
            loop, self._loop, self._closed = self._loop, None, True
        try:
            if loop is not None:
                ended: Future[None] = Future()
                loop.call_soon_threadsafe(_begin, loop, lambda: self._end(loop, last), ended)
                ended.result()
        finally:
            if self._thread is not None:  # also for a second caller, who finds that it is being closed
                self._thread.join()

    async def _end(
        self, loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        await _cancel_others()
        try:
            await last()
        finally:
            self._ends_in_order.set()
            loop.call_soon(loop.stop)

    def is_running_here(self) -> bool:
        """Whether the caller is on the portal's loop."""
        return self._thread is threading.current_thread()

    def _start(self) -> asyncio.AbstractEventLoop:
        check_gevent()
        loop = asyncio.new_event_loop()
        loop.set_default_executor(LoopThreads())
        serve = (loop, self._ends_in_order)
        thread = threading.Thread(target=_serve, args=serve, name="windlass-portal", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # Python 3.12 starts none once it is ending
            loop.close()
            raise StoreError(
                f"no thread can be started ({error}); in a handler of atexit use an app that was used before"
            ) from error
        self._loop, self._thread = loop, thread
        weakref.finalize(self, _stop, loop).atexit = False
        _loops.add(loop)
        return loop

    def _refuse_itself(self) -> None:
        if self._thread is threading.current_thread():
            raise ContractError("a blocking call would wait for itself here; observers use none")


def _begin(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, _T]], future: Future[_T]
) -> None:
    if future.cancelled():
        return
    # An empty context: the work of one caller may serve others, so it carries nobody's trace.
    task = loop.create_task(_carry(work(), future), context=contextvars.Context())

    def left(future: Future[_T]) -> None:
        if future.cancelled() and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    future.add_done_callback(left)


async def _carry(work: Coroutine[Any, Any, _T], future: Future[_T]) -> None:
    """Carry what comes of the work to the thread that waits, even SystemExit: here it would end the loop."""
    with contextlib.suppress(InvalidStateError):  # the waiting thread has left
        try:
            answer = await work
        except asyncio.CancelledError:
            future.set_exception(StoreError("the app was closed before the store had answered"))
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits
            future.set_exception(error)
        else:
            future.set_result(answer)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _serve(loop: asyncio.AbstractEventLoop, ends_in_order: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        if not ends_in_order.is_set():  # the portal was dropped: nobody has closed what is open on its loop
            loop.run_until_complete(_end_what_is_left(loop))
    finally:
        loop.close()


async def _end_what_is_left(loop: asyncio.AbstractEventLoop) -> None:
    await _cancel_others()
    await loop.shutdown_asyncgens()
    await asyncio.sleep(DROPPING)
    while late := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.gather(*late, return_exceptions=True)


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # it is closed already
        loop.call_soon_threadsafe(loop.stop)


@atexit.register
def _keep_tasks() -> None:
    """Python is ending, and an app was not closed. asyncio would complain of each of its tasks that goes, so
    none goes. The app stays as it is: a handler of `atexit` may still use it.
    """
    for loop in _loops:
        keep_for_ever(*asyncio.all_tasks(loop))
