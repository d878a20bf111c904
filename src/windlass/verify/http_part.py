"""The part of a run that speaks HTTP: a server, workers that know nothing but it, and what lies between them.

The server is `windlass serve`, as users start it, behind a door of the proxy like any worker. Its callers
reach it through a proxy of their own, so that their connections can be hurt and the store's left alone.
"""

import importlib.util
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from windlass.verify.ground import APP, HOST, TOKEN, environment
from windlass.verify.network import Network
from windlass.verify.processes import Started, Starter

SERVER: Final = "http"
"""The place of the server, and its door to the store."""
WORKERS: Final = ("http-1", "http-2")
"""The places of its workers, and their doors to it."""
NEEDED = ("httptools", "litestar")
SERVED = APP
"""The app that is served; a test puts a faulty one in its place."""
_PATIENT = "1000000"
"""Requests a second that the server takes from one caller: who was cut off may hurry."""


def why_not() -> str | None:
    """Why there can be no such part here, in a few words."""
    if all(importlib.util.find_spec(name) is not None for name in NEEDED):
        return None
    return "needs the server: pip install 'windlass-queue[serve]'"


class HttpPart:
    """Starts the server and its workers, and holds the proxy between them."""

    def __init__(self, starter: Starter, url: Callable[[str], str], namespace: str, *, seed: int) -> None:
        self._starter = starter
        self._url = url
        self._namespace = namespace
        self._history: Path = starter.folder.parent / "history"
        self._seed = seed
        self._token = secrets.token_hex(16)
        self.port = _free_port()
        self.network = Network(("127.0.0.1", self.port), WORKERS)

    @property
    def programs(self) -> Mapping[str, Callable[[str, int], Started]]:
        """How who takes a place is started."""
        return {SERVER: self._server, **dict.fromkeys(WORKERS, self._worker)}

    def _server(self, place: str, number: int) -> Started:
        command = [sys.executable, "-m", "windlass.verify.host", "serve", SERVED]
        options = ["--port", str(self.port), "--rate", _PATIENT]
        variables = environment(
            self._url(SERVER), self._namespace, self._history, **{HOST: SERVER, TOKEN: self._token}
        )
        return self._starter.start(f"server-{place}-{number}", [*command, *options], environment=variables)

    def _worker(self, place: str, number: int) -> Started:
        name, seed = f"worker-{place}-{number}", self._seed * 1_000 + number
        door = str(self.network.doors[place])
        command = [sys.executable, "-m", "windlass.verify.http_worker", name, door, str(seed)]
        # It is told of no store: it has the server alone.
        variables = environment("memory://", self._namespace, self._history, **{TOKEN: self._token})
        return self._starter.start(name, command, environment=variables)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
