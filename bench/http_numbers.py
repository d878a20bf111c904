"""Figures of the HTTP API: `python bench/http_numbers.py [store URL]`, in a minute or so.

A server with one process on a SQLite file of its own (or on the store that is named), and a client in this
process that writes requests to kept connections by hand, so that as little as can be is its own. Singles are
`POST /v1/jobs` with an API key, payloads of 200 bytes; batches are of 100 jobs. For each: the most that is
reached by some connections that ask again at once, what a job costs the server's processes, and the times of
requests that come evenly, at ever lower rates until 99 of 100 are answered within 5 ms (`BENCH_P99_MS`): the
rate that the server sustains with that. Beside each: what other programs took of the machine's cores, as on
a busy machine these are times of its scheduler (`nice -n -15 python bench/http_numbers.py`, as root), and of
its disk: an enqueue is answered when it is synced (`TMPDIR=/dev/shm` leaves the disk out).
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

TASKS = """
from windlass import Windlass

app = Windlass({url!r})


@app.task(keep_result=False)
def noop(text: str) -> None: ...
"""
SECONDS = float(os.environ.get("BENCH_SECONDS", "5"))
CONNECTIONS = 16
BATCH = 100
WANTED = float(os.environ.get("BENCH_P99_MS", "5")) / 1e3
LOWER, STEPS = 0.75, 12
"""From one rate to the next, and how many are tried."""
TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder / 'windlass.db'}"
        (folder / "tasks.py").write_text(TASKS.format(url=url))
        with server(folder) as (port, key, pid):
            asyncio.run(figures(port, key, pid))


async def figures(port: int, key: str, pid: int) -> None:
    """Every figure, as it is measured."""
    job = {"task": "noop", "payload": {"text": "x" * 200}}
    for title, path, body, jobs in (
        ("single, POST /v1/jobs", "/v1/jobs", job, 1),
        (f"batch of {BATCH}, POST /v1/jobs/batch", "/v1/jobs/batch", {"jobs": [job] * BATCH}, BATCH),
    ):
        request = written(port, key, path, json.dumps(body).encode())
        await flood(port, request, 1.0)  # warm
        before, began = cpu(pid), time.monotonic()
        times = await flood(port, request, SECONDS)
        rate = len(times) / (time.monotonic() - began)
        cost = (cpu(pid) - before) / len(times) / jobs * 1e6
        line = f"{rate * jobs:,.0f} jobs/s, server {cost:,.0f} CPU-µs a job, {shown(times)}"
        print(f"{title:<44} {CONNECTIONS} connections: {line}", flush=True)
        await sustained(port, request, rate, jobs, pid)


async def sustained(port: int, request: bytes, rate: float, jobs: int, pid: int) -> None:
    """The highest of some rates at which requests that come evenly are answered soon enough."""
    for _ in range(STEPS):
        rate *= LOWER
        before, began = busy(pid), time.monotonic()
        times = await evenly(port, request, rate, SECONDS)
        others = (busy(pid) - before) / (time.monotonic() - began)
        line = f"{rate * jobs:,.0f} jobs/s evenly: {shown(times)} (others: {others:.2f} cores)"
        print(f"{'':<44} {line}", flush=True)
        if statistics.quantiles(times, n=100)[98] < WANTED:
            print(f"{'':<44} sustained with p99 < {WANTED * 1e3:g} ms: {rate * jobs:,.0f} jobs/s", flush=True)
            return
    print(f"{'':<44} no rate with p99 < {WANTED * 1e3:g} ms: is the machine busy?", flush=True)


def shown(times: list[float]) -> str:
    """Percentiles of the times of requests."""
    cuts = statistics.quantiles(times, n=1_000)
    return f"p50 {cuts[499] * 1e3:.2f} ms, p99 {cuts[989] * 1e3:.2f} ms, p99.9 {cuts[998] * 1e3:.2f} ms"


# --- asking -------------------------------------------------------------------------------------------------


async def flood(port: int, request: bytes, seconds: float) -> list[float]:
    """Some connections that ask again as soon as they are answered; how long each request took."""
    until = time.monotonic() + seconds
    times: list[float] = []

    async def one() -> None:
        async with connected(port) as ask:
            while time.monotonic() < until:
                before = time.monotonic()
                await ask(request)
                times.append(time.monotonic() - before)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return times


async def evenly(port: int, request: bytes, rate: float, seconds: float) -> list[float]:
    """Requests at fixed times, whether or not those before were answered: waiting for a turn counts."""
    times: list[float] = []
    free: asyncio.Queue[object] = asyncio.Queue()
    begin = time.monotonic() + 0.1

    async def one(number: int) -> None:
        due = begin + number / rate
        ask = await free.get()
        await ask(request)  # type: ignore[operator]
        times.append(time.monotonic() - due)
        free.put_nowait(ask)

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                pause = begin + number / rate - time.monotonic()
                if pause > 0:
                    await asyncio.sleep(pause)
                group.create_task(one(number))

    async with asyncio.TaskGroup() as connections:
        ready = [asyncio.Event() for _ in range(4 * CONNECTIONS)]
        over = asyncio.Event()

        async def hold(event: asyncio.Event) -> None:
            async with connected(port) as ask:
                free.put_nowait(ask)
                event.set()
                await over.wait()

        for event in ready:
            connections.create_task(hold(event))
        for event in ready:
            await event.wait()
        await all_of_them()
        over.set()
    return times


def written(port: int, key: str, path: str, body: bytes) -> bytes:
    """A request, as it goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[object]:
    """A function that sends a request and waits for its answer, which has to be 201."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(request: bytes) -> None:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 201"):
            raise SystemExit(f"refused: {head.decode()}")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))

    try:
        yield ask
    finally:
        writer.close()


# --- the server ---------------------------------------------------------------------------------------------


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, str, int]]:
    """Its port, a key, and the pid of its first process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    windlass = [sys.executable, "-m", "windlass"]
    made = subprocess.run(  # noqa: S603 - our own program
        [*windlass, "keys", "tasks:app", "create", "--scope", "enqueue"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    options = ["--port", str(port), "--rate", "1000000", "--log-level", "warning"]
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*windlass, "serve", "tasks:app", *options], cwd=folder
    )
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port, made.stdout.strip(), process.pid
    finally:
        process.terminate()
        process.wait(30)


def cpu(pid: int) -> float:
    """Seconds of CPU that a process and its children have used."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry.name) == pid or int(fields[1]) == pid:
                total += (int(fields[11]) + int(fields[12])) / TICK
    return total


def busy(pid: int) -> float:
    """Seconds of CPU that all other programs have used, on all cores."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / TICK - cpu(pid) - sum(os.times()[:2])


if __name__ == "__main__":
    main()
