"""Blocking calls that no signal handler can cut in half.

Python runs signal handlers in the main thread, between any two instructions. A handler may raise (Ctrl-C, a
timeout by SIGALRM) while that thread holds a lock or waits for an answer, or it may make a blocking call
itself, which would then wait for the very call that it interrupted. So the main thread hands its calls to a
helper thread, where no handler runs, and waits for the outcome:

- A handler that raises ends the waiting. The call itself goes on to its end.
- A handler that calls gets a helper of its own.
- A handler that forks leaves the child without the helper. If the handler returns there, the call ends with
  an error: what it asked for is the parent's.

A hop to a helper and back costs 35 µs. Other threads run no handlers, so they make their calls themselves.
Nothing here holds a lock: what the main thread does for itself must be safe at every instruction, too.
"""

import _thread
import contextvars
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from windlass.errors import StoreError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_LOOK = 0.5
"""Seconds. A signal that comes in the very moment before a wait begins does not interrupt it, so no wait is
long.
"""


class Uninterrupted:
    """Makes calls for the main thread of one process."""

    def __init__(self) -> None:
        self._idle: deque[_Helper] = deque()

    def call(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do something that blocks, and return what it returns."""
        if threading.get_ident() != threading.main_thread().ident:
            return work(*args, **kwargs)
        try:
            helper = self._idle.pop()
        except IndexError:
            try:
                helper = _Helper()
            except RuntimeError:  # the interpreter is ending and starts no more threads
                return work(*args, **kwargs)
        errand = _Errand(lambda: work(*args, **kwargs), helper, self._idle)
        helper.inbox.put(errand)
        return errand.outcome()


class _Errand:
    """One call, and what became of it."""

    def __init__(self, work: Callable[[], Any], helper: "_Helper", idle: "deque[_Helper]") -> None:
        self._work = work
        self._helper = helper
        self._idle = idle
        self._context = contextvars.copy_context()
        self._pid = os.getpid()
        self._answer: Any = None
        self._error: BaseException | None = None
        self._under_way = threading.Lock()
        self._under_way.acquire()

    def run(self) -> None:
        """On the helper's thread."""
        try:
            self._answer = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits
            self._error = error
        self._idle.append(self._helper)  # before the main thread goes on: its next call finds it
        self._under_way.release()

    def outcome(self) -> Any:
        """Wait for the end; the answer, or the error raised."""
        while not self._under_way.acquire(timeout=_LOOK):
            if os.getpid() != self._pid:
                raise StoreError(
                    "a signal handler forked this process during this call: its answer is the parent's"
                )
        if self._error is None:
            return self._answer
        try:
            raise self._error
        finally:
            del self  # the error's traceback refers to this frame: without this they keep each other alive


class _Helper:
    """A thread that waits for errands. It ends when nobody refers to the helper any more."""

    __slots__ = ("__weakref__", "inbox")

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        # Not `__del__`: a handler may run inside, and what it raises there would keep the thread for good.
        ended: weakref.ref[_Helper] = weakref.ref(self, self.inbox.put)
        # By the bare function, and by another thread: the class of `threading` takes locks to start one.
        _thread.start_new_thread(_start, (self.inbox, ended))


def _start(inbox: "queue.SimpleQueue[object]", ended: "weakref.ref[_Helper]") -> None:
    """Start a thread that `threading` knows, and forgets when it ends."""
    thread = threading.Thread(target=_serve, args=(inbox, ended), name="windlass-call", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending and starts no more threads: there is this one
        _serve(inbox, ended)


def _serve(inbox: "queue.SimpleQueue[object]", _ended: "weakref.ref[_Helper]") -> None:
    """Run errands until something else comes: the reference to a helper that is gone."""
    while isinstance(errand := inbox.get(), _Errand):
        errand.run()
        del errand  # it refers to the helper
