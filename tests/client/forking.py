"""A program that uses an app and then forks: `python -m tests.client.forking <url> <namespace> <what> [...]`.

It says one word a line: "ready" when a child waits to be told to go on, and the ids of jobs that were
accepted. The parent is told by a byte of its input, each child by one of the pipe that the environment names.
"""

import _imp
import asyncio
import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

from windlass import Windlass
from windlass.broker.sqlite.library import library
from windlass.errors import StoreError

JOBS = 20
PARENT, CHILDREN = 0, int(os.environ["WINDLASS_TEST_CHILDREN"])
app = Windlass(sys.argv[1], namespace=sys.argv[2])


@app.task
def send(number: int) -> None: ...


def say(*words: str) -> None:
    """Lines, whole or not at all, from whatever process."""
    os.write(1, "".join(f"{word}\n" for word in words).encode())


def hear(pipe: int) -> None:
    """Wait to be told to go on."""
    assert os.read(pipe, 1)


def enqueue(number: int = 1) -> str:
    """A job that was accepted."""
    return send.enqueue(number).id


def several() -> list[str]:
    """Jobs that were accepted, from blocking code and from a loop."""

    async def on_loop() -> list[str]:
        return [(await send.aenqueue(number)).id for number in range(JOBS)]

    return [*map(enqueue, range(JOBS)), *asyncio.run(on_loop())]


@contextlib.contextmanager
def in_child(seconds: int = 60) -> Iterator[None]:
    """What a child does. It ends here; one that hangs is killed."""
    signal.alarm(seconds)
    code = 1
    try:
        yield
        code = 0
    except BaseException as error:
        say(f"{type(error).__name__}: {error}")
        raise
    finally:
        os._exit(code)


def child_of(fork: Callable[[], int] = os.fork) -> int:
    """A child that uses the app, goes on when it is told to, and has a child of its own which does, too."""
    pid = fork()
    if pid == 0:
        with in_child():
            say(enqueue())
            if os.fork() == 0:
                with in_child():
                    say(enqueue())
                    say("ready")
                    hear(CHILDREN)
                    say(*several())
            say("ready")
            hear(CHILDREN)
            say(*several())
    return pid


# --- what the parent does -----------------------------------------------------------------------------------


def stays() -> None:
    """It uses the app on and on, until its child has ended."""
    say(enqueue())
    child = child_of()
    say(enqueue(), *several())
    ended = os.waitpid(child, 0)[1]
    say(enqueue(), *several())
    app.close()
    sys.exit(os.waitstatus_to_exitcode(ended))


def closes() -> None:
    """It closes the app, and waits for its child."""
    say(enqueue())
    child = child_of()
    hear(PARENT)
    app.close()
    say("closed")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def exits() -> None:
    """It ends as programs do, with the app open."""
    say(*several())
    child_of()
    hear(PARENT)


def is_killed() -> None:
    """It has no time to close anything."""
    say(*several())
    child_of()
    hear(PARENT)
    os.kill(os.getpid(), signal.SIGKILL)


def forks_in_a_thread() -> None:
    """It closes the app after a thread has forked."""
    say(enqueue())
    forker = threading.Thread(target=child_of)
    forker.start()
    forker.join()
    hear(PARENT)
    app.close()


def has_a_pool() -> None:
    """Its children are those of the standard library."""
    say(enqueue())
    context = multiprocessing.get_context("fork")
    process = context.Process(target=lambda: say(*several()))
    process.start()
    process.join(60)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for found in pool.map(enqueue, range(JOBS), timeout=60):
            say(found)
    app.close()
    sys.exit(process.exitcode)


def one_child_did_well(*, reads: bool) -> bool:
    """Fork; whether the child could enqueue and read."""
    pid = os.fork()
    if pid == 0:
        with in_child(30):
            mine = enqueue()
            if reads:
                app.job(mine).state()
            say(mine)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def forks_meanwhile(forks: str, reads: str = "yes") -> None:
    """It forks while threads enqueue, read and open apps for the first time; so does each child. What goes
    through a front door cannot be read until it is taken.
    """
    going = threading.Event()
    first = enqueue()
    say(first)

    def produce() -> None:
        while not going.is_set():
            say(enqueue())

    def read() -> None:
        while not going.is_set():
            app.job(first).state()

    def open_others() -> None:
        while not going.is_set():
            other = Windlass(sys.argv[1], namespace=sys.argv[2])
            say(other.task(name="other")(print).enqueue().id)
            other.close()

    targets = (produce, read, open_others) if reads == "yes" else (produce, open_others)
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    failed = sum(not one_child_did_well(reads=reads == "yes") for _ in range(int(forks)))
    going.set()
    for thread in threads:
        thread.join()
    app.close()
    sys.exit(failed)


def is_forked_from_c() -> None:
    """As uWSGI forks: without Python's hooks before a fork, but with those in the child."""
    say(enqueue())
    _fork_from_c()
    say(enqueue())
    app.close()


def is_forked_from_c_in_the_middle_of_a_call() -> None:
    """The same while SQLite is being called: a fork that calls no hooks does not wait for that."""
    say(enqueue())
    with library:
        _fork_from_c()
    say(enqueue())
    app.close()


def _fork_from_c() -> None:
    _imp.acquire_lock()  # Python insists
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        with in_child():
            try:
                say(enqueue())
            except StoreError as error:
                say(f"refused: {error}")
    _imp.release_lock()
    os.waitpid(pid, 0)


def is_forgotten_by_its_child() -> None:
    """Its child lets go of the app, which must not reach into what the parent has open."""
    global app, send  # noqa: PLW0603 - nobody else must have them
    say(enqueue())
    app.job(enqueue()).state()
    pid = os.fork()
    if pid == 0:
        with in_child():
            del app, send
            gc.collect()
    os.waitpid(pid, 0)
    for _ in range(5):
        app.job(enqueue()).state()
        say(*several())
    app.close()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    globals()[sys.argv[3]](*sys.argv[4:])
