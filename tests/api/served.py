"""A server in processes of its own: `windlass serve`, in a user's folder."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

TASKS = """\
from windlass import Windlass, RetryPolicy

app = Windlass("sqlite:///windlass.db", session_ttl="2s", beat="500ms", history="sqlite:///history.db")
app.queue("images")
resize = app.external("resize", queue="images")
explode = app.external("explode", queue="images")


@app.task
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(queue="mail", retry=RetryPolicy(max_attempts=3))
def send(to: str, password: str = "") -> str:
    return to
"""
PATIENCE = 60.0
TOKEN = "the-token-of-this-server"
AS_LOCAL = {"authorization": f"Bearer {TOKEN}"}


class Served:
    """One server."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        (folder / "tasks.py").write_text(TASKS)
        self.log = folder / "serve.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "windlass",
            "serve",
            "tasks:app",
            "--port",
            str(self.port),
            *self.options,
        ]
        with self.log.open("ab") as log:
            # A group of its own, so that all of it can be killed at once.
            self._process = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True, env=environment()
            )
        until = time.monotonic() + PATIENCE
        while True:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)

    def stop(self) -> int:
        """Stop it as asked; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill_parent(self) -> None:
        """End the first of its processes alone."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait(PATIENCE)

    def kill(self) -> None:
        """End every process of it at once."""
        process, self._process = self._process, None
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)

    def command(self, *words: str) -> str:
        """What `windlass` prints."""
        return subprocess.run(
            [sys.executable, "-m", "windlass", *words],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        ).stdout

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, headers=AS_LOCAL, timeout=PATIENCE)

    def get(self, path: str, **asked: object) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", params=asked, headers=AS_LOCAL, timeout=PATIENCE)  # type: ignore[arg-type]


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    return {**own, "WINDLASS_TOKEN": TOKEN}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
