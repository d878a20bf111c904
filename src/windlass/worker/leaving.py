"""How processes of Windlass end when threads or descriptors of the program would keep them.

An interpreter waits at its end for every thread that is not a daemon. Threads that a module starts when it is
imported, or that a task leaves behind, may never end: a worker that has said goodbye, or a command that has
printed its answer, must not wait for them.
"""

import atexit
import contextlib
import logging
import os
import sys
import threading
from typing import NoReturn

from windlass.observe.failures import flush_all

_log = logging.getLogger("windlass.worker")

PATIENCE = 1.0
"""Seconds that threads are given to end when nothing else is left to do."""
BROKEN = 70
"""Exit code: a part of the worker in it failed in a way that was not expected."""
CLOSED = 71
"""Exit code: a task closed a descriptor that the process needs."""
WORDS = {
    BROKEN: "a part of the worker failed, its log says which",
    CLOSED: "a task closed what its process had open, or lowered a limit below it",
}
"""What these exit codes mean."""


def leave_soon(code: int) -> None:
    """Called last: the process ends with this code, and waits for its threads no longer than `PATIENCE`.

    Where they end in time, everything goes its usual way. Handlers of `atexit` run after all threads have
    ended, for as long as they take. Where threads do not end, those handlers do not run, as without this.
    """
    joined = threading.Event()
    atexit.register(joined.set)

    def watch() -> None:
        if not joined.wait(PATIENCE):
            names = sorted(thread.name for thread in threading.enumerate() if _keeps(thread))
            what = (
                f"threads of the program: {', '.join(names)}" if names else "its loop, which does not close"
            )
            _end(code, logging.WARNING, f"ended without waiting any longer for {what}")

    with contextlib.suppress(RuntimeError):  # no thread can be started
        threading.Thread(target=watch, name="windlass-leaving", daemon=True).start()


def end_broken(code: int, why: str, error: BaseException | None = None) -> NoReturn:
    """End at once, and say why: whatever is done next could do harm."""
    _end(code, logging.ERROR, f"this process ends: {why}", error)


def _keeps(thread: threading.Thread) -> bool:
    """Whether an interpreter waits for it."""
    return not thread.daemon and thread is not threading.main_thread()


def _end(code: int, level: int, message: str, error: BaseException | None = None) -> NoReturn:
    """A thread that holds the log's lock, or a limit that was lowered, must not keep us from ending."""
    with contextlib.suppress(BaseException):
        timer = threading.Timer(PATIENCE, os._exit, (code,))
        timer.daemon = True
        timer.start()
    with contextlib.suppress(BaseException):
        _log.log(level, message, exc_info=error)
    with contextlib.suppress(BaseException):
        flush_all()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
