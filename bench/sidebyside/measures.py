"""What is measured: a function each, that takes a peer and a server and returns figures.

Rates are in jobs per second, processor time in microseconds per job: `client_us` of the producer, `worker_us`
of the workers with all their processes, `server_us` of the server. Start-up is excluded everywhere.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sidebyside.marks import await_pings, await_starts, forget_pings, starts
from sidebyside.peers import Peer, Stage, staged
from sidebyside.processes import busy_seconds, cpu_of, memory_of
from sidebyside.servers import Server

Figures = dict[str, float]
Fill = Callable[[Stage, int, int], object]
_DRAINS_WITHIN = 30.0  # with no job started: the workers are stuck
_WARM = 0.1  # of the jobs of a drain are started before processor time is counted: both processes run by then
_SETTLES = 2.0
_PINGS = 200  # at least: of fewer, the 99th percentile is the worst one
_PRODUCERS = 4  # that fill a store with single calls; a divisor of 1,000
_LOAD = 480_000  # jobs that wait behind urgent ones: fewer are done before the last urgent one is sent


class Absent(Exception):
    """The peer has no such thing."""


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    payload: int = 200
    part: float = 1.0

    def of(self, jobs: int) -> int:
        """So many jobs, in whole calls of 1,000."""
        return max(2, round(jobs * self.part / 1000)) * 1000


def single(peer: Peer, server: Server, size: Size) -> Figures:
    """One awaited call per job."""
    return _produced(peer, server, "single", size.of(5000), size.payload)


def concurrent(peer: Peer, server: Server, size: Size) -> Figures:
    """A hundred callers, each awaiting its own call."""
    return _produced(peer, server, "concurrent", size.of(20_000), size.payload, 100)


def bulk(peer: Peer, server: Server, size: Size) -> Figures:
    """Calls of 1,000."""
    return _produced(peer, server, "bulk", size.of(50_000), size.payload)


def _produced(peer: Peer, server: Server, *words: object) -> Figures:
    with staged(peer, server.fresh()) as stage:
        before = _server_cpu(server)
        answer = _ask(stage, *words)
        spent = _server_cpu(server) - before
    answer["server_us"] = spent / answer["jobs"] * 1e6
    return answer


def _fill(stage: Stage, jobs: int, payload: int) -> Figures:
    answer = stage.ask("bulk", jobs, payload)
    return stage.ask("single", jobs, payload) if "absent" in answer else answer


def _fill_by_singles(stage: Stage, jobs: int, payload: int) -> None:
    """By several processes, each with one call after the other: callers of one process may share a call."""
    words = "single", jobs // _PRODUCERS, payload
    with ThreadPoolExecutor(_PRODUCERS) as producers:
        parts = [producers.submit(stage.ask, *words) for _ in range(_PRODUCERS)]
        for part in parts:
            part.result()


def drain(peer: Peer, server: Server, size: Size) -> Figures:
    """Workers start in front of waiting no-op jobs: `async def` where the peer has it."""
    return _drained(peer, server, size.of(peer.drain), size.payload, BENCH_TASK="async")


def drain_singles(peer: Peer, server: Server, size: Size) -> Figures:
    """A drain of jobs that were enqueued one at a time, by a call each."""
    return _drained(peer, server, size.of(peer.drain), size.payload, _fill_by_singles, BENCH_TASK="async")


def drain_def(peer: Peer, server: Server, size: Size) -> Figures:
    """A drain of `def` tasks, in threads."""
    if peer.runtime in ("node", "go") or not peer.def_tasks:
        raise Absent
    return _drained(peer, server, size.of(peer.drain // 2), size.payload, BENCH_TASK="def")


def drain_lanes(peer: Peer, server: Server, size: Size) -> Figures:
    """A drain over 1,000 lanes, each limited to four jobs at once; jobs are dealt out to them in turn. With
    a plain drain just before it, to compare with.
    """
    return _drained_in_lanes(peer, server, size, "turn")


def drain_lanes_random(peer: Peer, server: Server, size: Size) -> Figures:
    """The same dealt out at random: what stands together is not claimed together."""
    return _drained_in_lanes(peer, server, size, "random")


def _drained_in_lanes(peer: Peer, server: Server, size: Size, dealt: str) -> Figures:
    if peer.name != "windlass":
        raise Absent
    plain = drain(peer, server, size)
    lanes = {"BENCH_LANES": "1000", "BENCH_LANE_LIMIT": "4", "BENCH_DEALT": dealt}
    figures = _drained(peer, server, size.of(peer.drain), size.payload, **lanes)
    return {**figures, "plain_rate": plain["rate"]}


def _drained(
    peer: Peer, server: Server, jobs: int, payload: int, fill: Fill = _fill, **extra: str
) -> Figures:
    if peer.drain == 0:
        raise Absent
    with staged(peer, server.fresh(), **extra) as stage:
        fill(stage, jobs, payload)
        server.filled()
        with stage.working() as root:
            warm = await_starts(stage.marks, round(jobs * _WARM), _DRAINS_WITHIN)
            before = _Spent.now(root, server)
            end = await_starts(stage.marks, jobs, _DRAINS_WITHIN)
            worker, served, others = _Spent.now(root, server).since(before)
    counted = max(1, jobs - warm.count)
    return {
        "jobs": jobs,
        "rate": jobs / (end.last - end.first),
        "worker_us": worker / counted * 1e6,
        "server_us": served / counted * 1e6,
        "cpu_us": (worker + served) / counted * 1e6,
        "others_percent": others,
    }


@dataclass(frozen=True)
class _Spent:
    """Processor time, so far."""

    worker: float
    server: float
    own: float
    busy: float
    at: float

    @classmethod
    def now(cls, root: int, server: Server) -> "_Spent":
        spent = (cpu_of(root), _server_cpu(server), time.process_time(), busy_seconds(), time.monotonic())
        return cls(*spent)

    def since(self, before: "_Spent") -> tuple[float, float, float]:
        """Of the workers, of the server, and the share of the machine that others took meanwhile."""
        worker, server = self.worker - before.worker, self.server - before.server
        others = self.busy - before.busy - worker - server - (self.own - before.own)
        there = (self.at - before.at) * (os.cpu_count() or 1)
        return worker, server, max(0.0, others / there * 100)


def both(peer: Peer, server: Server, size: Size) -> Figures:
    """Produce in bulk while the workers drain: from the first call to the last start."""
    if peer.drain == 0:
        raise Absent
    jobs = size.of(peer.drain // 2)
    with staged(peer, server.fresh()) as stage, stage.working():
        _await_ready(stage)
        before = starts(stage.marks).count
        answer = _fill(stage, jobs, size.payload)
        end = await_starts(stage.marks, before + jobs, _DRAINS_WITHIN)
    return {"jobs": jobs, "rate": jobs / (end.last - answer["began"]), "producer_rate": answer["rate"]}


def pickup(peer: Peer, server: Server, size: Size) -> Figures:
    """From the call of `enqueue` to the start, while there is nothing else to do."""
    if peer.drain == 0:
        raise Absent
    pings = max(_PINGS, round(300 * size.part))
    with staged(peer, server.fresh()) as stage, stage.working():
        _await_ready(stage)
        forget_pings(stage.marks)
        _ask(stage, "ping", pings, 0.02, 0)
        late = await_pings(stage.marks, pings, 60)
    return _quantiles(late)


def urgent(peer: Peer, server: Server, size: Size) -> Figures:
    """A job of high priority, from its call to its start, in front of a full load of short jobs."""
    if peer.name != "windlass":
        raise Absent
    jobs, pings = max(size.of(peer.drain * 3), _LOAD), _PINGS
    with staged(peer, server.fresh()) as stage:
        _fill(stage, jobs, size.payload)
        server.filled()
        with stage.working():
            await_starts(stage.marks, 1000, _DRAINS_WITHIN)
            _ask(stage, "ping", pings, 0.01, 50)
            late = await_pings(stage.marks, pings, 60)
            busy = starts(stage.marks).count < jobs
    return {**_quantiles(late), "busy_to_the_end": float(busy)}


def idle(peer: Peer, server: Server, size: Size) -> Figures:
    """What workers cost while there is nothing to do: the largest process, and the sum of all."""
    if peer.drain == 0:
        raise Absent
    seconds = max(4.0, 15.0 * size.part)
    with staged(peer, server.fresh()) as stage, stage.working() as root:
        _await_ready(stage)
        time.sleep(_SETTLES)
        worker, served, began = cpu_of(root), _server_cpu(server), time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        worker, served = cpu_of(root) - worker, _server_cpu(server) - served
        sizes = memory_of(root)
    return {
        "mib_largest": max(sizes),
        "mib_sum": sum(sizes),
        "processes": len(sizes),
        "core_percent": worker / passed * 100,
        "core_percent_each": worker / passed * 100 / len(sizes),
        "server_percent": served / passed * 100,
    }


def _grown(what: str, most: int, growing: str) -> Callable[[Peer, Server, Size], Figures]:
    def measure(peer: Peer, server: Server, size: Size) -> Figures:
        if peer.name != "windlass":
            raise Absent
        with staged(peer, server.fresh()) as stage:
            return _points(
                stage.ask_file("growth.py", what, most if size.part == 1 else max(1000, most // 100))
            )

    measure.__doc__ = f"What the store's verbs cost, by how many {growing}."
    return measure


def fleet(peer: Peer, server: Server, size: Size) -> Figures:
    """What idle sessions cost the server, by how many there are."""
    if peer.name != "windlass" or server.pid is None:
        raise Absent
    with staged(peer, server.fresh(), BENCH_SERVER=str(server.pid)) as stage:
        return _points(stage.ask_file("fleet.py", 2000 if size.part == 1 else 1000))


def _points(points: list[Figures]) -> Figures:
    """Each figure under its own name and the size that it was measured at."""
    return {
        f"{name}_{point['at']}": value for point in points for name, value in point.items() if name != "at"
    }


MEASURES: dict[str, Callable[[Peer, Server, Size], Figures]] = {
    "drain": drain,
    "drain_singles": drain_singles,
    "drain_def": drain_def,
    "bulk": bulk,
    "single": single,
    "concurrent": concurrent,
    "both": both,
    "pickup": pickup,
    "urgent": urgent,
    "idle": idle,
    "drain_lanes": drain_lanes,
    "drain_lanes_random": drain_lanes_random,
    "backlog": _grown("backlog", 1_000_000, "jobs wait"),
    "lanes": _grown("lanes", 10_000, "lanes the jobs go over"),
    "sessions": _grown("sessions", 1000, "sessions there are"),
    "flight": _grown("flight", 100_000, "jobs run"),
    "history": _grown("history", 100_000, "jobs were done before"),
    "fleet": fleet,
}


def _ask(stage: Stage, *words: object) -> Figures:
    answer = stage.ask(*words)
    if "absent" in answer:
        raise Absent
    return answer


def _await_ready(stage: Stage) -> None:
    """Wait until pings come through: the workers run then."""
    for seen in (20, 40):
        _ask(stage, "ping", 20, 0.01, 0)
        await_pings(stage.marks, seen, 60)
        time.sleep(0.5)


def _quantiles(late: list[float]) -> Figures:
    return {
        "jobs": len(late),
        "p50_ms": late[len(late) // 2] * 1e3,
        "p99_ms": late[int(len(late) * 0.99)] * 1e3,
    }


def _server_cpu(server: Server) -> float:
    return 0.0 if server.pid is None else cpu_of(server.pid)
