"""The workers of the demo: the real supervisor with its processes, as a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from windlass.demo.ledger import FOLDER

APP = "windlass.demo.tasks:app"
PROCESSES = 2
CONCURRENCY = 8
STOPPING = 10.0
"""Seconds after which a fleet that was told to stop is killed."""


class Fleet:
    """A supervisor and its worker processes."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "workers.log"
        with self._log.open("wb") as log:
            # A group of its own: Ctrl-C is the demo's to handle. It ends with its standard input, so that it
            # does not outlive a demo that was killed.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "windlass.demo.fleet"],
                env={**os.environ, FOLDER: str(folder)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._read = 0

    @property
    def is_running(self) -> bool:
        """Whether the supervisor lives."""
        return self._process.poll() is None

    def news(self) -> Iterator[str]:
        """What the supervisor had to say of its processes since the last time."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text.rpartition(b"\n")[0]
        self._read += len(whole) + bool(whole)
        for line in whole.decode(errors="replace").splitlines():
            level, _, said = line.partition(": ")
            if level in ("ERROR", "WARNING"):
                yield said

    def everything(self) -> str:
        """All that it has said."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Let the workers end; kill what does not."""
        for word in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if not self.is_running:
                break
            with contextlib.suppress(ProcessLookupError):
                # Killed, it takes its processes along: they are of its group.
                kill = os.killpg if word is signal.SIGKILL else os.kill
                kill(self._process.pid, word)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOPPING / 2)
        if self._process.stdin is not None:
            self._process.stdin.close()


def _end_with_input() -> None:
    """The process that started this one holds the other end."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _serve() -> int:
    import logging  # noqa: PLC0415 - for the process that this starts alone

    from windlass.worker.command import supervise  # noqa: PLC0415
    from windlass.worker.options import WorkerOptions  # noqa: PLC0415

    logging.basicConfig(level="INFO", format="%(levelname)s: %(message)s")
    threading.Thread(target=_end_with_input, daemon=True).start()
    options = WorkerOptions(processes=PROCESSES, concurrency=CONCURRENCY, queues=("default=1", "mail=1"))
    return supervise(APP, options)


if __name__ == "__main__":
    sys.exit(_serve())
