"""The ledger of the demo: every run writes down that it began and that it ended, apart from the store.

What the store says of a job can be held against it: lines are appended at once, and outlive a killed process.
"""

import os
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import msgspec

from windlass import current
from windlass.core.units import Fence, JobId

FOLDER = "WINDLASS_DEMO_FOLDER"
"""The variable that names the demo's folder to its workers."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A run began, or ended."""

    job: JobId
    fence: Fence
    task: str
    lane: str
    attempt: int
    pid: int
    at: float
    ended: bool = False


def ledger_path(folder: Path) -> Path:
    """Where it is."""
    return folder / "ledger.jsonl"


@contextmanager
def written_down() -> Generator[None]:
    """Write down the run that this is part of."""
    _append(ended=False)
    yield
    _append(ended=True)


def _append(*, ended: bool) -> None:
    job = current.job
    line = Line(
        job=job.id,
        fence=current.fence,
        task=job.task,
        lane=job.lane,
        attempt=current.attempt,
        pid=os.getpid(),
        at=time.time(),
        ended=ended,
    )
    # One write of one line to a file opened for appending is whole, even if other processes write.
    file = os.open(ledger_path(Path(os.environ[FOLDER])), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, msgspec.json.encode(line) + b"\n")
    finally:
        os.close(file)


def read_ledger(folder: Path) -> list[Line]:
    """Every line, in the order in which they were written."""
    path = ledger_path(folder)
    lines: Iterable[bytes] = path.read_bytes().splitlines() if path.exists() else ()
    return [msgspec.json.decode(line, type=Line) for line in lines]
