"""Starting processes."""

import contextlib
import os
import signal
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
    """In the process that was started: handlers are there."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def give_forks_their_signals() -> None:
    """What a task forks (`multiprocessing`, `os.fork`) is no worker: it dies of signals as other programs do.

    With our handlers `Pool.terminate()` would wait for ever, and the wake-up of the loop would be our own.
    """

    def reset() -> None:
        for number in (*HELD, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)

    os.register_at_fork(after_in_child=reset)
