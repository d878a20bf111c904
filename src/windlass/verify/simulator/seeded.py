"""Everything that is not a function of the seed by itself, replaced while a simulation runs.

Session ids, the pauses of a client's resends and the short wait of a supervisor's take-back come from the
system; here they come from the seed and the virtual clock.
"""

import contextlib
import random
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

from windlass.client import resend
from windlass.verify.simulator.loop import SimLoop
from windlass.verify.simulator.tables import MemoryTable, forget_all, unlocked
from windlass.worker import endings, supervisor, table


def job_id(chance: random.Random) -> str:
    """A UUID with the form of version 7."""
    return str(UUID(int=(chance.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62)) | (7 << 76) | (2 << 62)))


def _no_sleep(_seconds: float) -> None: ...


def _no_tables(_folder: Path, _older_than: float) -> int:
    return 0


@contextlib.contextmanager
def seeded(loop: SimLoop, chance: random.Random) -> Generator[None]:
    """Replace the clocks and the chance of the modules under test."""

    def uuid4() -> UUID:
        return UUID(int=chance.getrandbits(128), version=4)

    replaced: list[tuple[object, str, object]] = [
        (supervisor, "uuid4", uuid4),
        (resend, "time", SimpleNamespace(monotonic=loop.time)),
        (resend, "random", SimpleNamespace(uniform=chance.uniform)),
        (table, "time", SimpleNamespace(sleep=_no_sleep, time=time.time)),
        (table, "_locked", unlocked),
        (supervisor, "Table", MemoryTable),
        (endings, "Table", MemoryTable),
        (endings, "remove_stale", _no_tables),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        forget_all()
