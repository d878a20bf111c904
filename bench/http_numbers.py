"""Figures of the HTTP API: `python bench/http_numbers.py [store URL] [--rates 200,500,1000]`, in a minute.

A server with one process on a SQLite file of its own (or on the store that is named), and a client in this
process that writes requests to kept connections by hand, waits for them with `select`, and takes the time of
an answer from the kernel: its own share is small, and its own delays are not counted as the server's. Singles
are `POST /v1/jobs` with an API key, payloads of 200 bytes; batches are of 100 jobs.

For each: connections that ask again at once (one alone, and 16), and requests that come evenly whether or not
those before were answered, at the rates that are named, or else at ever lower ones until 99 of 100 are
answered within 5 ms (`--p99`), by the median of the rounds: the rate that the server sustains with that. A
time is counted from when the request was due; "handled" is what of it passed inside the server, from the
request to its answer, measured there. Beside them: what a job costs the server's processes, for how long they
had to wait for a core, what a job costs this client, what other programs took, and what the host of a virtual
machine kept from it: 1 % of that is a p99. On a busy machine times are those of its scheduler (`nice -n -15
python bench/http_numbers.py`, as root), and of its disk: an enqueue is answered when it is synced
(`TMPDIR=/dev/shm` leaves the disk out).
"""

import argparse
import json
import os
import re
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

TASKS = """
import json, os, time

from windlass import Windlass
from windlass.api.gate import Gate

app = Windlass({url!r}, namespace="bench_http")


@app.task(keep_result=False)
def noop(text: str) -> None: ...


# For this bench alone: how long each request takes from the gate to its answer, told when asked for.
handled, inner = [], Gate.__call__


async def timed(self, scope, receive, send):
    if scope["type"] == "http" and scope["path"] == "/bench/handled":
        body = json.dumps(handled).encode()
        handled.clear()
        size = (b"content-length", b"%d" % len(body))
        await send({{"type": "http.response.start", "status": 200, "headers": [size]}})
        await send({{"type": "http.response.body", "body": body}})
        return
    began = time.perf_counter()
    await inner(self, scope, receive, send)
    handled.append(round(time.perf_counter() - began, 6))


Gate.__call__ = timed
"""
CONNECTIONS = 16
MOST_CONNECTIONS = 64
BATCH = 100
LOWER, STEPS = 0.75, 12
"""From one rate to the next, and how many are tried."""
TICK = os.sysconf("SC_CLK_TCK")
SO_TIMESTAMPNS = 35
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", nargs="?", help="a store; by default a SQLite file of its own")
    parser.add_argument("--rates", help="requests a second, such as 200,500,1000")
    parser.add_argument("--only", choices=("enqueue", "single", "batch"), action="append")
    parser.add_argument("--rounds", type=int, default=3, help="of each rate at which requests come evenly")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("BENCH_SECONDS", "5")))
    parser.add_argument("--p99", type=float, default=5.0, help="milliseconds")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = asked.url or f"sqlite:///{folder / 'windlass.db'}"
        (folder / "tasks.py").write_text(TASKS.format(url=url))
        with server(folder) as (port, key, pid):
            figures(Bench(port, key, pid, asked.seconds), asked)


def figures(bench: "Bench", asked: argparse.Namespace) -> None:
    """Every figure, as it is measured."""
    job = {"task": "noop", "payload": {"text": "x" * 200}}
    plain = {"type": "noop", "payload": {"text": "x" * 200}}
    for what, path, body, jobs in (
        ("enqueue", "/enqueue", plain, 1),
        ("single", "/v1/jobs", job, 1),
        ("batch", "/v1/jobs/batch", {"jobs": [job] * BATCH}, BATCH),
    ):
        if what not in (asked.only or ("single", "batch")):
            continue
        request = bench.written(path, json.dumps(body).encode())
        print(f"{what}: POST {path}" + (f", {jobs} jobs each" if jobs > 1 else ""), flush=True)
        bench.flood(request, CONNECTIONS, 1.0)  # warm
        rate = 0.0
        for connections in (1, CONNECTIONS):
            found = bench.flood(request, connections, bench.seconds)
            rate = max(rate, found.rate)
            many = f"{connections} connection{'s' if connections > 1 else ''}"
            print(f"  {many:<16} {found.shown(jobs)}", flush=True)
        rates = [float(each) / jobs for each in asked.rates.split(",")] if asked.rates else None
        sustained(bench, request, rates or [rate * LOWER**step for step in range(1, STEPS + 1)], jobs, asked)


def sustained(
    bench: "Bench", request: bytes, rates: Sequence[float], jobs: int, asked: argparse.Namespace
) -> None:
    """The highest of some rates at which requests that come evenly are answered soon enough."""
    best = 0.0
    for rate in rates:
        late: list[float] = []
        for _ in range(asked.rounds):
            found = bench.evenly(request, rate, bench.seconds)
            print(f"  {f'{rate * jobs:,.0f}/s evenly':<16} {found.shown(jobs)}", flush=True)
            late.append(cut(found.times, 99) * 1e3)
        if statistics.median(late) < asked.p99:
            best = max(best, rate)
            if not asked.rates:
                break
    said = f"{best * jobs:,.0f} jobs/s" if best else "at no rate: is the machine busy?"
    print(f"  sustained with p99 < {asked.p99:g} ms: {said}", flush=True)


def cut(times: Sequence[float], percent: float) -> float:
    """A percentile."""
    return statistics.quantiles(times, n=1_000)[round(percent * 10) - 1]


class Found(NamedTuple):
    """What a while of asking showed."""

    times: Sequence[float]
    """From when a request was due to the arrival of its answer."""
    handled: Sequence[float]
    late: Sequence[float]
    """How much later than due this client sent it."""
    rate: float
    server: float
    """Seconds of CPU; those of this client, and those that the server waited for a core."""
    client: float
    waited: float
    others: float
    """Cores that other programs took."""
    kept: float
    """Cores that the host of this machine kept from it."""

    def shown(self, jobs: int) -> str:
        """A line."""
        each = 1e6 / len(self.times)

        def percentiles(times: Sequence[float]) -> str:
            return " ".join(f"{cut(times, percent) * 1e3:.2f}" for percent in (50, 99, 99.9))

        return (
            f"{self.rate * jobs:>7,.0f} jobs/s  p50 p99 p99.9: {percentiles(self.times)} ms, "
            f"handled {percentiles(self.handled)} ms, late p99 {cut(self.late, 99) * 1e3:.2f} ms; "
            f"server {self.server * each / jobs:,.0f} µs a job (+ {self.waited * each / jobs:,.0f} waiting), "
            f"client {self.client * each / jobs:,.0f} µs; others {self.others:.2f} cores, "
            f"the host {self.kept:.3f}"
        )


# --- asking -------------------------------------------------------------------------------------------------


class Bench:
    """A server, and connections to it that are kept."""

    def __init__(self, port: int, key: str, pid: int, seconds: float) -> None:
        self.port, self.key, self.pid, self.seconds = port, key, pid, seconds
        self._open: list[Connection] = []

    def written(self, path: str, body: bytes, method: str = "POST") -> bytes:
        """A request, as it goes over the wire."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def flood(self, request: bytes, connections: int, seconds: float) -> Found:
        """Some connections that ask again as soon as they are answered."""
        return self._measured(request, connections, seconds, None)

    def evenly(self, request: bytes, rate: float, seconds: float) -> Found:
        """Requests at fixed times, whether or not those before were answered: waiting for a turn counts."""
        return self._measured(request, MOST_CONNECTIONS, seconds, rate)

    def _measured(self, request: bytes, connections: int, seconds: float, rate: float | None) -> Found:
        while len(self._open) < connections:
            self._open.append(Connection(self.port))
        self._handled()
        began, before, waited = time.monotonic(), cpu(self.pid), waiting(self.pid)
        others, kept, own = busy(self.pid), stolen(), time.process_time()
        times, late = asked(self._open[:connections], request, seconds, rate)
        took = time.monotonic() - began
        return Found(
            times=times,
            late=late,
            client=time.process_time() - own,
            server=cpu(self.pid) - before,
            waited=waiting(self.pid) - waited,
            others=(busy(self.pid) - others) / took,
            kept=(stolen() - kept) / took,
            rate=len(times) / took,
            handled=self._handled(),
        )

    def _handled(self) -> list[float]:
        """How long requests took inside the server, since this was asked last."""
        with socket.create_connection(("127.0.0.1", self.port)) as asking:
            asking.sendall(self.written("/bench/handled", b"", "GET"))
            answer = b""
            while (found := _LENGTH.search(answer)) is None or b"\r\n\r\n" not in answer:
                answer += asking.recv(1 << 20)
            while len(answer.partition(b"\r\n\r\n")[2]) < int(found[1]):
                answer += asking.recv(1 << 20)
        return json.loads(answer.partition(b"\r\n\r\n")[2])


class Connection:
    """One that is kept."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.due = 0.0
        self._read = b""

    def answered(self) -> float | None:
        """When an answer has arrived, by the kernel's clock; None while it is not whole. It has to be 201."""
        read, said, *_ = self.socket.recvmsg(1 << 18, 64)
        self._read = self._read + read if self._read else read
        if not read or not self._read.startswith(b"HTTP/1.1 201"):
            raise SystemExit(f"refused: {self._read[:500].decode()}")
        head = self._read.find(b"\r\n\r\n")
        length = _LENGTH.search(self._read)
        if head < 0 or length is None or len(self._read) < head + 4 + int(length[1]):
            return None
        self._read = b""
        if said:
            whole, parts = struct.unpack("qq", said[0][2])
            return whole + parts / 1e9
        return time.time()


def asked(
    connections: Sequence[Connection], request: bytes, seconds: float, rate: float | None
) -> tuple[list[float], list[float]]:
    """Send requests for some time: how long each took, and how late each was sent."""
    free = deque(connections)
    busy_ones: dict[socket.socket, Connection] = {}
    times: list[float] = []
    late: list[float] = []
    begin = time.time() + 0.02
    until, number = begin + seconds, 0
    while True:
        now = time.time()
        while free and now < until:
            due = now if rate is None else begin + number / rate
            if due > now:
                break
            one = free.popleft()
            one.due = due
            one.socket.send(request)
            busy_ones[one.socket] = one
            late.append(now - due)
            number += 1
            now = time.time()
        if not busy_ones and now >= until:
            return times, late
        pause = 1.0 if rate is None or not free or now >= until else max(0.0, begin + number / rate - now)
        for ready in select.select(list(busy_ones), [], [], pause)[0]:
            at = busy_ones[ready].answered()
            if at is not None:
                one = busy_ones.pop(ready)
                times.append(at - one.due)
                free.append(one)


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


def tree(pid: int) -> Iterator[tuple[Path, list[str]]]:
    """A process and its children: their folders, and what the kernel counts of them."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry.name) == pid or int(fields[1]) == pid:
                yield entry, fields


def cpu(pid: int) -> float:
    """Seconds of CPU that a process and its children have used."""
    return sum((int(fields[11]) + int(fields[12])) / TICK for _, fields in tree(pid))


def waiting(pid: int) -> float:
    """Seconds for which the threads of a process and its children could have run, and had no core."""
    return sum(
        int(thread.read_text().split()[1]) / 1e9
        for folder, _ in tree(pid)
        for thread in folder.glob("task/*/schedstat")
    )


def busy(pid: int) -> float:
    """Seconds of CPU that all other programs have used, on all cores."""
    fields = spent()
    return (sum(fields[:3]) + sum(fields[5:7])) / TICK - cpu(pid) - sum(os.times()[:2])


def stolen() -> float:
    """Seconds that the host of a virtual machine gave to others while this one wanted to run."""
    return spent()[7] / TICK


def spent() -> list[int]:
    """What all cores have done, by kinds, in ticks: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


if __name__ == "__main__":
    main()
