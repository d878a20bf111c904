"""An app of tasks that harm the process they run in."""

import asyncio
import os
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.worker.blackbox.ledger import recorded, write

from windlass import RetryPolicy, Windlass, current

TWICE = RetryPolicy(max_attempts=2, base=0.05, cap=0.1)
FILES = 64
"""As many files as a task opens so that they get the numbers of what it has closed."""
PAGE = b"mine" * 1024


def _descriptors() -> dict[int, str]:
    """What the process has open, by number."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - no file
        except OSError:
            continue
    return found


def _close(wanted: Callable[[int, str], bool]) -> int:
    closed = [number for number, link in _descriptors().items() if number > 2 and wanted(number, link)]
    for number in closed:
        os.close(number)
    return len(closed)


def _is_fifo(number: int, _link: str) -> bool:
    return stat.S_ISFIFO(os.fstat(number).st_mode)


def _is_of_the_store(number: int, link: str) -> bool:
    """A connection to a server, or one of the files of SQLite."""
    if ".db" in link:
        return True
    if not link.startswith("socket:"):
        return False
    with socket.socket(fileno=os.dup(number)) as copy:
        return copy.family in (socket.AF_INET, socket.AF_INET6)


def _is_database(_number: int, link: str) -> bool:
    return link.endswith((".db", ".db-wal"))


def _is_pair(number: int, link: str) -> bool:
    """One end of the pair by which a loop is woken, or of that to the supervisor."""
    return link.startswith("socket:") and not _is_of_the_store(number, link)


def _open_files() -> None:
    """Get the numbers of what was closed, as a program does that goes on after it."""
    folder = Path(f"mine-{current.job.id}-{current.fence}")
    folder.mkdir()
    kept = [os.open(folder / str(number), os.O_RDWR | os.O_CREAT, 0o600) for number in range(FILES)]
    for file in kept:
        os.write(file, PAGE)


def closes_all() -> None:
    os.closerange(3, 256)


def closes_all_and_opens_files() -> None:
    os.closerange(3, 256)
    _open_files()


def closes_the_database_and_opens_files() -> None:
    _close(_is_database)
    _open_files()


def closes_the_store() -> None:
    _close(_is_of_the_store)


def closes_sockets() -> None:
    _close(lambda _, link: link.startswith("socket:"))


def closes_selectors() -> None:
    _close(lambda _, link: "eventpoll" in link)


def closes_pipes() -> None:
    _close(_is_fifo)


def _closes_one(number: int) -> Callable[[], None]:
    """One of the pairs, as a program that closes a number twice."""

    def close() -> None:
        pairs = sorted(each for each, link in _descriptors().items() if each > 2 and _is_pair(each, link))
        os.close(pairs[number])

    return close


def lowers_the_limit_of_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def lowers_the_recursion_limit() -> None:
    """As far as it goes from here."""
    for limit in range(5, 200):
        try:
            sys.setrecursionlimit(limit)
        except RecursionError:
            continue
        return


# --- what harms nobody --------------------------------------------------------------------------------------


def ignores_signals() -> None:
    """Only the main thread may."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def blocks_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def leaves_the_session() -> None:
    os.setsid()


def removes_the_folder() -> None:
    folder = Path(f"gone-{current.job.id}").absolute()
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()


def sets_a_timeout_for_sockets() -> None:
    socket.setdefaulttimeout(0.001)


def takes_the_loop_over() -> None:
    """In the loop alone."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.set_debug(True)
    loop.set_debug(False)


def fills_the_executor() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(64):
        loop.run_in_executor(None, time.sleep, 3_600)


def leaves_threads() -> None:
    for daemon in (True, False):
        threading.Thread(target=time.sleep, args=(3_600,), daemon=daemon).start()


HARM: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        closes_all,
        closes_all_and_opens_files,
        closes_the_database_and_opens_files,
        closes_the_store,
        closes_sockets,
        closes_selectors,
        closes_pipes,
        lowers_the_limit_of_files,
        lowers_the_recursion_limit,
        ignores_signals,
        blocks_signals,
        leaves_the_session,
        removes_the_folder,
        sets_a_timeout_for_sockets,
        takes_the_loop_over,
        fills_the_executor,
        leaves_threads,
    )
} | {f"closes_pair_{number}": _closes_one(number) for number in range(5)}


def does(what: str) -> int:
    with recorded():
        HARM[what]()
        return current.fence


async def adoes(what: str) -> int:
    with recorded():
        HARM[what]()
        await asyncio.sleep(0)
        return current.fence


def does_apart(what: str) -> int:
    with recorded():
        HARM[what]()
        return current.fence


def stays(what: str) -> int:
    """Does not return afterwards."""
    with recorded():
        HARM[what]()
        time.sleep(3_600)
        return current.fence


def stays_apart(what: str) -> int:
    with recorded():
        HARM[what]()
        time.sleep(3_600)
        return current.fence


# --- forks --------------------------------------------------------------------------------------------------


def forks() -> int:
    """Returns twice."""
    with recorded():
        if os.fork() == 0:
            write("twin", job=current.job.id)
        return current.fence


async def aforks(pause: bool) -> int:
    with recorded():
        if os.fork() == 0:
            write("twin", job=current.job.id)
        if pause:
            await asyncio.sleep(0.05)
        return current.fence


def forks_apart() -> int:
    with recorded():
        if os.fork() == 0:
            write("twin", job=current.job.id)
        return current.fence


def forks_and_dies_apart() -> int:
    """What it leaves behind holds what it had open."""
    with recorded():
        if os.fork() == 0:
            write("twin", job=current.job.id)
            time.sleep(30)
            os._exit(0)
        os._exit(9)


# --- the others ---------------------------------------------------------------------------------------------


def well() -> int:
    with recorded():
        return os.getpid()


async def awell() -> int:
    with recorded():
        await asyncio.sleep(0)
        return os.getpid()


def well_apart() -> int:
    with recorded():
        return os.getpid()


def late_apart(seconds: float) -> int:
    """Told by a signal that its time is over."""
    with recorded():
        time.sleep(seconds)
        return os.getpid()


app = Windlass(os.environ.get("WINDLASS_URL"), name="rude")
for _function in (does, adoes, stays, forks, aforks, well, awell):
    app.task(retry=TWICE)(_function)
for _function in (does_apart, stays_apart, forks_apart, forks_and_dies_apart, well_apart):
    app.task(retry=TWICE, run="process")(_function)
app.task(retry=RetryPolicy(max_attempts=1), run="process", timeout=0.5, hard_timeout=30)(late_apart)
