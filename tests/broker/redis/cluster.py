"""A cluster on loopback: three primaries, each with a replica; and the live move of a slot."""

import fcntl
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

SLOTS = 16_384
_BUS = 10_000
"""The cluster's own port is this much above that of a node."""


class Cluster:
    """Nodes that know each other."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.nodes = [redis.Redis(port=port, decode_responses=True) for port in ports]
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def primaries(self) -> list[Any]:
        """The nodes that have slots."""
        return self.nodes[:3]

    def form(self) -> None:
        """Give each primary a third of the slots, and a replica."""
        share = SLOTS // 3 + 1
        for place, node in enumerate(self.primaries):
            slots = range(place * share, min((place + 1) * share, SLOTS))
            node.execute_command("CLUSTER", "ADDSLOTS", *slots)
        for node in self.nodes:
            for port in self.ports:
                node.execute_command("CLUSTER", "MEET", "127.0.0.1", port)
        until(lambda: all(self._knows_all(node) for node in self.nodes))
        for primary, replica in zip(self.primaries, self.nodes[3:], strict=True):
            name = primary.execute_command("CLUSTER", "MYID")
            until(lambda r=replica, n=name: self._follows(r, n))

    def _follows(self, replica: Any, name: str) -> bool:
        try:
            return replica.execute_command("CLUSTER", "REPLICATE", name) in (True, "OK")
        except redis.ResponseError:
            return False  # it does not know that node yet

    def _knows_all(self, node: Any) -> bool:
        info = node.execute_command("CLUSTER", "INFO")
        said = info if isinstance(info, dict) else dict(line.split(":") for line in info.split())
        return said["cluster_state"] == "ok" and int(said["cluster_known_nodes"]) == len(self.nodes)

    def owner(self, key: str) -> int:
        """The place of the primary that has the slot of a key."""
        slot = self.nodes[0].execute_command("CLUSTER", "KEYSLOT", key)
        for place, node in enumerate(self.primaries):
            if node.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot):
                return place
        raise AssertionError(f"nobody has slot {slot}")

    def move(self, key: str, to: int, between: Callable[[], None]) -> None:
        """Move the slot of a key while it is in use, one key at a time."""
        slot = self.nodes[0].execute_command("CLUSTER", "KEYSLOT", key)
        source, target = self.nodes[self.owner(key)], self.nodes[to]
        names = [node.execute_command("CLUSTER", "MYID") for node in (source, target)]
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
        while keys := source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.execute_command("MIGRATE", "127.0.0.1", self.ports[to], "", 0, 5_000, "KEYS", *keys)
            between()
        for node in (target, source, *self.primaries):
            node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[1])

    def sent_on(self) -> int:
        """How many calls were told that the slot is elsewhere."""
        told = [node.info("errorstats").get("errorstat_MOVED", {"count": 0}) for node in self.nodes]
        return sum(each["count"] for each in told)

    def listeners(self, place: int) -> int:
        """How many channels somebody listens to at a primary."""
        return len(self.primaries[place].pubsub_channels())

    def close(self) -> None:
        """Let go of the nodes."""
        for node in self.nodes:
            node.close()


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Ports that are free, and the cluster's own ports with them; nobody else is given them before this
    process ends.
    """
    found: list[int] = []
    port = 11_000 + time.time_ns() // 1_000 % 9_000  # below what the system gives out by itself
    while len(found) < count:
        if _taken(port) and all(_can_bind(each) for each in (port, port + _BUS)):
            found.append(port)
        port += 1
    return found


_locks: list[int] = []


def _taken(port: int) -> bool:
    """Take a port, unless another test has: between the look for a free one and its use there is time."""
    folder = Path(tempfile.gettempdir()) / f"windlass-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    _locks.append(lock)
    return True


def _can_bind(port: int) -> bool:
    with socket.socket() as link:
        try:
            link.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _answers(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def cluster(binary: Path) -> Iterator[Cluster]:
    """Start six nodes; stop them afterwards."""
    ports = free_ports(6)
    with tempfile.TemporaryDirectory(prefix="windlass-cluster-") as name:
        started: list[subprocess.Popen[bytes]] = []
        try:
            for port in ports:
                folder = Path(name) / str(port)
                folder.mkdir()
                settings = ["--port", str(port), "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
                files = ["--dir", str(folder), "--save", "", "--logfile", str(folder / "log")]
                command = [str(binary), "--bind", "127.0.0.1", *settings, *files]
                started.append(subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL))
            for port in ports:
                until(lambda p=port: _answers(p))
            whole = Cluster(ports)
            whole.form()
            yield whole
            whole.close()
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(10)
