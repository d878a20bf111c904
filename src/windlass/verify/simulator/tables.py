"""Tables of leases without files: both sides hold the same bytes, and a dead side holds a copy.

Everything that decides (what is filed, started, taken back, and by whom first) is the real table's code.
"""

# It is the same table on other memory.
# pyright: reportPrivateUsage=false

import contextlib
from collections.abc import Generator
from pathlib import Path

from windlass.worker.table import _BEAT, _BEAT_AT, _HEADER, _MARK, Table, _size

_SHELF: dict[Path, "Shared"] = {}
"""Every table of the run, by its path."""


class Shared(bytearray):
    """The memory of one table."""

    closed = False

    def close(self) -> None:
        """The other side may still hold it."""


class MemoryTable(Table):
    """A table of leases in the memory of the simulation."""

    def __init__(self, path: Path, shared: Shared, capacity: int) -> None:
        self.path = path
        self.capacity = capacity
        self._file = -1
        self._map = shared  # type: ignore[assignment]
        self._taken_at = _HEADER.size + (64 - _HEADER.size) + capacity
        self._records_at = self._taken_at + capacity

    @classmethod
    def create(cls, path: Path, capacity: int) -> "MemoryTable":
        """Make a new one."""
        shared = _SHELF[path] = Shared(_size(capacity))
        _HEADER.pack_into(shared, 0, _MARK, capacity, 0.0, 0.0, 0)
        return cls(path, shared, capacity)

    @classmethod
    def open(cls, path: Path) -> "MemoryTable":
        """Open one that was made."""
        shared = _SHELF.get(path)
        if shared is None:
            raise FileNotFoundError(path)
        return cls(path, shared, int.from_bytes(shared[4:8], "little"))

    def close(self) -> None:
        """Let go of it."""

    def remove(self) -> None:
        """Delete it."""
        _SHELF.pop(self.path, None)

    def heartbeat_answered(self, sent: float, counts_for: float) -> None:
        """A beat was answered."""
        _BEAT.pack_into(self._map, _BEAT_AT, sent, counts_for)

    def freeze(self) -> None:
        """Its holder is dead: what it still does changes nothing."""
        self._map = Shared(self._map)  # type: ignore[assignment]


def forget_all() -> None:
    """The run is over."""
    _SHELF.clear()


@contextlib.contextmanager
def unlocked(_file: int, *, wait: bool = True) -> Generator[None]:  # noqa: ARG001 - as in the real table
    """One thread runs: nobody is ever in the way."""
    yield
