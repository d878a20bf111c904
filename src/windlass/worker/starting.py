"""Starting processes."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Generator

HELD = frozenset((signal.SIGINT, signal.SIGTERM))
"""What a terminal or a service manager sends to all of a tree."""


@contextlib.contextmanager
def signals_held() -> Generator[None]:
    """Start a process with these blocked: before it has come to handling them it would die of them.

    It lets them through itself. Those of this process come when this is over.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_signals_through() -> None:
    """In the process that was started: handlers are there. A task may have blocked others before its worker
    started this.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*HELD, signal.SIGUSR1})


def give_forks_their_signals() -> None:
    """What a task forks (`multiprocessing`, `os.fork`) is no worker: it dies of signals as other programs do.

    With our handlers `Pool.terminate()` would wait for ever, and the wake-up of the loop would be our own.
    """

    def reset() -> None:
        for number in (*HELD, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)

    os.register_at_fork(after_in_child=reset)


def end_of(process: "subprocess.Popen[bytes]") -> "asyncio.Future[int]":
    """The exit code of a process, when it has ended: by a descriptor that becomes readable then, else by a
    thread that waits. Not by the end of its socket, which a fork of it may hold; nor by the threads of the
    loop, which a task may keep busy.
    """
    loop = asyncio.get_running_loop()
    end: asyncio.Future[int] = loop.create_future()

    def tell(code: int) -> None:
        if not end.done():
            end.set_result(code)

    def has_ended(descriptor: int) -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        tell(process.wait())

    def wait() -> None:
        code = process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, code)

    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            loop.add_reader(descriptor, has_ended, descriptor)
            return end
    threading.Thread(target=wait, daemon=True).start()
    return end
