"""Programs of an example, started as its page says, in a folder of their own."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 120.0
T = TypeVar("T")


def eventually(look: Callable[[], T], *, hint: Callable[[], str] = str) -> T:
    """What `look` gives once it is true."""
    until = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < until, hint()
        time.sleep(0.05)
    return found


class Programs:
    """A copy of an example, and what runs in it."""

    def __init__(self, name: str, folder: Path, **variables: str) -> None:
        self.folder = folder / name
        shutil.copytree(EXAMPLES / name, self.folder, ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
        own = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
        self.environment = {**own, **variables, "PYTHONPATH": str(self.folder)}
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(*self._running)

    def stop(self, *processes: "subprocess.Popen[bytes]") -> None:
        """Ask them to end, and wait until they have."""
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a module of Python in the background: `windlass worker ...`."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
        self._running.append(process)
        return process

    def run(self, *words: str, code: int = 0) -> str:
        """What a program prints that ends with this code."""
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr + self.log()
        return ended.stdout + ended.stderr

    def log(self) -> str:
        """What those in the background have printed."""
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""


def answers(url: str) -> bool:
    """Whether a server is there."""
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
