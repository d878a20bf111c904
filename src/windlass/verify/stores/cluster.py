"""A Redis Cluster of the run's own: three primaries, each with a replica, on the loopback."""

import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

from windlass.errors import StoreError
from windlass.verify.processes import Started, Starter, until
from windlass.verify.stores.own import ANSWERS_WITHIN, OwnStore
from windlass.verify.stores.redis import redis_binary

SLOTS = 16_384
PRIMARIES = 3
_BUS = 10_000
"""The cluster's own port is this much above that of a node."""


class OwnCluster(OwnStore):
    """Six nodes that know each other. A namespace is one slot of them."""

    kind = "cluster"
    durable = "appendonly yes, appendfsync always; replicas follow asynchronously"

    def __init__(self, starter: Starter, folder: Path) -> None:
        super().__init__(starter, folder)
        self._binary = redis_binary()
        self.ports = _free_ports(2 * PRIMARIES)
        self._processes: list[Started] = []

    def url(self, address: tuple[str, int] | None = None) -> str:
        """All nodes: any that answers names the others."""
        assert address is None
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self) -> None:
        """Start the nodes and let them meet."""
        for port in self.ports:
            folder = self.folder / str(port)
            folder.mkdir()
            settings = {
                "port": str(port),
                "bind": "127.0.0.1",
                "dir": str(folder),
                "save": "",
                "appendonly": "yes",
                "appendfsync": "always",
                "cluster-enabled": "yes",
                "cluster-node-timeout": "2000",
            }
            options = [part for name, value in settings.items() for part in (f"--{name}", value)]
            self._processes.append(self._starter.start(f"node-{port}", [str(self._binary), *options]))
        _holds("nodes answer", lambda: all(self._answers(port) for port in self.ports))
        self._form()

    def _form(self) -> None:
        share = SLOTS // PRIMARIES + 1
        for place, port in enumerate(self.ports[:PRIMARIES]):
            slots = range(place * share, min((place + 1) * share, SLOTS))
            self.say(port, "CLUSTER", "ADDSLOTS", *map(str, slots))
        for port in self.ports:
            for other in self.ports:
                self.say(port, "CLUSTER", "MEET", "127.0.0.1", str(other))
        _holds("nodes know each other", lambda: all(self._knows_all(port) for port in self.ports))
        for primary, replica in zip(self.ports[:PRIMARIES], self.ports[PRIMARIES:], strict=True):
            name = self.name(primary)
            _holds("replicas follow", lambda replica=replica, name=name: self._follows(replica, name))

    # --- words to nodes -------------------------------------------------------------------------------------

    def say(self, port: int, *words: str) -> Any:
        """One command to one node."""
        import redis  # noqa: PLC0415 - an extra

        client: Any = redis.Redis(host="127.0.0.1", port=port, socket_timeout=70, decode_responses=True)
        client.response_callbacks.clear()  # what the server says, as it is
        try:
            return client.execute_command(*words)
        finally:
            client.close()

    def name(self, port: int) -> str:
        """What a node is called."""
        return str(self.say(port, "CLUSTER", "MYID"))

    def slot(self, namespace: str) -> int:
        """The slot of a namespace."""
        from windlass.broker.redis.keys import prefix  # noqa: PLC0415 - an extra

        return int(self.say(self.ports[0], "CLUSTER", "KEYSLOT", f"{prefix(namespace)}meta"))

    def owner(self, slot: int) -> int:
        """The port of the primary that has a slot."""
        for port, node in self._nodes().items():
            if any(first <= slot <= last for first, last in node.slots):
                return port
        raise StoreError(f"nobody has slot {slot}")

    def replica_of(self, port: int) -> int | None:
        """The port of a replica that follows a primary."""
        name = self.name(port)
        followers = [
            other for other, node in self._nodes().items() if node.primary == name and not node.failed
        ]
        return followers[0] if followers else None

    def _nodes(self) -> dict[int, "Node"]:
        return nodes_of(_text(self.say(self.ports[0], "CLUSTER", "NODES")))

    def primaries(self) -> list[int]:
        """The ports of all primaries."""
        return [port for port in self.ports if self.say(port, "ROLE")[0] == "master"]

    def _answers(self, port: int) -> bool:
        with socket.socket() as link:
            return link.connect_ex(("127.0.0.1", port)) == 0

    def _knows_all(self, port: int) -> bool:
        said = _text(self.say(port, "CLUSTER", "INFO"))
        return "cluster_state:ok" in said and f"cluster_known_nodes:{len(self.ports)}" in said

    def _follows(self, replica: int, name: str) -> bool:
        import redis  # noqa: PLC0415 - an extra

        try:
            return self.say(replica, "CLUSTER", "REPLICATE", name) == "OK"
        except redis.ResponseError:
            return False  # it does not know that node yet

    # --- moving a slot --------------------------------------------------------------------------------------

    def move(self, slot: int, target: int) -> int:
        """Move a slot to another primary while it is in use, one key at a time; how many keys."""
        source, moved = self.owner(slot), 0
        if source == target:
            return 0
        names = self.name(source), self.name(target)
        self.say(target, "CLUSTER", "SETSLOT", str(slot), "IMPORTING", names[0])
        self.say(source, "CLUSTER", "SETSLOT", str(slot), "MIGRATING", names[1])
        while keys := self.say(source, "CLUSTER", "GETKEYSINSLOT", str(slot), "1"):
            self.say(source, "MIGRATE", "127.0.0.1", str(target), "", "0", "60000", "KEYS", *keys)
            moved += len(keys)
        for port in (target, source, *(port for port in self.primaries() if port not in (target, source))):
            self.say(port, "CLUSTER", "SETSLOT", str(slot), "NODE", names[1])
        return moved

    def backup(self, to: Path) -> None:
        """Not of a cluster."""
        raise StoreError(f"a cluster is not copied to {to}")

    def restore(self, copy: Path) -> None:
        """Not of a cluster."""
        raise StoreError(f"a cluster is not restored from {copy}")

    def close(self) -> None:
        """End all nodes."""
        for process in self._processes:
            process.kill_tree()


class Node(NamedTuple):
    """A line of `CLUSTER NODES`."""

    primary: str
    """Whom it follows; "-": nobody."""
    failed: bool
    slots: tuple[tuple[int, int], ...]


def nodes_of(text: str) -> dict[int, Node]:
    """The nodes that a node knows, by their ports."""
    found: dict[int, Node] = {}
    for line in text.splitlines():
        _, address, flags, primary, _, _, _, _, *slots = line.split()
        port = int(address.partition("@")[0].rpartition(":")[2])
        ranges = [slot.partition("-") for slot in slots if not slot.startswith("[")]
        spans = tuple((int(first), int(last or first)) for first, _, last in ranges)
        found[port] = Node(primary, "fail" in flags, spans)
    return found


def _text(said: Any) -> str:
    return said.decode() if isinstance(said, bytes) else str(said)


def _holds(what: str, condition: Any) -> None:
    if not until(condition, ANSWERS_WITHIN, every=0.05):
        raise StoreError(f"the run's own cluster did not come up: {what}, within {ANSWERS_WITHIN:g} s")


def _free_ports(count: int) -> list[int]:
    """Ports that are free, and the cluster's own ports with them."""
    found: list[int] = []
    port = 11_000 + time.time_ns() // 1_000 % 9_000  # below what the system gives out by itself
    while len(found) < count:
        if all(_can_bind(each) for each in (port, port + _BUS)):
            found.append(port)
        port += 1
    return found


def _can_bind(port: int) -> bool:
    with socket.socket() as link:
        try:
            link.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
