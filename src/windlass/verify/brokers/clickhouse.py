"""A ClickHouse of one's own: the real engine in a wheel (chdb-core), behind a small HTTP face."""

import http.client
import sys
from pathlib import Path
from typing import Final

from windlass.errors import StoreError
from windlass.verify.brokers import clickhouse_server
from windlass.verify.brokers.places import Missing, servers_folder
from windlass.verify.processes import Starter
from windlass.verify.stores.own import ANSWERS_WITHIN, Server

VERSION: Final = "26.9.0"


def engine_in(folder: Path) -> Path:
    """Where `make servers` puts the wheel."""
    return folder / "clickhouse" / VERSION


class OwnClickHouse(Server):
    """An engine in a process. What it has answered outlives the process, not the machine."""

    kind = "clickhouse"
    durable = "parts are written when an insert is answered, not synced"

    def __init__(self, starter: Starter, folder: Path) -> None:
        """`Missing`: it is not on this machine."""
        self._engine = engine_in(servers_folder())
        if not (self._engine / "chdb").is_dir():
            raise Missing("ClickHouse's engine is not on this machine: make servers ARGS=clickhouse")
        super().__init__(starter, folder)

    def url(self, address: tuple[str, int] | None = None) -> str:
        """Its default database."""
        host, port = address or ("127.0.0.1", self.port)
        return f"clickhouse://{host}:{port}/default"

    def command(self) -> list[str]:
        """The face, which loads the engine."""
        face = clickhouse_server.__file__
        return [sys.executable, face, str(self._engine), str(self.data), str(self.port)]

    def answers(self) -> bool:
        """Whether a statement is answered."""
        try:
            return self.ask("SELECT 1") == "1\n"
        except OSError:
            return False

    def ask(self, statement: str) -> str:
        """The answer to a statement, tab-separated; `StoreError` if it is refused."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWERS_WITHIN)
        try:
            link.request("POST", "/", body=statement.encode())
            answer = link.getresponse()
            text = answer.read().decode()
        finally:
            link.close()
        if answer.status != 200:
            raise StoreError(f"ClickHouse refuses: {text}")
        return text
