"""The app that the workers of these tests run. Each task writes its runs to the ledger."""

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tests.worker.blackbox.ledger import LEDGER, recorded, write

from windlass import GiveUp, Retry, RetryPolicy, Snooze, Windlass, current

if "process_main" in sys.argv[0]:
    time.sleep(float(os.environ.get("BB_SLOW_IMPORT", "0")))  # as an app with much to import

QUICKLY = RetryPolicy(max_attempts=3, base=0.05, cap=0.1)


def weighs(text: str) -> int:
    with recorded():
        return len(text)


def short(pause: float = 0.0) -> int:
    with recorded():
        if pause:
            time.sleep(pause)
        return current.fence


def one(pause: float = 0.0) -> int:
    """Counts as one."""
    with recorded():
        time.sleep(pause)
        return 1


def tally() -> int:
    """How much the jobs that it has waited for amount to."""
    with recorded():
        found = current.results()
        write("tallied", job=current.job.id, fence=current.fence, results=found)
        return sum(found)


async def ashort(pause: float = 0.0) -> int:
    with recorded():
        await asyncio.sleep(pause)
        return current.fence


def tiny() -> int:
    with recorded():
        return current.fence


def apart(pause: float = 0.0) -> int:
    with recorded():
        time.sleep(pause)
        return current.fence


def gated(name: str) -> int:
    """Runs until a file appears."""
    with recorded():
        while not Path(name).exists():
            time.sleep(0.01)
        return current.fence


async def agated(name: str) -> int:
    with recorded():
        while not _exists(name):  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.01)
        return current.fence


def _exists(name: str) -> bool:
    return Path(name).exists()


def watches_its_lease(name: str) -> int:
    """Runs until a file appears; writes down when it learns that its lease may be lost."""
    with recorded():
        knows = False
        while not _exists(name):
            if current.lease_lost and not knows:
                knows = True
                write("lease lost", job=current.job.id, fence=current.fence)
            time.sleep(0.01)
        return current.fence


# --- poison -------------------------------------------------------------------------------------------------


def poison(how: str, pause: float = 0.0) -> int:
    with recorded():
        time.sleep(pause)
        _die(how)
        return current.fence


async def apoison(how: str, pause: float = 0.0) -> int:
    with recorded():
        await asyncio.sleep(pause)
        _die(how)
        return current.fence


def dies_once(seconds: float = 0.0) -> int:
    """Kills its worker in its first run."""
    with recorded():
        time.sleep(seconds)
        if current.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return current.fence


def _die(how: str) -> None:
    match how:
        case "exit":
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "supervisor":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        case "memory":
            _exhaust_memory()
        case _:
            raise ValueError(how)


def _exhaust_memory() -> None:
    """As under a limit: allocations fail, or the process is killed."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    while libc.malloc(1 << 24):
        pass
    while libc.malloc(1 << 8):
        pass
    ctypes.string_at(libc.malloc(1 << 24) or 0)


# --- rude tasks ---------------------------------------------------------------------------------------------


async def blocker(seconds: float) -> int:
    """Keeps the loop to itself."""
    with recorded():
        time.sleep(seconds)  # noqa: ASYNC251 - the point
        return current.fence


def gil(seconds: float) -> int:
    """C code that never lets go of the interpreter."""
    with recorded():
        usleep = ctypes.PyDLL(None).usleep
        with _outside_of_a_write():
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                usleep(int(left * 1_000_000))
        return current.fence


@contextlib.contextmanager
def _outside_of_a_write() -> Iterator[None]:
    """Begin what follows when nobody holds the lock of a SQLite file, and say "held" in the ledger.

    No call between the look and the end of this lets go of the interpreter, and a thread that has just taken
    it is not asked to give it back within 5 ms: so the process holds no lock in what follows.
    """
    library = ctypes.PyDLL(None)
    line = json.dumps({"kind": "held", "at": time.monotonic(), "pid": os.getpid()}).encode() + b"\n"
    url = os.environ["WINDLASS_URL"]
    names = [f"{url.removeprefix('sqlite://')}-{lock}" for lock in ("turn", "lock")]
    with contextlib.ExitStack() as files:
        ledger = files.enter_context(Path(os.environ[LEDGER]).open("ab"))
        locks = [files.enter_context(open(name, "rb")) for name in names if url.startswith("sqlite:")]  # noqa: PTH123
        free = False
        while not free:
            time.sleep(0.001)
            free = all(not library.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB) for lock in locks)
            for lock in locks:
                library.flock(lock.fileno(), fcntl.LOCK_UN)
        library.write(ledger.fileno(), line, len(line))
        yield


# --- timeouts and cancelling --------------------------------------------------------------------------------


async def slow_async(seconds: float) -> int:
    with recorded():
        await asyncio.sleep(seconds)
        return current.fence


async def signalled_async() -> int:
    """Gets the signal by which its worker says that time is up in the middle of its own code."""
    with recorded():
        os.kill(os.getpid(), signal.SIGUSR1)
        return current.fence


async def stubborn_async(seconds: float) -> int:
    """Swallows what would stop it."""
    with recorded():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                await asyncio.sleep(end - time.monotonic())
            except asyncio.CancelledError:
                write("swallowed", job=current.job.id)
        return current.fence


def slow_thread(seconds: float) -> int:
    """Looks at its deadline, as a thread must."""
    with recorded():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if current.cancelled:
                write("saw cancelled", job=current.job.id)
                raise GiveUp("cancelled")
            if current.deadline is not None and time.monotonic() > current.deadline:
                raise TimeoutError("saw its deadline")
            time.sleep(0.01)
        return current.fence


def stubborn_thread(seconds: float) -> int:
    with recorded():
        time.sleep(seconds)
        return current.fence


def slow_process(seconds: float) -> int:
    with recorded():
        time.sleep(seconds)
        return current.fence


def stubborn_process(seconds: float) -> int:
    with recorded():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                time.sleep(end - time.monotonic())
            except TimeoutError:
                write("swallowed", job=current.job.id)
        return current.fence


# --- words to the worker ------------------------------------------------------------------------------------


def says(what: str, times: int = 1) -> str:
    """Says something in its first runs, and is done after that."""
    with recorded():
        marks = Path(f"says-{current.job.id}")
        with marks.open("a") as file:
            file.write("x")
        if marks.stat().st_size > times:
            return f"attempt {current.attempt}"
        raise _words()[what]


def _words() -> dict[str, BaseException]:
    return {
        "retry": Retry("again"),
        "retry now": Retry(after=0),
        "retry later": Retry("later", after=0.5),
        "snooze": Snooze(0.2),
        "give up": GiveUp("no such customer"),
        "key error": KeyError("give_up_on"),
        "value error": ValueError("it failed"),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
    }


async def asays(what: str) -> str:
    with recorded():
        raise _words()[what]


def odd_result() -> Any:
    with recorded():
        return object()


def spawns(count: int, fail: bool, pause: float = 0.0) -> list[str]:
    with recorded():
        ids = [str(current.spawn(app.tasks["short"].call())) for _ in range(count)]
        write("spawned", job=current.job.id, ids=ids)
        time.sleep(pause)
        if fail:
            raise ValueError("after it has spawned")
        return ids


def reports() -> None:
    with recorded():
        current.progress(0.4, "forty")
        for line in range(120):
            current.log(f"line {line}")
        current.progress(0.9, "ninety")
        while not Path("reported").exists():
            time.sleep(0.01)


def steps(crash: bool) -> list[int]:
    """Two steps; with `crash` its first run dies between them."""
    with recorded():
        one = current.step("one", lambda: _did("one"))
        if crash and current.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        two = current.step("two", lambda: _did("two"))
        return [one, two]


async def asteps(fail: bool) -> list[int]:
    with recorded():
        one = await current.astep("one", lambda: _did("one"))

        async def second() -> int:
            await asyncio.sleep(0)
            return _did("two")

        if fail and current.attempt == 1:
            raise ValueError("between the steps")
        return [one, await current.astep("two", second)]


def _did(step: str) -> int:
    write("step", job=current.job.id, step=step, fence=current.fence)
    return current.attempt


def where() -> list[int]:
    """Process and thread."""
    with recorded():
        return [os.getpid(), threading.get_native_id()]


async def awhere() -> list[int]:
    with recorded():
        await asyncio.sleep(0)
        return [os.getpid(), threading.get_native_id()]


def spawns_nowhere() -> None:
    """Into a queue that nobody has declared."""
    with recorded():
        current.spawn(app.tasks["short"].using(queue="undeclared").call())


def leaves_context() -> str:
    """What an earlier job has left in a context variable; leaves its own."""
    with recorded():
        found = _mark.get("clean")
        _mark.set("dirty")
        return found


async def aleaves_context() -> str:
    with recorded():
        found = _mark.get("clean")
        _mark.set("dirty")
        await asyncio.sleep(0)
        return found


def eats(mebibytes: int) -> int:
    """Keeps memory for good."""
    with recorded():
        _eaten.append(b"x" * (mebibytes << 20))
        return os.getpid()


_mark: ContextVar[str] = ContextVar("bb_mark")
_eaten: list[bytes] = []


def build(url: str | None = None) -> Windlass:
    """An app with all of this."""
    made = Windlass(url, name="blackbox")
    made.queue("other")
    made.queue("third")
    made.queue("five", rate="5/s")
    made.queue("pair", concurrency=2)
    made.queue("lanes", lane_concurrency=1)
    made.queue("row", sequence=True)
    for function in (short, ashort, gated, agated, gil, says, asays, odd_result, spawns, reports):
        made.task(retry=QUICKLY)(function)
    made.task(run="inline")(tiny)
    made.task(run="process")(apart)
    made.task(retry=RetryPolicy(max_attempts=3))(poison)
    made.task(retry=RetryPolicy(max_attempts=3))(apoison)
    made.task(run="process", name="poison_process", retry=QUICKLY)(_named(poison, "poison_process"))
    made.task(retry=QUICKLY)(blocker)
    made.task(timeout=0.4, hard_timeout=1.0, retry=RetryPolicy(max_attempts=1))(slow_async)
    made.task(timeout=0.4, hard_timeout=1.0, retry=RetryPolicy(max_attempts=1))(stubborn_async)
    made.task(timeout=0.4, hard_timeout=1.0, retry=RetryPolicy(max_attempts=1))(slow_thread)
    made.task(timeout=0.4, hard_timeout=1.0, retry=RetryPolicy(max_attempts=1))(stubborn_thread)
    made.task(timeout=0.4, hard_timeout=1.0, retry=RetryPolicy(max_attempts=1), run="process")(slow_process)
    made.task(timeout=0.4, hard_timeout=1.0, retry=RetryPolicy(max_attempts=1), run="process")(
        stubborn_process
    )
    made.task(timeout=0.4, hard_timeout=3, retry=RetryPolicy(max_attempts=1), run="process")(signalled_async)
    made.task(timeout=1.5, hard_timeout=2, retry=RetryPolicy(max_attempts=1), run="process")(
        _named(slow_process, "patient_process")
    )
    made.task(name="slow_forever")(_named(slow_thread, "slow_forever"))
    made.task(retry=RetryPolicy(max_attempts=3, base=0.05, cap=0.1, give_up_on=(KeyError,)), name="picky")(
        _named(says, "picky")
    )
    for function in (
        weighs,
        one,
        tally,
        dies_once,
        watches_its_lease,
        steps,
        asteps,
        leaves_context,
        aleaves_context,
        eats,
    ):
        made.task(retry=QUICKLY)(function)
    made.task(retry=QUICKLY)(spawns_nowhere)
    for run in ("thread", "process", "inline", "loop"):
        made.task(run=run, name=f"where_{run}")(_named(where, f"where_{run}"))
        made.task(run=run, name=f"awhere_{run}")(_named(awhere, f"awhere_{run}"))
    for run in ("thread", "process"):
        once = RetryPolicy(max_attempts=1)
        made.task(run=run, timeout=0.4, hard_timeout=3, retry=once)(_named(slow_async, f"slow_async_{run}"))
        made.task(run=run)(_named(ashort, f"ashort_{run}"))
    for function in (steps, spawns, reports, leaves_context, says):
        made.task(run="process", retry=QUICKLY)(_named(function, f"{function.__name__}_process"))
    return made


def _named(function: Any, name: str) -> Any:
    """The same function as another task."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    copy.__annotations__ = function.__annotations__
    copy.__module__ = function.__module__
    return copy


app = build()
