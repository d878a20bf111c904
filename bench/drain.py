"""How fast a fleet drains waiting no-op jobs: `python bench/drain.py [--url URL] [--kind thread] …`.

A real `windlass worker` at its defaults (two processes) over a URL. Reported: jobs per second from the first
start to the last, and CPU-microseconds per job by process and thread, of the store's server, too, if its pid
is given. CPU is what compares between runs; the rate is what the machine had left.

    --url           any store; default: an SQLite file in a folder of its own
    --jobs          how many wait (default 40,000), with a payload of --bytes (200)
    --kind          `async` (loop), `thread` (def), `inline`
    --server PID    of the store's server: its CPU is counted
    --rounds        how often (default 3)
"""

import argparse
import contextlib
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from windlass import Windlass

_FOLDER = os.environ.get("WINDLASS_BENCH_MARKS", "")
_TICK = os.sysconf("SC_CLK_TCK")

app = Windlass()


class Marks:
    """What a process has started, in a file that the benchmark reads: count, first start, last start."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(24))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 24)
        self._values = memoryview(self._map).cast("d")

    def started(self) -> None:
        """One more."""
        values, now = self._values, time.monotonic()
        if not values[0]:
            values[1] = now
        values[2] = now
        values[0] += 1.0


_marks = Marks(Path(_FOLDER) / str(os.getpid())) if _FOLDER else None


@app.task(name="async")
async def no_op_async(payload: str) -> None:  # noqa: ARG001 - what it would work on
    """Nothing, in the loop."""
    if _marks is not None:
        _marks.started()


@app.task(name="thread")
def no_op_thread(payload: str) -> None:  # noqa: ARG001 - what it would work on
    """Nothing, in a thread."""
    if _marks is not None:
        _marks.started()


@app.task(name="inline", run="inline")
def no_op_inline(payload: str) -> None:  # noqa: ARG001 - what it would work on
    """Nothing, in the loop without a task."""
    if _marks is not None:
        _marks.started()


TASKS = {"async": no_op_async, "thread": no_op_thread, "inline": no_op_inline}


# --- measuring ----------------------------------------------------------------------------------------------


def main() -> None:
    """Measure and print."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--url")
    given.add_argument("--jobs", type=int, default=40_000)
    given.add_argument("--bytes", type=int, default=200)
    given.add_argument("--kind", choices=sorted(TASKS), default="async")
    given.add_argument("--server", type=int, default=0)
    given.add_argument("--rounds", type=int, default=3)
    options = given.parse_args()
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            url = options.url or f"sqlite:///{folder}/drain.db"
            namespace = f"drain{os.getpid()}n{number}"
            print(round_of(Path(folder), url, namespace, options), flush=True)


def round_of(folder: Path, url: str, namespace: str, options: argparse.Namespace) -> str:
    """Fill a store, let a fleet drain it, and say what that took."""
    marks = folder / "marks"
    marks.mkdir()
    environment = {**os.environ, "WINDLASS_URL": url, "WINDLASS_LOG_LEVEL": "WARNING"}
    if not url.startswith("sqlite"):
        environment["WINDLASS_NAMESPACE"] = namespace
    environment.pop("WINDLASS_BENCH_MARKS", None)
    fill = [sys.executable, __file__, "fill"]
    filled = [*fill, options.kind, str(options.jobs), str(options.bytes)]
    subprocess.run(filled, env=environment, check=True)  # noqa: S603 - this file
    environment["WINDLASS_BENCH_MARKS"] = str(marks)
    here = str(Path(__file__).resolve().parent)
    command = [sys.executable, "-m", "windlass", "worker", "drain:app"]
    fleet = subprocess.Popen(command, cwd=here, env=environment)  # noqa: S603 - this package
    try:
        return measured(fleet.pid, marks, options)
    finally:
        fleet.send_signal(signal.SIGTERM)
        fleet.wait()


def measured(fleet: int, marks: Path, options: argparse.Namespace) -> str:
    """Wait for the last job; CPU is counted from the first job that is seen."""
    first_cpu: Counter[str] | None = None
    first_count = 0
    while (count := started(marks)[0]) < options.jobs:
        if first_cpu is None and count > options.jobs // 50:
            first_cpu, first_count = cpu(fleet, options.server), count
        time.sleep(0.002)
    last_cpu = cpu(fleet, options.server)
    count, first, last = started(marks)
    jobs = count - first_count
    spent = {name: (last_cpu[name] - (first_cpu or Counter())[name]) / jobs * 1e6 for name in last_cpu}
    total = spent.pop("workers") + spent.get("server", 0.0)
    parts = ", ".join(f"{name} {value:.1f}" for name, value in sorted(spent.items()) if value >= 0.1)
    return f"{options.kind}: {count / (last - first):8,.0f} jobs/s, {total:6.1f} µs CPU a job ({parts})"


def started(marks: Path) -> tuple[int, float, float]:
    """How many jobs have started in all processes, when the first did and the last."""
    count, first, last = 0, float("inf"), 0.0
    for path in marks.iterdir():
        values = memoryview(path.read_bytes().ljust(24, b"\0")[:24]).cast("d")
        if values[0]:
            count, first, last = count + int(values[0]), min(first, values[1]), max(last, values[2])
    return count, first, last


def cpu(fleet: int, server: int) -> Counter[str]:
    """Seconds of CPU so far: of all workers, of each kind of thread, of the server."""
    used: Counter[str] = Counter()
    for pid in (fleet, *children(fleet)):
        used["workers"] += process_cpu(pid)
        kind = "supervisor" if pid == fleet else "child"
        with contextlib.suppress(OSError):
            for place, seconds in enumerate(thread_cpu(pid)):
                used[f"{kind}/{place if place < 4 else 'more'}"] += seconds
    if server:
        used["server"] = process_cpu(server)
    return used


def process_cpu(pid: int) -> float:
    """User and system time of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def thread_cpu(pid: int) -> Iterator[float]:
    """The same of its threads, the oldest first."""
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        yield int((task / "schedstat").read_text().split()[0]) / 1e9


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def fill(kind: str, jobs: int, size: int) -> None:
    """Let so many jobs wait."""
    task, payload = TASKS[kind], "x" * size
    app.enqueue_many(task.call(payload) for _ in range(jobs))
    app.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["fill"]:
        fill(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
