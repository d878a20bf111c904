"""A worker of `failing_app.py`, and an HTTP server that takes what Sentry's SDK sends."""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sentry_sdk.envelope import Envelope

FOLDER = Path(__file__).parent


class Inbox:
    """Listens on the loopback, and keeps the events that arrive."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                packed = self.headers.get("content-encoding") == "gzip"
                inbox.bodies.append(gzip.decompress(body) if packed else body)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def dsn(self) -> str:
        return f"http://public@127.0.0.1:{self._server.server_address[1]}/1"

    @property
    def events(self) -> list[dict[str, Any]]:
        envelopes = [Envelope.deserialize(body) for body in list(self.bodies)]
        return [dict(event) for each in envelopes if (event := each.get_event()) is not None]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ShopWorker:
    """The process, its log and its events."""

    def __init__(self, folder: Path, inbox: Inbox, url: str | None, *options: str) -> None:
        self.url = url or f"sqlite:///{folder / 'windlass.db'}"
        self.inbox = inbox
        self._log = folder / "worker.log"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")},
            "PYTHONPATH": str(FOLDER),
            "SENTRY_DSN": inbox.dsn,
            "WINDLASS_URL": self.url,
        }
        command = [sys.executable, "-m", "windlass", "worker", "failing_app:app", "--grace", "5", *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    @property
    def text(self) -> str:
        return self._log.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Of a log in JSON, without a line that is being written."""
        return [json.loads(line) for line in self.text.splitlines(keepends=True) if line.endswith("\n")]

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextmanager
def shop_worker(folder: Path, *options: str, url: str | None = None) -> Generator[ShopWorker]:
    """Running, on a SQLite file unless `url` names another store; the test may stop it."""
    inbox = Inbox()
    worker = ShopWorker(folder, inbox, url, *options)
    try:
        yield worker
    finally:
        worker.kill()
        inbox.close()
