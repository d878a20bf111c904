"""Copies that a task makes of its process with `os.fork`, and that return from the task as the process does.

A copy may do what it likes for as long as the task's code runs in it, as `multiprocessing` does. When it
returns it ends: it has the leases, the connections and the loop of its parent, and must neither settle nor
start anything for it.
"""

import asyncio
import logging
import os
import threading
import weakref
from typing import NoReturn

from windlass.worker.run import running

_log = logging.getLogger("windlass.worker")

pid = os.getpid()
"""Of this process, kept up to date over forks: to ask the system takes longer."""
_loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int]" = weakref.WeakKeyDictionary()
"""Loops that run tasks, and their threads."""


def watch_loop() -> None:
    """On a loop that runs tasks: a copy that comes back to it ends.

    What was ready to run in the same turn of the loop runs before that: a loop has no place before its queue.
    """
    _loops[asyncio.get_running_loop()] = threading.get_ident()


def end_twin(task: str) -> NoReturn:
    """In a copy that has returned from a task. As after any fork nothing is flushed: that is the parent's."""
    _log.warning(
        "task %s has forked, and came back in the copy (pid %d), too: the copy ends", task, os.getpid()
    )
    os._exit(0)


def _forked() -> None:
    global pid  # noqa: PLW0603 - there is one process
    pid = os.getpid()
    run = running.get(None)
    if run is None:
        return  # an application with a worker inside has forked: what becomes of the copy is its business
    for loop, thread in list(_loops.items()):
        if thread == threading.get_ident() and not loop.is_closed():
            loop.call_soon(end_twin, run.lease.task)


os.register_at_fork(after_in_child=_forked)
