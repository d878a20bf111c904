"""The application that is measured: tasks that do nothing but note that they have started."""

import mmap
import os
import struct
import time
from pathlib import Path

from windlass import Windlass
from windlass.bench import FOLDER, URL

NAMESPACE = "windlass_bench"
MARK = struct.Struct("<Qdd")
"""Jobs started, and when the first and the last, on the machine's monotonic clock."""
LATE = struct.Struct("<d")

app = Windlass(os.environ[URL], name="bench", namespace=NAMESPACE)


class _Notes:
    """What this process has started, in files that the command reads."""

    def __init__(self) -> None:
        self._count = 0
        self._first = 0.0
        self._shared: mmap.mmap | None = None
        self._late: int | None = None

    def start(self) -> None:
        now = time.monotonic()
        if self._shared is None:
            self._first = now
            path = Path(os.environ[FOLDER]) / f"{os.getpid()}.starts"
            path.write_bytes(bytes(MARK.size))
            with path.open("r+b") as file:
                self._shared = mmap.mmap(file.fileno(), MARK.size)
        self._count += 1
        MARK.pack_into(self._shared, 0, self._count, self._first, now)

    def ping(self, sent: float) -> None:
        late = time.monotonic() - sent
        if self._late is None:
            path = Path(os.environ[FOLDER]) / f"{os.getpid()}.late"
            self._late = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.write(self._late, LATE.pack(late))


_notes = _Notes()


@app.task
async def noop(text: str) -> None:  # noqa: ARG001 - what a payload is made of
    """Start, and no more."""
    _notes.start()


@app.task
async def ping(sent: float) -> None:
    """Note how long ago it was sent."""
    _notes.ping(sent)
