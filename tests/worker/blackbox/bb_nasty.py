"""An app of tasks that do what no task should do."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from tests.worker.blackbox.ledger import recorded, write

from windlass import RetryPolicy, Windlass, current

ONCE = RetryPolicy(max_attempts=1)
THRICE = RetryPolicy(max_attempts=3, base=0.05, cap=0.1)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Rude(BaseException):
    pass


def _kinds() -> dict[str, Callable[[], BaseException]]:
    return {
        "huge": lambda: ValueError("x" * 10_000_000),
        "surrogate": lambda: ValueError("\ud800\0"),
        "unspeakable": Unspeakable,
        "base": lambda: Rude("no Exception"),
        "generator exit": GeneratorExit,
        "group": lambda: ExceptionGroup("many", [ValueError("one"), KeyError("two")]),
        "stop iteration": lambda: StopIteration(3),
        "memory": MemoryError,
    }


def raises(what: str) -> None:
    with recorded():
        if what == "recursion":
            _recurse()
        if what == "chain":
            _chain(200)
        error = _kinds()[what]()
        raise error


async def araises(what: str) -> None:
    with recorded():
        error = _kinds()[what]()
        raise error


def _recurse() -> None:
    _recurse()


def _chain(depth: int) -> None:
    if not depth:
        raise ValueError("the first")
    try:
        _chain(depth - 1)
    except ValueError as error:
        raise ValueError(f"number {depth}") from error


def big_result(size: int) -> str:
    with recorded():
        return "x" * size


async def stops_the_loop() -> None:
    with recorded():
        asyncio.get_running_loop().stop()
        await asyncio.sleep(5)


async def cancels_everything() -> None:
    with recorded():
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(5)


async def leaves_tasks_behind() -> int:
    with recorded():
        keep = asyncio.create_task(asyncio.sleep(60))
        write("left", name=keep.get_name())
        return current.fence


def leaves_a_thread_behind() -> int:
    """Not a daemon: an interpreter would wait for it."""
    with recorded():
        threading.Thread(target=time.sleep, args=(120,)).start()
        return current.fence


def leaves_a_process_behind() -> int:
    """It keeps what it inherited open."""
    with recorded():
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"], close_fds=False)
        return process.pid


def forks() -> int:
    """A fork that goes on for a while, with all that the worker has open."""
    with recorded():
        pid = os.fork()
        if pid == 0:
            time.sleep(8)
            os._exit(0)
        return pid


def uses_multiprocessing() -> list[int]:
    with recorded(), multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(_square, range(10))


def _square(number: int) -> int:
    return number * number


def changes_directory() -> str:
    with recorded():
        os.chdir("/")
        return os.getcwd()  # noqa: PTH109


def apart_from_here() -> int:
    with recorded():
        return os.getpid()


def takes_signals() -> int:
    with recorded():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
        return current.fence


def closes_output() -> int:
    with recorded():
        sys.stdout.close()
        sys.stderr.close()
        return current.fence


def floods(count: int) -> int:
    with recorded():
        for number in range(count):
            current.progress(number / count, str(number))
            current.log(f"line {number}")
        return current.fence


def enqueues(count: int) -> list[str]:
    with recorded():
        return [child.enqueue().id for _ in range(count)]


async def aenqueues(count: int) -> list[str]:
    with recorded():
        jobs = await asyncio.gather(*(child.aenqueue() for _ in range(count)))
        return [await job.aresult(timeout=20) and job.id for job in jobs]


def waits_for_another() -> int:
    with recorded():
        return child.enqueue().result(timeout=20)


def _child() -> int:
    with recorded():
        return current.fence


app = Windlass(os.environ.get("WINDLASS_URL"), name="nasty")
child = app.task(name="child")(_child)
for _function in (
    raises,
    araises,
    big_result,
    leaves_tasks_behind,
    leaves_a_thread_behind,
    enqueues,
    aenqueues,
):
    app.task(retry=ONCE)(_function)
for _function in (leaves_a_process_behind, forks, uses_multiprocessing, changes_directory, takes_signals):
    app.task(retry=ONCE)(_function)
for _function in (closes_output, floods, waits_for_another):
    app.task(retry=ONCE)(_function)
for _function in (stops_the_loop, cancels_everything):
    app.task(retry=THRICE)(_function)
app.task(retry=ONCE, run="process")(apart_from_here)
